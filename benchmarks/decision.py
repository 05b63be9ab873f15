"""One placement decision, arrival to charged rank: `python -m benchmarks.decision [--json] [--quick]`.

The cost policy over fleets of several sizes that live through agent sessions: three a rank, of 20k tokens and more, one
or two requests at a time, load reports of all ranks every two seconds. Nine requests in ten are the next turn of a
session, whose prompt lies on its home; the others begin one, with a head that a few ranks hold. Measured is
`Placer.handle` of each arrival in CPU time: views renewed, ranks found, costs, explanation, charge. Beside it
the same decisions with every rank looked at, and the life of a request after its placement.
"""

import sys
import time
from heapq import heappop, heappush
from random import Random
from typing import Any

from benchmarks.rows import Aim, Row, make_row
from benchmarks.run_facts import SEED, describe_run, finish, make_parser, progress
from benchmarks.timing import describe_times
from router.config_policy import Coefficients, PolicyWeights
from router.fleet.rank import RankFacts
from router.placement.decision import Decision
from router.placement.instructions import Place
from router.placement.placer import Placer, PlacerSettings
from router.placement.stimuli import (
    FirstToken,
    FleetChanged,
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
NEW_RATIO = 0.1
RANKS_PER_WORKER = 8
CAPACITY_TOKENS = 400_000
HEAD_BLOCKS = 128
#: Seconds in which an answer is generated.
STEPS_S = 256 * 8e-3
#: Seconds between two arrivals on one rank, on average.
PACE_S = 4.0


class Traffic:
    """Agent sessions before one placer, in virtual time."""

    def __init__(self, ranks: int, *, is_exhaustive: bool) -> None:
        self._rng = Random(SEED)
        self._ranks = ranks
        self._now_s = 1_000.0
        self._serial = 0
        self._lengths: dict[str, int] = {}
        self._homes: dict[str, Target] = {}
        self._heads: set[Target] = set()
        self._due: list[tuple[float, int, Stimulus]] = []
        self._reported_at_s = 0.0
        policy = CacheAffinity(PolicyWeights(), Coefficients())
        self._targets = [
            Target(WorkerId(f"worker-{rank // RANKS_PER_WORKER}"), rank % RANKS_PER_WORKER) for rank in range(ranks)
        ]
        self.placer = Placer(policy=policy, rng_seed=SEED, settings=PlacerSettings(is_exhaustive=is_exhaustive))
        facts = tuple(
            RankFacts(target=target, url="http://x", models=("m",), capacity_tokens=CAPACITY_TOKENS)
            for target in self._targets
        )
        self.placer.handle(FleetChanged(now_s=self._now_s, ranks=facts))
        self.decision_s: list[float] = []
        self.life_s: list[float] = []

    def run(self, requests: int) -> None:
        """So many requests, each decided, streamed and ended."""
        for _ in range(requests):
            self._now_s += self._rng.expovariate(self._ranks / PACE_S)
            self._report()
            self._play_due()
            arrival = self._make_arrival()
            start_s = time.thread_time()
            (instruction,) = self.placer.handle(arrival)
            self.decision_s.append(time.thread_time() - start_s)
            if isinstance(instruction, Place):
                self._follow(arrival, instruction.decision)

    def _make_arrival(self) -> RequestArrived:
        self._serial += 1
        rng = self._rng
        session = f"s{rng.randrange(SESSIONS_PER_RANK * self._ranks)}"
        known = self._lengths.get(session)
        if known is None or rng.random() < NEW_RATIO:
            tokens, overlaps = rng.randrange(20_000, 60_000), dict.fromkeys(self._heads, HEAD_BLOCKS * BLOCK_TOKENS)
        else:
            tokens = known + rng.randrange(500, 4_000)
            overlaps = {self._homes[session]: known // BLOCK_TOKENS * BLOCK_TOKENS}
            overlaps |= {target: HEAD_BLOCKS * BLOCK_TOKENS for target in self._heads if target not in overlaps}
        self._lengths[session] = tokens
        seed = (int(session[1:]) + 1) * 1_000_003
        hashes = (*range(HEAD_BLOCKS), *(seed + n for n in range(tokens // BLOCK_TOKENS - HEAD_BLOCKS)))
        return RequestArrived(
            now_s=self._now_s,
            request_id=RequestId(f"r{self._serial}"),
            model="m",
            prompt_tokens=tokens,
            overlaps=overlaps,
            session=SessionId(session),
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


def measure(ranks: int, warm: int, measured: int, *, is_exhaustive: bool = False) -> tuple[list[float], list[float]]:
    """CPU seconds of decisions, and of what follows each."""
    traffic = Traffic(ranks, is_exhaustive=is_exhaustive)
    traffic.run(warm)
    traffic.decision_s.clear()
    traffic.life_s.clear()
    traffic.run(measured)
    return traffic.decision_s, traffic.life_s


def main() -> int:
    """Measure, print, keep."""
    options = make_parser(__doc__, repeats=3).parse_args()
    sizes = (8, 64) if options.quick else (8, 64, 512, 8_000)
    aims = {64: (60.0, "us"), 8_000: (3_000.0, "us")}
    rows: list[Row] = []
    details: dict[str, Any] = {}
    run = describe_run(options, block_tokens=BLOCK_TOKENS, sessions_per_rank=SESSIONS_PER_RANK)
    for ranks in sizes:
        medians, tails, lives = [], [], []
        measured = 200 if options.quick else 2_000
        for _ in range(options.repeats):
            progress(f"{ranks} ranks")
            decisions, after = measure(ranks, 2 * SESSIONS_PER_RANK * ranks, measured)
            times = describe_times(decisions)
            medians.append(1e3 * times["p50_ms"])
            tails.append(1e3 * times["p99_ms"])
            lives.append(1e3 * describe_times(after)["p50_ms"])
        every = describe_times(measure(ranks, 50, 20 if ranks > 1_000 else 200, is_exhaustive=True)[0])
        aim = Aim(at_most=aims[ranks][0]) if ranks in aims else None
        rows.append(
            make_row(
                f"decision over {ranks:,} ranks, p50", medians, "us", aim=aim, headline=ranks in aims,
                reference="every rank looked at", reference_value=1e3 * every["p50_ms"],
            )
        )  # fmt: skip
        rows.append(make_row(f"decision over {ranks:,} ranks, p99", tails, "us"))
        rows.append(make_row(f"each later word of a request, {ranks:,} ranks, p50", lives, "us"))
    return finish("decision", options, run, rows, details)


if __name__ == "__main__":
    sys.exit(main())
