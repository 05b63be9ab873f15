"""CPU of a router that places by exact ids: `python -m benchmarks.exact [--json] [--quick] [--peer NAME=COMMAND]`.

Ours renders and tokenizes each prompt itself; a peer like vllm-router asks an engine to, by its render route, so that
this part is CPU of the engine, which is not counted. Both figures of ours are given: all of it, and all but the time
within the template and the tokenizer, which the process counts as it goes. Four mock engines, one router at a time and
one load, each a process of its own; the peer's engines answer the render route with one id for 4 bytes.

    python -m benchmarks.exact --json --peer 'vllm-router=vllm-router --host 127.0.0.1 --port {port}
        --policy cache_aware --prometheus-port {spare} --log-level warning --worker-urls {urls}'
"""

import argparse
import asyncio
import json
import mmap
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from benchmarks.exact_load import iter_agent, iter_chats, iter_fresh, make_text, run_asking
from benchmarks.proxy import ENGINES, peer, process, read_peer
from benchmarks.proxy_load import CHAT, MockEngine, run_engines, whole_answer
from benchmarks.real_text import TOY, find_tokenizer
from benchmarks.rows import Aim, Row, make_row
from benchmarks.run_facts import SEED, describe_run, finish, make_parser, progress
from router.prompt.template import ChatTemplate
from router.prompt.tokenizer import TextEncoder, Tokenizer, load_tokenizer

AGENT_TOKENS = 100_000
_SHARE = struct.Struct("d")


class Workload(NamedTuple):
    """Prompts of one kind, and how many a connection sends before it counts and then."""

    prompts: Callable[[int, TextEncoder], Iterator[bytes]]
    connections: int
    warm: int
    counted: int


WORKLOADS = {
    "1 KB, every prompt new": Workload(lambda seed, _: iter_fresh(seed, 1_000), 32, 20, 150),
    "64 KB, every prompt new": Workload(lambda seed, _: iter_fresh(seed, 64_000), 32, 3, 12),
    "a turn of a chat": Workload(lambda seed, _: iter_chats(seed), 32, 40, 100),
    "an agent's turn after 100,000 tokens": Workload(
        lambda seed, tokenizer: iter_agent(seed, AGENT_TOKENS, tokenizer), 8, 2, 40
    ),
}


class RenderingEngine(MockEngine):
    """Also answers vLLM's render route: one id for 4 bytes of the body."""

    def on_url(self, url: bytes) -> None:
        """See `MockEngine`."""
        super().on_url(url)
        self._pieces: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        """See `MockEngine`."""
        super().on_body(body)
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """See `MockEngine`."""
        if self._url != f"{CHAT}/render".encode():
            super().on_message_complete()
            return
        body = b"".join(self._pieces)
        ids = [number % 100_003 for number in struct.unpack(f"<{len(body) // 4}I", body[: len(body) // 4 * 4])]
        answer = {"request_id": "c", "model": "mock", "token_ids": ids, "sampling_params": {}, "stream": False}
        self._transport.write(whole_answer(json.dumps(answer).encode()))


def run_router(share: Path, arguments: list[str]) -> None:
    """Our router, which tells how much CPU time went to templates and the tokenizer."""
    with share.open("r+b") as file:
        told = mmap.mmap(file.fileno(), _SHARE.size)

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            started_s = time.thread_time()
            try:
                return work(*args, **named)
            finally:
                # One thread at a time holds the interpreter between the two.
                _SHARE.pack_into(told, 0, _SHARE.unpack_from(told)[0] + time.thread_time() - started_s)

        return run

    for holder, name in ((ChatTemplate, "render"), (Tokenizer, "encode")):
        setattr(holder, name, timed(getattr(holder, name)))
    from router.cli import main as serve  # noqa: PLC0415  (after what it is to use was put in place)

    sys.argv = ["dovecote", *arguments]
    serve()


@contextmanager
def our_router(engines: str, folder: Path) -> Iterator[tuple[str, int, Callable[[], float]]]:
    """Our router: where it listens, its process, and how its share is read."""
    with tempfile.NamedTemporaryFile() as share:
        share.write(bytes(_SHARE.size))
        share.flush()
        serve = ("serve", "--port", "0", "--log-level", "error", "--tokenizer", str(folder), "--workers")
        command = ("benchmarks.exact", "--role", "router", "--share", share.name, "--", *serve, *engines.split(","))
        with process(*command) as (url, pid):

            def read_share_s() -> float:
                share.seek(0)
                return float(_SHARE.unpack(share.read(_SHARE.size))[0])

            yield url, pid, read_share_s


@contextmanager
def other_router(command: str, engines: str) -> Iterator[tuple[str, int, Callable[[], float]]]:
    """A peer, whose engines do that part."""
    with peer(command, engines) as (url, pid):
        yield url, pid, lambda: 0.0


def measure(folder: Path, repeats: int, scale: float, peers: Mapping[str, str]) -> dict[str, Any]:
    """Every router under every workload, taking turns."""
    figures: dict[str, dict[str, list[dict[str, float]]]] = {}
    tokenizer = load_tokenizer(folder)
    # Before anybody waits for it.
    make_text()
    with (
        process("benchmarks.exact", "--role", "engine") as (plain, _),
        process("benchmarks.exact", "--role", "renderer") as (rendering, _),
    ):
        for repeat in range(repeats):
            for what, workload in WORKLOADS.items():
                for name in ("ours", *peers):
                    progress(f"{what}: {name}, round {repeat + 1} of {repeats}")
                    opened = our_router(plain, folder) if name == "ours" else other_router(peers[name], rendering)
                    with opened as (url, pid, read_share_s):
                        connections = max(1, round(workload.connections * scale))
                        prompts = [
                            workload.prompts(SEED + 1_000 * repeat + one, tokenizer) for one in range(connections)
                        ]
                        count = max(2, round(workload.counted * scale))
                        run = run_asking(url, prompts, pid, warm=workload.warm, count=count, read_share_s=read_share_s)
                        figures.setdefault(what, {}).setdefault(name, []).append(asyncio.run(run))
    return figures


def make_rows(figures: Mapping[str, Mapping[str, list[dict[str, float]]]], peers: Mapping[str, str]) -> list[Row]:
    """Ours beside the cheapest peer, with and without the share of template and tokenizer."""
    rows = []
    for what, runs in figures.items():
        costs = {name: median(run["cpu_us"] for run in runs[name]) for name in peers}
        cheapest = min(costs, key=lambda name: costs[name], default=None)
        reference_value = None if cheapest is None else costs[cheapest]
        size = f"{what} ({fmean(run['request_bytes'] for run in runs['ours']) / 1e3:,.0f} KB)"
        apart = [run["cpu_us"] - run["share_us"] for run in runs["ours"]]
        aim = None if cheapest is None else Aim(at_least=1.0, of_ratio=True)
        rows += [
            make_row(
                f"router CPU of {size}, without template and tokenizer", apart, "us", reference=cheapest,
                reference_value=reference_value, aim=aim, headline=True,
            ),
            make_row(
                f"router CPU of {size}, all of it", [run["cpu_us"] for run in runs["ours"]], "us", reference=cheapest,
                reference_value=reference_value,
            ),
        ]  # fmt: skip
    return rows


def main() -> int:
    """Read the flags, measure, print."""
    flags = make_parser(__doc__, repeats=3)
    flags.add_argument("--peer", type=read_peer, action="append", default=[], metavar="NAME=COMMAND")
    flags.add_argument("--tokenizer", type=Path, help="folder to use")
    flags.add_argument("--role", choices=["engine", "renderer", "router"], help=argparse.SUPPRESS)
    flags.add_argument("--share", type=Path, help=argparse.SUPPRESS)
    flags.add_argument("router_arguments", nargs="*", help=argparse.SUPPRESS)
    said = flags.parse_args()
    if said.role == "router":
        run_router(said.share, said.router_arguments)
        return 0
    if said.role is not None:
        asyncio.run(run_engines(ENGINES, RenderingEngine if said.role == "renderer" else MockEngine))
        return 0
    if said.quick:
        said.repeats = 1
    folder = said.tokenizer or (TOY if said.quick else find_tokenizer())
    peers = dict(said.peer)
    facts = describe_run(said, tokenizer=folder.name, peers=sorted(peers))
    figures = measure(folder, said.repeats, 0.1 if said.quick else 1.0, peers)
    return finish("exact", said, facts, make_rows(figures, peers), figures)


if __name__ == "__main__":
    sys.exit(main())
