"""How long the interpreter's collector stops a router: `python -m benchmarks.pauses [--json] [--quick]`.

Each way of collecting gets a process of its own with the same work: chats of many conversations through the routes of
the data plane, exact prompts and placement included, before an engine in memory, and beside them a thread that takes
cache events in. Pauses are CPU seconds of the thread that collects. Ways: as Python does it by itself; with what stands
at the start left out; as the router does it, the oldest generation only where nobody waits (here: not within the run).
"""

import argparse
import asyncio
import gc
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, Self

from benchmarks.event_source import BLOCKS_PER_EVENT, make_batches
from benchmarks.open_loop import RANKS
from benchmarks.processes import run_child
from benchmarks.proxy import TOKENIZER
from benchmarks.proxy_load import MODEL, USAGE
from benchmarks.rows import Row, make_row
from benchmarks.run_facts import SEED, describe_run, finish, make_parser, progress
from prefix_index import make_index
from router.admission import QueueSettings
from router.collector import PauseLog, keep_for_good, leave_oldest_alone
from router.config.policy import PolicyConfig
from router.events.table import FedRanks, FeedLimits
from router.fleet.rank import RankFacts
from router.fleet.source import RankSource
from router.metrics import RouterMetrics
from router.placement.placer import Placer
from router.placement.stimuli import FleetChanged
from router.policy.catalogue import build_policies
from router.prompt import ModelPrompts, PromptCatalogue, Prompter
from router.proxy.admit import Admission
from router.proxy.headers import Headers
from router.proxy.ports import ProxyLimits, ProxyParts
from router.proxy.routes import HotRoutes
from router.proxy.upstream import TakeChunks
from wire.frames import encode_live
from wire.ids import Target, WorkerId

PYTHON, FROZEN, OURS = "as Python does it by itself", "what stands at the start left out", "as the router does it"
WAYS: dict[str, tuple[Callable[[], None], ...]] = {
    PYTHON: (),
    FROZEN: (keep_for_good,),
    OURS: (keep_for_good, leave_oldest_alone),
}
BLOCK_TOKENS = 16
_WORKER = WorkerId("w")
_TARGETS = tuple(Target(_WORKER, rank) for rank in range(RANKS))
_ANSWER = json.dumps(
    {"id": "c", "model": MODEL, "usage": USAGE,
     "choices": [{"index": 0, "message": {"role": "assistant", "content": "x" * 300}, "finish_reason": "stop"}]}
).encode()  # fmt: skip
#: Event messages between two pauses of the thread that takes them in.
_BURST, _REST_S = 20, 0.002


class _Answered:
    """An engine's answer, there at once."""

    status = 200

    def __init__(self) -> None:
        self.headers: Headers = [(b"content-type", b"application/json")]
        self._pieces = [_ANSWER]

    async def read(self) -> bytes:
        return self.take_whole()

    def take_whole(self) -> bytes:
        return self._pieces.pop() if self._pieces else b""

    async def pour(
        self,
        take: Callable[[bytes], bool],
        drain: Callable[[], Awaitable[None]],
        take_chunks: TakeChunks | None = None,  # noqa: ARG002
    ) -> None:
        while piece := await self.read():
            if take(piece):
                await drain()

    def close(self) -> None:
        """Nothing to close."""


class _Engine:
    """An engine in memory."""

    async def open(self, url: str, headers: Headers, body: bytes, *, method: str = "POST") -> _Answered:  # noqa: ARG002
        await asyncio.sleep(0)
        return _Answered()


class _Fleet:
    """One healthy worker."""

    def find_url(self, _target: Target) -> str:
        return "http://engine"

    def find_key(self, _worker: WorkerId) -> bytes | None:
        """No engine here asks for a key."""
        return None

    def find_ranks(self, _worker: WorkerId) -> frozenset[Target]:
        return frozenset(_TARGETS)

    def count_standings(self) -> dict[str, int]:
        return {"ready": 1}

    def report_unreachable(self, _worker: WorkerId) -> None:
        """Never."""

    def count_placed(self, _worker: WorkerId) -> None:
        """Nobody counts."""


def make_routes(ranks: FedRanks) -> HotRoutes:
    """The data plane of a router with one worker."""
    acting, _ = build_policies(PolicyConfig())
    placer = Placer(policy=acting, rng_seed=SEED)
    facts = tuple(
        RankFacts(
            target=target, url="http://engine", models=(MODEL,), block_tokens=BLOCK_TOKENS, capacity_tokens=8 << 20
        )
        for target in _TARGETS
    )
    placer.handle(FleetChanged(now_s=time.monotonic(), ranks=facts))
    prompts = PromptCatalogue(block_sizes=lambda: (BLOCK_TOKENS,))
    prompts.put(MODEL, ModelPrompts(Prompter.load(TOKENIZER), MODEL))
    limits = ProxyLimits(body_bytes=64 << 20, first_byte_s=60.0, idle_s=60.0)
    metrics = RouterMetrics()
    parts = ProxyParts(
        placer=placer, reuse=ranks, fleet=_Fleet(), prompts=prompts, upstream=_Engine(), metrics=metrics, limits=limits,
        admission=Admission(QueueSettings(), metrics, time.monotonic),
    )  # fmt: skip
    return HotRoutes(parts, inner=_refuse)


async def _refuse(_scope: Any, _receive: Any, _send: Any) -> None:
    raise RuntimeError("only paths of the data plane are asked for")


async def ask(routes: HotRoutes, conversation: int, turn: int) -> None:
    """One turn of a conversation of some 1,500 tokens."""
    messages = [
        {"role": "system", "content": "You are an agent that edits code. " * 20},
        {"role": "user", "content": f"conversation {conversation} " + f"word {conversation} " * 200},
    ]
    for number in range(turn):
        messages += [
            {"role": "assistant", "content": f"answer {number} " * 10},
            {"role": "user", "content": f"next {number} " * 30},
        ]
    left = [{"type": "http.request", "body": json.dumps({"model": MODEL, "messages": messages}).encode()}]
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return left.pop() if left else await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    headers = [(b"x-session-id", b"s%d" % conversation)]
    scope = {"type": "http", "path": "/v1/chat/completions", "method": "POST", "headers": headers}
    await routes(scope, receive, send)
    if statuses != [200]:
        raise RuntimeError(f"answered with {statuses}")


class Feed:
    """A thread that takes cache events in, as the one of the event sockets does."""

    def __init__(self, ranks: FedRanks, batches: list[bytes]) -> None:
        self._ranks = ranks
        self._batches = batches
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.messages = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(_REST_S):
            for _ in range(_BURST):
                rank, seq = self.messages % RANKS, self.messages // RANKS
                frames = encode_live("", seq, self._batches[self.messages % len(self._batches)])
                self._ranks.on_live(_TARGETS[rank], [frames])
                self.messages += 1


def follow(ranks: FedRanks) -> None:
    """Follow every rank, as if its sockets stood."""
    for target in _TARGETS:
        source = RankSource(target=target, model=MODEL, endpoint="tcp://127.0.0.1:1")
        ranks.put(source)
        ranks.on_opened(source)
        ranks.on_connection(target, lost=False, stands=True)


async def play(way: str, requests: int) -> dict[str, float]:
    """The work of one process: longest pause, all pauses, seconds of CPU, and one collection of everything after it."""
    ranks = FedRanks(make_index(), FeedLimits())
    follow(ranks)
    routes, batches = make_routes(ranks), make_batches(100_000)
    for number in range(100):
        await ask(routes, number, 0)
    for step in WAYS[way]:
        step()
    log = PauseLog(time.thread_time)
    gc.callbacks.append(log)
    began_s = time.process_time()
    with Feed(ranks, batches) as feed:
        for number in range(requests):
            await ask(routes, number % (requests // 2), number // (requests // 2))
    taken_s = time.process_time() - began_s
    gc.callbacks.remove(log)
    began_s = time.thread_time()
    found = gc.collect()
    whole_s = time.thread_time() - began_s
    return {
        "longest_s": log.longest_s,
        "all_s": log.pauses_s.sum,
        "cpu_s": taken_s,
        "messages": feed.messages,
        "found": found,
        "whole_s": whole_s,
    }


def measure(way: str, requests: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.pauses", "--play", way, "--requests", str(requests)]
    with run_child(command) as child:
        return json.loads(child.read_line())  # type: ignore[no-any-return]


def make_rows(taken: dict[str, list[dict[str, float]]]) -> list[Row]:
    """Longest pause, and what all take of the router's time."""
    rows = []
    for what, name, unit, scale in (
        ("longest pause", "longest_s", "ms", 1e3),
        ("all pauses of the CPU time", "share", "%", 1e2),
    ):
        values = {
            way: [scale * (run["all_s"] / run["cpu_s"] if name == "share" else run[name]) for run in runs]
            for way, runs in taken.items()
        }
        python = median(values[PYTHON])
        rows += [
            make_row(f"{what}, {way}", values[way], unit, reference=PYTHON, reference_value=python)
            for way in (FROZEN, OURS)
        ]
    whole_ms = [1e3 * run["whole_s"] for run in taken[OURS]]
    rows.append(make_row("one collection of everything after that, where nobody waits", whole_ms, "ms"))
    rows.append(make_row("objects in cycles that it finds", [run["found"] for run in taken[OURS]], "objects"))
    return rows


def main() -> int:
    """Measure, print, keep; or play one process of it."""
    parser = make_parser(__doc__, repeats=3)
    parser.add_argument("--play", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, default=5_000, help="chats of each process")
    options = parser.parse_args()
    if options.play is not None:
        print(json.dumps(asyncio.run(play(options.play, options.requests))), flush=True)
        return 0
    requests = 200 if options.quick else options.requests
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(1 if options.quick else options.repeats):
        for way, runs in taken.items():
            progress(way)
            runs.append(measure(way, requests))
    run = describe_run(options, requests=requests, blocks_a_message=BLOCKS_PER_EVENT, tokenizer=Path(TOKENIZER).name)
    return finish("pauses", options, run, make_rows(taken), taken)


if __name__ == "__main__":
    sys.exit(main())
