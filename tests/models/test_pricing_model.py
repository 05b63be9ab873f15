"""Ranks priced by the compiled terms give what the terms in Python give, to the last bit, whatever went before.

Two placers live through the same stimuli, one of which asks the Python terms for every rank at each decision.
"""

import math

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from router.config.policy import Coefficients, PolicyWeights
from router.fleet.rank import RankFacts
from router.fleet.tiers import ReuseOption
from router.placement.instructions import Place
from router.placement.origins import LedgerPartial, RankPartial, Stamp
from router.placement.placer import Placer, PlacerSettings
from router.placement.stimuli import (
    FirstToken,
    FleetChanged,
    LoadReported,
    Outcome,
    OutputProgressed,
    PartialTold,
    RequestArrived,
    RequestEnded,
)
from router.policy.cache_affinity import CacheAffinity
from router.policy.native import FEW_RANKS, pricing_available
from wire.ids import RequestId, SessionId, Target, WorkerId

TARGETS = tuple(Target(WorkerId(f"w{worker}"), rank) for worker in range(6) for rank in range(4))
pytestmark = pytest.mark.skipif(not pricing_available(), reason="the native module was not built (no C++ compiler)")

COSTS = Coefficients(rebalance_ratio=0.3, decode_s_per_full_cache=0.05, live_idle_s=40.0)
#: Most runs have numbers everywhere; where one is none, every rank is asked for in Python.
BROKEN = ("prefill_s_per_token", "decode_step_s", "decode_s_per_request", "working_set_factor", "future_turns")
ABSURD = (None,) * 12 + tuple((name, value) for name in BROKEN for value in (math.nan, math.inf))
WAYS = tuple(
    ReuseOption(reach="host", reuse_tokens=tokens, host_tokens=tokens, host_bytes=size, window_tokens=window)
    for tokens, size, window in ((2_000, 1 << 20, 0), (50_000, 1 << 34, 0), (9_000, None, 0), (9_000, 1 << 20, 512))
)
weights = st.sampled_from((0.0, 0.25, 1.0, 3.0))
targets = st.sampled_from(TARGETS)
HEADS = tuple(tuple(head * 1_000 + n for n in range(40)) for head in range(3))


class Twins(RuleBasedStateMachine):
    """One placer prices ranks by compiled terms, the other by those in Python."""

    def __init__(self):
        super().__init__()
        self.now_s = 100.0
        self.serial = 0
        self.open: list[RequestId] = []

    @initialize(
        chosen=st.fixed_dictionaries(dict.fromkeys(PolicyWeights.model_fields, weights)),
        count=st.integers(1, 8) | st.integers(9, 24),
        absurd=st.sampled_from(ABSURD),
    )
    def build(self, chosen, count, absurd):
        costs = COSTS if absurd is None else COSTS.model_copy(update=dict([absurd]))
        policy = CacheAffinity(PolicyWeights(**chosen), costs)
        self.native, self.python = (
            Placer(policy=policy, rng_seed=5, settings=settings)
            for settings in (
                PlacerSettings(max_homes=30),
                PlacerSettings(max_homes=30, is_exhaustive=True),
            )
        )
        self.tell(FleetChanged(now_s=self.now_s, ranks=tuple(facts(target) for target in TARGETS[:count])))

    def tell(self, stimulus):
        ours, theirs = self.native.handle(stimulus), self.python.handle(stimulus)
        assert len(ours) == len(theirs)
        return ours, theirs

    @rule(by_s=st.sampled_from((0.01, 0.3, 2.0, 7.0, 31.0, 42_500.0)))
    def let_time_pass(self, by_s):
        self.now_s += by_s

    @rule(out=st.sets(targets, max_size=6), two_models=st.sets(targets, max_size=8))
    def change_fleet(self, out, two_models):
        ranks = tuple(
            facts(target, models=("toy", "other") if target in two_models else ("toy",), healthy=target not in out)
            for target in TARGETS
        )
        self.tell(FleetChanged(now_s=self.now_s, ranks=ranks))

    @rule(
        rank=targets,
        running=st.integers(0, 9) | st.just(1 << 50),
        waiting=st.integers(0, 9),
        tokens=st.none() | st.integers(0, 90_000) | st.just(5_000_000),
        used=st.none() | st.integers(0, 100_000),
        capacity=st.none() | st.sampled_from((50_000, 100_000)),
        age_s=st.sampled_from((0.0, 28.0, 29.5, 40.0)),
    )
    def report(self, rank, running, waiting, tokens, used, capacity, age_s):  # noqa: PLR0917
        self.tell(
            LoadReported(
                now_s=self.now_s,
                target=rank,
                running_requests=running,
                waiting_requests=waiting,
                waiting_tokens=tokens,
                used_tokens=used,
                capacity_tokens=capacity,
                age_s=age_s,
            )
        )

    @rule(
        sequence=st.integers(1, 20),
        told=st.dictionaries(targets, st.floats(0.0, 9.0), max_size=3),
        origin=st.sampled_from(("one", "other")),
    )
    def hear_of_another_router(self, sequence, told, origin):
        ranks = tuple(
            RankPartial(target=each, waiting_s=waiting_s, waiting_requests=1) for each, waiting_s in told.items()
        )
        partial = LedgerPartial(origin=origin, stamp=Stamp(1, sequence), ranks=ranks)
        self.tell(PartialTold(now_s=self.now_s, partial=partial))

    @rule(
        prompt_tokens=st.sampled_from((0, 40, 3_000, 60_000)),
        output=st.sampled_from((None, 0, 20, 256, 4_000)),
        overlaps=st.dictionaries(targets, st.integers(-5, 60_000) | st.just(1 << 80), max_size=3),
        options=st.just({}) | st.dictionaries(targets, st.tuples(st.sampled_from(WAYS)), max_size=3),
        session=st.none() | st.sampled_from("stuvwxyz") | st.integers(0, 999).map(str),
        excluded=st.frozensets(targets, max_size=2),
        head=st.sampled_from(HEADS),
        blocks=st.integers(0, 40),
        model=st.sampled_from((None, "toy", "other")),
    )
    def arrive(self, prompt_tokens, output, overlaps, options, session, excluded, head, blocks, model):  # noqa: PLR0917
        self.serial += 1
        name = RequestId(f"r{self.serial}")
        arrival = RequestArrived(
            now_s=self.now_s,
            request_id=name,
            model=model,
            prompt_tokens=prompt_tokens,
            max_output_tokens=output,
            overlaps=overlaps,
            options=options,
            session=None if session is None else SessionId(session),
            excluded=excluded,
            chain_hashes=head[:blocks],
            chain_block_tokens=64,
        )
        dry, _ = self.native.explain(arrival), self.python.explain(arrival)
        (ours,), (theirs,) = self.tell(arrival)
        assert type(ours) is type(theirs)
        if isinstance(ours, Place):
            assert ours.target == theirs.target == dry.target
            self.compare(ours.decision, theirs.decision)
            self.open.append(name)

    def compare(self, ours, theirs):
        if theirs.eligible_count <= FEW_RANKS:
            assert ours.to_json() == theirs.to_json()
        every = {entry.target: entry for entry in theirs.candidates}
        assert {entry.target: entry for entry in ours.candidates}.items() <= every.items()
        assert min(ours.costs.totals_s) == min(theirs.costs.totals_s)
        assert ours.predicted_ttft_s == theirs.predicted_ttft_s
        # A home that no other rank can compete with is told of alone.
        if len(ours.costs) > 1:
            assert ours.reason == theirs.reason
            assert sorted(ours.costs.totals_s)[:2] == sorted(theirs.costs.totals_s)[:2]

    @rule(data=st.data(), after_s=st.sampled_from((0.0, 0.5)), cached=st.none() | st.integers(0, 3_000))
    def show_first_token(self, data, after_s, cached):
        if self.open:
            self.now_s += after_s
            name = data.draw(st.sampled_from(self.open))
            self.tell(FirstToken(now_s=self.now_s, request_id=name, cached_tokens=cached))

    @rule(data=st.data(), output=st.integers(0, 3_000))
    def progress(self, data, output):
        if self.open:
            name = data.draw(st.sampled_from(self.open))
            self.tell(OutputProgressed(now_s=self.now_s, request_id=name, output_tokens=output))

    @rule(
        data=st.data(),
        outcome=st.sampled_from((Outcome.DONE, Outcome.DONE, Outcome.ERROR)),
        output=st.sampled_from((None, 0, 100, 9_000)),
    )
    def end(self, data, outcome, output):
        if self.open:
            name = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
            self.tell(RequestEnded(now_s=self.now_s, request_id=name, outcome=outcome, output_tokens=output))

    @rule(lengths=st.sampled_from((1, 30, 2_000, 200_000)))
    def learn_other_lengths(self, lengths):
        """Enough answers that the tables of lengths are made anew, while requests are open."""
        for placer in (self.native, self.python):
            for _ in range(100):
                placer.ledger.outputs.record(lengths)

    @invariant()
    def both_are_sound(self):
        if hasattr(self, "native"):
            self.native.check_invariants()


def facts(target, *, models=("toy",), healthy=True):
    capacity = None if target.worker == "w0" else 100_000
    return RankFacts(target=target, url="http://x", models=models, healthy=healthy, capacity_tokens=capacity)


TestTwins = Twins.TestCase
TestTwins.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
