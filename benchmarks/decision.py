"""One placement decision, arrival to charged rank: `python -m benchmarks.decision [--json] [--quick]`.

The cost policy over fleets of several sizes that live through agent sessions: three a rank, of 20k tokens and more, one
or two requests at a time, load reports of all ranks every two seconds. Nothing is measured until there were as many
turns as sessions, so that hardly two ranks are alike. Apart are turns of sessions, whose prompt lies on their home, and
sessions that begin, with a head that a few ranks hold. Measured is `Placer.handle` of each arrival in CPU time: rows
written, ranks found, costs, explanation, charge; garbage is collected as in the router, where no decision waits for the
oldest generation. Beside it the dry run of the same decision, which looks at every rank, and the life of a request
after its placement.
"""

import sys
import time
from argparse import Namespace
from collections import defaultdict
from heapq import heappop, heappush
from random import Random

from benchmarks.rows import Aim, Row, make_row
from benchmarks.run_facts import SEED, describe_run, finish, make_parser, progress
from benchmarks.timing import describe_times
from router.collector import leave_oldest_alone
from router.config.policy import Coefficients, PolicyWeights
from router.fleet.rank import RankFacts
from router.placement.decision import Decision
from router.placement.homes import name_home
from router.placement.instructions import Place
from router.placement.origins import HomeRecord, Stamp
from router.placement.placer import Placer, PlacerSettings
from router.placement.stimuli import (
    FirstToken,
    FleetChanged,
    HomeTold,
    LoadReported,
    Outcome,
    OutputProgressed,
    RequestArrived,
    RequestEnded,
    Stimulus,
)
from router.policy.cache_affinity import CacheAffinity
from wire.ids import RequestId, SessionId, Target, WorkerId

BLOCK_TOKENS = 64
SESSIONS_PER_RANK = 3
RANKS_PER_WORKER = 8
CAPACITY_TOKENS = 400_000
HEAD_BLOCKS = 128
#: Seconds in which an answer is generated.
STEPS_S = 256 * 8e-3
#: Seconds between two arrivals on one rank, on average.
PACE_S = 4.0
#: What a decision is to take, in microseconds, by ranks.
AIMS_US = {64: 60.0, 8_000: 3_000.0}


class Traffic:
    """Agent sessions before one placer, in virtual time."""

    def __init__(self, ranks: int) -> None:
        self._rng = Random(SEED)
        self._ranks = ranks
        self._now_s = 1_000.0
        self._serial = 0
        self._lengths: dict[str, int] = {}
        self._homes: dict[str, Target] = {}
        self._heads: set[Target] = set()
        self._due: list[tuple[float, int, Stimulus]] = []
        self._reported_at_s = 0.0
        self._new_ratio = 0.0
        self._is_new = False
        policy = CacheAffinity(PolicyWeights(), Coefficients())
        self._targets = [
            Target(WorkerId(f"worker-{rank // RANKS_PER_WORKER}"), rank % RANKS_PER_WORKER) for rank in range(ranks)
        ]
        self.placer = Placer(policy=policy, rng_seed=SEED, settings=PlacerSettings())
        facts = tuple(
            RankFacts(target=target, url="http://x", models=("m",), capacity_tokens=CAPACITY_TOKENS)
            for target in self._targets
        )
        self.placer.handle(FleetChanged(now_s=self._now_s, ranks=facts))
        self.turn_s: list[float] = []
        self.begin_s: list[float] = []
        self.life_s: list[float] = []
        self.every_s: list[float] = []

    def settle(self) -> None:
        """Every session lives somewhere, as if another router had placed it."""
        for number in range(SESSIONS_PER_RANK * self._ranks):
            session, target = f"s{number}", self._targets[number % self._ranks]
            self._lengths[session] = tokens = self._rng.randrange(20_000, 60_000)
            self._homes[session] = target
            record = HomeRecord(
                origin="other",
                stamp=Stamp(1, number),
                session=name_home(SessionId(session), "m"),
                target=target,
                tokens=tokens,
            )
            self.placer.handle(HomeTold(now_s=self._now_s, record=record))

    def run(self, requests: int, new_ratio: float, *, dry_runs: bool = False) -> None:
        """So many requests, each decided, streamed and ended; a share of them begins a session."""
        self._new_ratio = new_ratio
        for _ in range(requests):
            self._now_s += self._rng.expovariate(self._ranks / PACE_S)
            self._report()
            self._play_due()
            arrival = self._make_arrival()
            if dry_runs:
                self._explain(arrival)
            start_s = time.thread_time()
            (instruction,) = self.placer.handle(arrival)
            taken = self.begin_s if self._is_new else self.turn_s
            taken.append(time.thread_time() - start_s)
            if isinstance(instruction, Place):
                self._follow(arrival, instruction.decision)

    def _explain(self, arrival: RequestArrived) -> None:
        start_s = time.thread_time()
        self.placer.explain(arrival)
        self.every_s.append(time.thread_time() - start_s)

    def forget_times(self) -> None:
        """What was measured so far does not count."""
        for taken in (self.turn_s, self.begin_s, self.life_s, self.every_s):
            taken.clear()

    def _make_arrival(self) -> RequestArrived:
        self._serial += 1
        rng = self._rng
        session = f"s{rng.randrange(SESSIONS_PER_RANK * self._ranks)}"
        known = self._lengths.get(session)
        self._is_new = known is None or rng.random() < self._new_ratio
        if known is None or self._is_new:
            tokens, overlaps = rng.randrange(20_000, 60_000), dict.fromkeys(self._heads, HEAD_BLOCKS * BLOCK_TOKENS)
        else:
            # Prompts do not grow over turns: a fleet that is measured for long is to stay as loaded as it was.
            tokens = known + rng.randrange(500, 4_000)
            overlaps = {self._homes[session]: known // BLOCK_TOKENS * BLOCK_TOKENS}
            overlaps |= {target: HEAD_BLOCKS * BLOCK_TOKENS for target in self._heads if target not in overlaps}
        seed = (int(session[1:]) + 1) * 1_000_003
        hashes = (*range(HEAD_BLOCKS), *(seed + n for n in range(tokens // BLOCK_TOKENS - HEAD_BLOCKS)))
        return RequestArrived(
            now_s=self._now_s,
            request_id=RequestId(f"r{self._serial}"),
            model="m",
            prompt_tokens=tokens,
            overlaps=overlaps,
            session=SessionId(session if not self._is_new else f"{session}-{self._serial}"),
            chain_hashes=hashes,
            chain_block_tokens=BLOCK_TOKENS,
        )

    def _follow(self, arrival: RequestArrived, decision: Decision) -> None:
        """First token, progress and end come when they were predicted to."""
        if arrival.session is not None and decision.target is not None:
            self._homes[arrival.session] = decision.target
        if len(self._heads) < 4 and decision.target is not None:
            self._heads.add(decision.target)
        name, at_s = arrival.request_id, self._now_s + decision.predicted_ttft_s
        heappush(self._due, (at_s, self._serial, FirstToken(now_s=at_s, request_id=name)))
        for place in range(1, 4):
            told_s = at_s + place * STEPS_S / 4
            progressed = OutputProgressed(now_s=told_s, request_id=name, output_tokens=64 * place)
            heappush(self._due, (told_s, self._serial, progressed))
        end_s = at_s + STEPS_S
        ended = RequestEnded(now_s=end_s, request_id=name, outcome=Outcome.DONE, output_tokens=256)
        heappush(self._due, (end_s, self._serial, ended))

    def _play_due(self) -> None:
        while self._due and self._due[0][0] <= self._now_s:
            _, _, stimulus = heappop(self._due)
            start_s = time.thread_time()
            self.placer.handle(stimulus)
            self.life_s.append(time.thread_time() - start_s)

    def _report(self) -> None:
        """All ranks tell their load every two seconds, as far as this many arrivals are spread over them."""
        if self._now_s - self._reported_at_s < 2.0:
            return
        self._reported_at_s = self._now_s
        for target in self._targets:
            totals = self.placer.ledger.totals(target, self._now_s)
            self.placer.handle(
                LoadReported(
                    now_s=self._now_s,
                    target=target,
                    running_requests=totals.decoding_requests,
                    waiting_requests=totals.waiting_requests,
                    waiting_tokens=0,
                    used_tokens=CAPACITY_TOKENS,
                    capacity_tokens=CAPACITY_TOKENS,
                )
            )


def begin(ranks: int, *, is_quick: bool = False) -> Traffic:
    """Traffic in which there were as many turns as sessions."""
    traffic = Traffic(ranks)
    traffic.settle()
    traffic.run(ranks if is_quick else SESSIONS_PER_RANK * ranks, 0.0)
    traffic.forget_times()
    return traffic


def measure(ranks: int, options: Namespace) -> list[Row]:
    """The rows of a fleet of one size."""
    turns, begun = (200, 20) if options.quick else (2_000, 100)
    taken: dict[str, list[float]] = defaultdict(list)
    traffic = begin(ranks, is_quick=options.quick)
    # Turns come first: sessions that begin all at once crowd the fleet for a while.
    for kind, requests, new_ratio in (("turn", turns, 0.0), ("begin", begun, 1.0)):
        for _ in range(options.repeats):
            progress(f"{ranks} ranks")
            traffic.run(requests, new_ratio)
            for name, time_ms in describe_times(traffic.begin_s if new_ratio else traffic.turn_s).items():
                taken[f"{kind} {name}"].append(1e3 * time_ms)
            taken["life p50_ms"].append(1e3 * describe_times(traffic.life_s)["p50_ms"])
            traffic.forget_times()
    every_us = {}
    for kind, new_ratio in (("turn", 0.0), ("begin", 1.0)):
        traffic.run(20, new_ratio, dry_runs=True)
        every_us[kind] = 1e3 * describe_times(traffic.every_s)["p50_ms"]
        traffic.forget_times()
    aim = Aim(at_most=AIMS_US[ranks]) if ranks in AIMS_US else None
    rows = []
    for kind, words in (("turn", "turn of a session"), ("begin", "session that begins")):
        rows.append(
            make_row(
                f"{words} over {ranks:,} ranks, p50", taken[f"{kind} p50_ms"], "us", aim=aim,
                headline=aim is not None, reference="every rank looked at", reference_value=every_us[kind],
            )
        )  # fmt: skip
        rows.append(make_row(f"{words} over {ranks:,} ranks, p99", taken[f"{kind} p99_ms"], "us"))
    rows.append(make_row(f"each later word of a request, {ranks:,} ranks, p50", taken["life p50_ms"], "us"))
    return rows


def main() -> int:
    """Measure, print, keep."""
    options = make_parser(__doc__, repeats=3).parse_args()
    leave_oldest_alone()
    run = describe_run(options, block_tokens=BLOCK_TOKENS, sessions_per_rank=SESSIONS_PER_RANK)
    sizes = (8, 64) if options.quick else (8, 64, 512, 8_000)
    rows = [row for ranks in sizes for row in measure(ranks, options)]
    return finish("decision", options, run, rows, {})


if __name__ == "__main__":
    sys.exit(main())
