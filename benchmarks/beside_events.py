"""What a flood of cache events does to requests: a router, an engine, a publisher and a client, each a process.

States take turns: no events; the events into a process that throws them away (the reference: what the traffic does
to the machine); the events into the router; an eighth of them; four times as many. In each the same open loop of small
requests, and of turns of conversations of 100k tokens, is timed from the moment each was due. The engine answers at
once, so that latency is the router's.
"""

import asyncio
import gc
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.open_loop import RANKS, OpenLoop
from benchmarks.processes import DEADLINE_S, Child, read_cpu_s, run_child, wait_for
from benchmarks.proxy_load import CHAT, MODEL, make_request
from benchmarks.run_facts import progress
from benchmarks.talk import CALL_TOKENS, Talk
from benchmarks.timing import describe_times
from router.prompt.tokenizer import load_tokenizer

BLOCKS_PER_S = 200_000
REFERENCE = "the events go to a process that only reads them"
#: Runs of ports: the router's, the drain's.
_ROUTED, _DRAINED = 0, 1
#: Where events go, and how many blocks of them a second.
STATES: dict[str, tuple[int, int] | None] = {
    "quiet": None,
    "drained": (_DRAINED, BLOCKS_PER_S),
    "routed": (_ROUTED, BLOCKS_PER_S),
    "routed_eighth": (_ROUTED, BLOCKS_PER_S // 8),
    "routed_fourfold": (_ROUTED, 4 * BLOCKS_PER_S),
}
_SMALL_PER_S, _TURNS_PER_S = 200, 4
_TALKS = 4
_ANSWER_S = 0.0
#: A turn's place between two small requests.
_OFFSET_S = 0.0013
_MODULE = (sys.executable, "-m")


class Stage:
    """The processes, and requests for them."""

    def __init__(self, stack: ExitStack, folder: Path, blocks: int) -> None:
        engine = stack.enter_context(run_child([*_MODULE, "benchmarks.open_loop", str(_ANSWER_S)]))
        url = engine.read_line().split()[-1]
        self._source = stack.enter_context(run_child([*_MODULE, "benchmarks.event_source", "--publish", str(blocks)]))
        routed, drained = json.loads(self._source.read_line())
        drain = stack.enter_context(run_child([*_MODULE, "benchmarks.event_source", "--drain", str(drained)]))
        drain.read_line()
        events = {"endpoint": f"tcp://127.0.0.1:{routed}"}
        worker = {"url": url, "id": "w", "dp_size": RANKS, "events": events}
        config = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "fleet.json"
        said = {"listen": {"port": 0}, "tokenizer": {"path": str(folder)}, "workers": [worker]}
        config.write_text(json.dumps(said), encoding="utf-8")
        command = [*_MODULE, "router", "serve", "--config", str(config), "--log-level", "error"]
        self._router: Child = stack.enter_context(run_child(command))
        self._url = self._router.read_line().split()[-1]
        self.client = OpenLoop(int(self._url.rpartition(":")[2]))
        wait_for(self._hears_all, "the router to hear every rank")

    def read_ranks(self) -> list[dict[str, Any]]:
        """The router's ranks as it shows them."""
        ranks: list[dict[str, Any]] = httpx.get(f"{self._url}/v1/workers", timeout=DEADLINE_S).json()["workers"][0][
            "ranks"
        ]
        return ranks

    def count_batches(self) -> int:
        """Batches of events that the router has taken in."""
        return sum(rank["event_batches"] for rank in self.read_ranks())

    async def run(self, state: str, requests: list[tuple[float, bytes]], seconds: float) -> dict[str, Any]:
        """One state for so long."""
        await asyncio.to_thread(self._settle)
        before, used_s, flow = self.count_batches(), read_cpu_s(self._router.pid), STATES[state]
        if flow is not None:
            self._source.say(f"{flow[0]} {flow[1]} {seconds}")
        taken_s = await self.client.run(requests)
        told = {} if flow is None else json.loads(await asyncio.to_thread(self._source.read_line))
        taken_in = self.count_batches() - before
        return {
            "taken_s": taken_s,
            "published": told,
            # What the router had not taken in when the last request was answered.
            "batches_behind": told["batches"] - taken_in if flow is not None and flow[0] == _ROUTED else 0,
            "router_cpu_s": read_cpu_s(self._router.pid) - used_s,
        }

    def _settle(self) -> None:
        """Every rank empty and every message read."""
        for run in (_ROUTED, _DRAINED):
            self._source.ask(f"{run} clear")
        wait_for(lambda: not any(rank["index_blocks"] for rank in self.read_ranks()), "empty caches")
        self._router.wait_until_idle()

    def _hears_all(self) -> bool:
        self._source.ask(f"{_ROUTED} clear")
        return all(rank["trust"] == "exact" for rank in self.read_ranks())


class Requests:
    """Small requests and turns on end, none twice."""

    def __init__(self, folder: Path, known_tokens: int, turns: int) -> None:
        tokenizer = load_tokenizer(folder)
        self._small = 0
        # Each grows by its share of the turns, so they begin below the length they stand for.
        start_tokens = max(1_000, known_tokens - 900 * turns // _TALKS // 2)
        self._talks = [Talk(tokenizer, 500 + number) for number in range(_TALKS)]
        for talk in self._talks:
            talk.grow(start_tokens)
        self._turns = 0

    def first_turns(self) -> list[bytes]:
        """Every conversation as it begins."""
        return [_to_request(talk) for talk in self._talks]

    def plan(self, seconds: float) -> tuple[list[tuple[float, bytes]], list[bool]]:
        """Requests and when they are due; and which of them are turns."""
        small = [(number / _SMALL_PER_S, False) for number in range(int(seconds * _SMALL_PER_S))]
        turns = [(number / _TURNS_PER_S + _OFFSET_S, True) for number in range(int(seconds * _TURNS_PER_S))]
        due = sorted(small + turns)
        return [(at_s, self._next_turn() if turn else self._next_small()) for at_s, turn in due], [t for _, t in due]

    def _next_small(self) -> bytes:
        self._small += 1
        return make_request(1_000, stream=False, start=f"question {self._small}: ")

    def _next_turn(self) -> bytes:
        self._turns += 1
        talk = self._talks[self._turns % len(self._talks)]
        talk.messages += talk.step(800 - CALL_TOKENS)
        return _to_request(talk)


def _to_request(talk: Talk) -> bytes:
    body = talk.to_body([], model=MODEL, stream=False)
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def measure_beside_events(folder: Path, known_tokens: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Latencies in each state, by round."""
    turns = int(seconds * _TURNS_PER_S) * len(STATES) * rounds
    requests = Requests(folder, known_tokens, turns)
    told: dict[str, list[dict[str, Any]]] = {state: [] for state in STATES}
    with ExitStack() as stack:
        stage = Stage(stack, folder, int(BLOCKS_PER_S * seconds))
        for request in [*requests.first_turns(), *requests.first_turns()]:
            await stage.client.ask(request, time.monotonic())
        for number in range(rounds):
            for state in _take_turns(number):
                progress(f"requests beside events: round {number + 1} of {rounds}, {state}")
                plan, are_turns = requests.plan(seconds)
                gc.collect()
                gc.freeze()
                taken = await stage.run(state, plan, seconds)
                told[state].append(taken | {"are_turns": are_turns})
        stage.client.close()
    return {"blocks_per_s_wanted": BLOCKS_PER_S, "answer_s": _ANSWER_S, **summarize(told)}


def _take_turns(number: int) -> list[str]:
    """The states, beginning with another one each round."""
    names = list(STATES)
    first = number % len(names)
    return names[first:] + names[:first]


def summarize(told: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Latency by state, and how much it moved from the quiet one of the same round."""
    summary: dict[str, Any] = {}
    for state, rounds in told.items():
        pairs = [list(zip(one["taken_s"], one["are_turns"], strict=True)) for one in rounds]
        summary[state] = {
            "small": [describe_times([taken_s for taken_s, turn in pair if not turn]) for pair in pairs],
            "turns": describe_times([taken_s for pair in pairs for taken_s, turn in pair if turn]),
            "router_cpu_s": [one["router_cpu_s"] for one in rounds],
            "published": [one["published"] for one in rounds],
            "batches_behind": [one["batches_behind"] for one in rounds],
        }
    quiet = summary["quiet"]
    for state, taken in summary.items():
        for figure in ("p50_ms", "p99_ms"):
            both = zip(taken["small"], quiet["small"], strict=True)
            taken[f"small_{figure}_moved"] = [there[figure] - alone[figure] for there, alone in both]
            taken[f"turns_{figure}_moved"] = taken["turns"][figure] - quiet["turns"][figure]
        if STATES[state] is not None:
            taken["blocks_per_s"] = median(one["blocks_per_s"] for one in taken["published"])
            used = zip(taken["router_cpu_s"], quiet["router_cpu_s"], taken["published"], strict=True)
            taken["router_cpu_us_a_message"] = [1e6 * (s - quiet_s) / one["batches"] for s, quiet_s, one in used]
    return summary
