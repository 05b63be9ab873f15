"""CPU that a request costs in the router: `python -m benchmarks.proxy [--json] [--quick] [--peer NAME=COMMAND]`.

Four mock engines, one proxy and one closed-loop load, each a process of its own on loopback. The figure is CPU time
(user and system) of the proxy process per answered request, which other load on the machine moves little; every one
stands beside figures of the same run: a bare aiohttp pass-through, and the routers given with `--peer`, whose command
may say `{port}`, `{spare}` (another free port) and `{urls}`. Ratios above 1 are in our favour. Without a tokenizer the
router places by chunks of text; with one it renders, tokenizes and hashes every prompt and matches it.

    python -m benchmarks.proxy --json --peer 'sglang-router=sglang-router launch --host 127.0.0.1 --port {port}
        --prometheus-port {spare} --policy cache_aware --log-level warn --worker-urls {urls}'
"""

import argparse
import asyncio
import json
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.proxy_load import CHAT, MODEL, make_request, run_engines, run_load, run_passthrough
from benchmarks.rows import Aim, Row, make_row
from benchmarks.run_facts import describe_run, finish, make_parser, progress

CONCURRENCY = 32
ENGINES = 4
TOKENIZER = Path(__file__).parents[1] / "engine_shim/engine/tokenizer/toy"
PASSTHROUGH = "a bare aiohttp pass-through"
#: Longest wait for a proxy to answer.
START_S = 60.0


class Workload(NamedTuple):
    """One kind of request, and how many are under way at a time."""

    request: bytes
    concurrency: int = CONCURRENCY
    #: Most that it may cost, of the cheapest peer.
    most_of_peer: float | None = None


WORKLOADS = {
    "1 KB": Workload(make_request(1_000, stream=False), most_of_peer=0.65),
    "64 KB": Workload(make_request(64_000, stream=False), most_of_peer=0.55),
    "512 KB": Workload(make_request(512_000, stream=False), most_of_peer=0.5),
    "a stream of 64 chunks": Workload(make_request(1_000, stream=True), most_of_peer=1.0),
    "1 KB, one at a time": Workload(make_request(1_000, stream=False), concurrency=1),
}
OURS = {"router_forward": "without a tokenizer", "router_affinity": "placed by its prompt"}


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, int]]:
    """A process of ours that prints where it listens; gives that and its id."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            line = child.stdout.readline() if child.stdout else ""
            if not line.startswith("listening on "):
                raise RuntimeError(f"{arguments} did not start")
            yield line.split()[-1], child.pid
        finally:
            child.terminate()


@contextmanager
def peer(command: str, engines: str) -> Iterator[tuple[str, int]]:
    """Another router, once it answers."""
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    filled = command.format(port=ports[0], spare=ports[1], urls=engines.replace(",", " "))
    with subprocess.Popen(shlex.split(filled), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            wait_for_answer(f"http://127.0.0.1:{ports[0]}", child)
            yield f"http://127.0.0.1:{ports[0]}", child.pid
        finally:
            child.terminate()


def wait_for_answer(url: str, child: "subprocess.Popen[bytes]") -> None:
    """Ask until a chat is answered.

    Raises:
        RuntimeError: It ended, or never answered.
    """
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}).encode()
    asked = urllib.request.Request(url + CHAT, data=body, headers={"content-type": "application/json"})  # noqa: S310
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and child.poll() is None:
        try:
            with urllib.request.urlopen(asked, timeout=2):  # noqa: S310
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise RuntimeError(f"{child.args!r} did not answer")


def measure(seconds: float, repeats: int, peers: Mapping[str, str]) -> dict[str, Any]:
    """Every proxy under every workload, rounds interleaved so that drift hits all alike."""
    figures: dict[str, dict[str, list[dict[str, float]]]] = {}
    idle: dict[str, dict[str, float]] = {}
    with process("benchmarks.proxy", "--role", "engine") as (engines, _):
        urls = engines.split(",")
        serve = ("router", "serve", "--port", "0", "--log-level", "error", "--workers", *urls)
        for repeat in range(repeats):
            for name in ("passthrough", *OURS, *peers):
                progress(f"{name}, round {repeat + 1} of {repeats}")
                more = ("--tokenizer", str(TOKENIZER)) if name == "router_affinity" else ()
                passed = ("benchmarks.proxy", "--role", "passthrough", "--engine", urls[0])
                started_s = time.monotonic()
                opened = (
                    peer(peers[name], engines)
                    if name in peers
                    else process(*(passed if name == "passthrough" else (*serve, *more)))
                )
                with opened as (url, pid):
                    idle.setdefault(name, {"start_s": time.monotonic() - started_s, "rss_mib": read_rss_mib(pid)})
                    for what, workload in WORKLOADS.items():
                        run = run_load(url, workload.request, pid, seconds, concurrency=workload.concurrency)
                        figures.setdefault(what, {}).setdefault(name, []).append(asyncio.run(run))
    return {"workloads": {what: summarize(rows) for what, rows in figures.items()}, "idle": idle}


def read_rss_mib(pid: int) -> float:
    """Memory that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1_024


def summarize(rows: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians and spread of each proxy."""
    return {
        name: {
            "cpu_us_per_request": [round(row["cpu_us_per_request"], 1) for row in repeats],
            "requests_per_s": round(median(row["requests_per_s"] for row in repeats)),
            "p50_ms": round(median(row["p50_ms"] for row in repeats), 3),
        }
        for name, repeats in rows.items()
    }


def make_rows(details: Mapping[str, Any], peers: Mapping[str, str]) -> list[Row]:
    """The router's costs beside the cheapest peer's, or the pass-through's without peers."""
    rows = []
    for what, figures in details["workloads"].items():
        costs = {name: median(figure["cpu_us_per_request"]) for name, figure in figures.items()}
        cheapest = min(peers, key=lambda name: costs[name], default="passthrough")
        reference = cheapest if peers else PASSTHROUGH
        most = WORKLOADS[what].most_of_peer
        for name, words in OURS.items():
            aim = Aim(at_least=1 / most, of_ratio=True) if most and peers and name == "router_forward" else None
            rows.append(
                make_row(
                    f"router CPU a request of {what}, {words}", figures[name]["cpu_us_per_request"], "us",
                    reference=reference, reference_value=costs[cheapest], aim=aim, headline=True,
                )
            )  # fmt: skip
    alone = details["workloads"]["1 KB, one at a time"]
    rows.append(
        make_row(
            "median answer of 1 KB, one at a time, without a tokenizer", alone["router_forward"]["p50_ms"], "ms",
            reference=PASSTHROUGH, reference_value=alone["passthrough"]["p50_ms"], aim=Aim(at_most=0.35),
        )
    )  # fmt: skip
    ours = details["idle"]["router_forward"]
    rows.append(make_row("memory of an idle router without a tokenizer", ours["rss_mib"], "MiB", aim=Aim(at_most=90)))
    rows.append(make_row("from its start to its first answer", ours["start_s"], "s", aim=Aim(at_most=1.5)))
    return rows


def read_peer(text: str) -> tuple[str, str]:
    """Name and command of a peer."""
    name, _, command = text.partition("=")
    if not command:
        raise argparse.ArgumentTypeError("a peer is NAME=COMMAND")
    return name, command


def main() -> int:
    """Read the flags, measure, print."""
    flags = make_parser(__doc__, repeats=3)
    flags.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    flags.add_argument("--peer", type=read_peer, action="append", default=[], metavar="NAME=COMMAND")
    flags.add_argument("--role", choices=["engine", "passthrough"], help=argparse.SUPPRESS)
    flags.add_argument("--engine", help=argparse.SUPPRESS)
    said = flags.parse_args()
    if said.role is not None:
        asyncio.run(run_engines(ENGINES) if said.role == "engine" else run_passthrough(said.engine))
        return 0
    if said.quick:
        said.seconds, said.repeats = 0.3, 1
    peers = dict(said.peer)
    facts = describe_run(said, concurrency=CONCURRENCY, seconds=said.seconds, peers=sorted(peers))
    details = measure(said.seconds, said.repeats, peers)
    return finish("proxy", said, facts, make_rows(details, peers), details)


if __name__ == "__main__":
    sys.exit(main())
