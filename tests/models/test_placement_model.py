"""Placement driven at random through every way a request can end, against a plain account of what is open.

Never negative, zero at the end, released exactly once: and a ledger that breaks any of it turns the same run red.
"""

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from router.config.policy import Coefficients
from router.fleet.rank import RankFacts
from router.placement.instructions import Place, Reject, RejectReason
from router.placement.ledger import Ledger, RankTotals
from router.placement.origins import LedgerPartial, RankPartial, Stamp
from router.placement.placer import Placer, PlacerSettings
from router.placement.reservation import Phase
from router.placement.stimuli import (
    FirstToken,
    FleetChanged,
    LoadReported,
    Outcome,
    OutputProgressed,
    PartialTold,
    RequestArrived,
    RequestEnded,
    StateKept,
)
from router.policy.base import Choice, build_table
from router.policy.catalogue import build_policy
from wire.ids import RequestId, SessionId, Target, WorkerId

TARGETS = tuple(Target(WorkerId(worker), rank) for worker in ("a", "b", "c") for rank in (0, 1))
NAMES = tuple(RequestId(f"r{n}") for n in range(6))
POLICIES = ("cache_affinity", "round_robin", "random", "least_load", "session_hash", "fails", "strays")

names = st.sampled_from(NAMES)
targets = st.sampled_from(TARGETS)
counts = st.integers(0, 200_000)
cached = st.none() | st.integers(-10, 5_000)
chains = st.integers(0, 6).map(lambda blocks: tuple(range(100, 100 + blocks)))


class Fails:
    """A policy that raises."""

    name = "fails"
    coefficients = Coefficients()

    def choose(self, query, ranks, seed):
        raise ValueError("broken")


class Strays(Fails):
    """A policy that chooses what it was not given."""

    name = "strays"

    def choose(self, query, ranks, seed):
        return Choice(target=Target(WorkerId("z"), 9), costs=build_table(query, ranks, [0.0] * len(ranks)))


def make_policy(name):
    return {"fails": Fails, "strays": Strays}[name]() if name in {"fails", "strays"} else build_policy(name)


class Charged(NamedTuple):
    """One open request."""

    context_tokens: int
    joint_tokens: int
    remaining_tokens: int
    limit_tokens: int | None
    output_tokens: int = 0


class PlacementMachine(RuleBasedStateMachine):
    """Any stimulus at any time; what is open is remembered beside in the plainest way."""

    ledger_type: type[Ledger] = Ledger

    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        self.open: dict[RequestId, Target] = {}
        #: What a request attends to and will, by the lengths known when it last told of itself.
        self.charged: dict[RequestId, Charged] = {}
        self.placed = 0
        self.present: dict[Target, RankFacts] = {}

    @initialize(policy=st.sampled_from(POLICIES))
    def build(self, policy):
        bounds = PlacerSettings(max_homes=3, max_predictions=3, max_decisions=8, home_idle_ttl_s=20.0)
        self.ledger = self.ledger_type()
        self.placer = Placer(policy=make_policy(policy), rng_seed=3, settings=bounds, ledger=self.ledger)
        self.change_fleet(dict.fromkeys(TARGETS[:4], (True, False)))

    @rule(by_s=st.floats(0.0, 15.0))
    def let_time_pass(self, by_s):
        self.now_s += by_s

    @rule(to_s=st.sampled_from((-1e9, 1e9, float("nan"), float("inf"))), rank=targets)
    def let_a_clock_jump(self, to_s, rank):
        report = LoadReported(now_s=to_s, target=rank, running_requests=1, waiting_requests=0)
        assert self.placer.handle(report) == ()
        self.placer.handle(OutputProgressed(now_s=to_s, request_id=RequestId("nobody"), output_tokens=1))

    @rule(policy=st.sampled_from(POLICIES), shadow=st.none() | st.sampled_from(POLICIES))
    def change_policy(self, policy, shadow):
        self.placer.change_policy(make_policy(policy), None if shadow is None else make_policy(shadow))

    @rule(name=st.sampled_from("pq"), rank=targets)
    def keep_state(self, name, rank):
        self.placer.handle(StateKept(now_s=self.now_s, name=name, target=rank))

    @rule(sequence=st.integers(0, 9), waiting=st.dictionaries(targets, st.floats(0.0, 50.0), max_size=3))
    def hear_of_another_router(self, sequence, waiting):
        ranks = tuple(
            RankPartial(target=rank, waiting_s=wait_s, decoding_requests=2, context_tokens=round(wait_s))
            for rank, wait_s in waiting.items()
        )
        partial = LedgerPartial(origin="other", stamp=Stamp(1, sequence), ranks=ranks)
        self.placer.handle(PartialTold(now_s=self.now_s, partial=partial))

    @rule(fleet=st.dictionaries(targets, st.tuples(st.booleans(), st.booleans())))
    def change_fleet(self, fleet):
        self.present = {
            target: RankFacts(target=target, url="http://x", models=("toy",), healthy=healthy, draining=draining)
            for target, (healthy, draining) in fleet.items()
        }
        assert self.placer.handle(FleetChanged(now_s=self.now_s, ranks=tuple(self.present.values()))) == ()
        self.open = {name: target for name, target in self.open.items() if target in self.present}
        self.charged = {name: charged for name, charged in self.charged.items() if name in self.open}

    @rule(tokens=st.sampled_from((1, 40, 3_000, 200_000)), answers=st.sampled_from((1, 64, 200)))
    def learn_other_lengths(self, tokens, answers):
        for _ in range(answers):
            self.ledger.outputs.record(tokens)

    @rule(rank=targets, running=counts, waiting=counts, tokens=st.none() | counts, used=counts)
    def report_load(self, rank, running, waiting, tokens, used):
        report = LoadReported(
            now_s=self.now_s,
            target=rank,
            running_requests=running,
            waiting_requests=waiting,
            waiting_tokens=tokens,
            used_tokens=used,
            capacity_tokens=100_000,
        )
        assert self.placer.handle(report) == ()

    @rule(
        name=names,
        prompt_tokens=st.integers(0, 200_000),
        overlaps=st.dictionaries(targets, st.integers(-5, 250_000), max_size=4),
        session=st.none() | st.sampled_from("stuvw"),
        excluded=st.frozensets(targets, max_size=3),
        chain=chains,
        pin=st.none() | st.none() | st.sampled_from("pq"),
        limit=st.none() | st.sampled_from((-1, 0, 1, 100, 10**9)),
    )
    def arrive(self, name, prompt_tokens, overlaps, session, excluded, chain, pin=None, limit=None):  # noqa: PLR0917
        arrival = RequestArrived(
            now_s=self.now_s,
            request_id=name,
            model="toy",
            prompt_tokens=prompt_tokens,
            overlaps=overlaps,
            session=None if session is None else SessionId(session),
            excluded=excluded,
            chain_hashes=chain,
            chain_block_tokens=16,
            max_output_tokens=limit,
            pin=pin,
        )
        self.placer.explain(arrival)
        (instruction,) = self.placer.handle(arrival)
        decision = instruction.decision
        assert 0 <= decision.predicted_cached_tokens <= max(0, prompt_tokens - 1)
        if isinstance(instruction, Reject):
            self.check_refusal(instruction, excluded, pin)
            return
        assert isinstance(instruction, Place)
        assert name not in self.open
        facts = self.present[instruction.target]
        assert facts.accepts_requests()
        assert instruction.target not in excluded
        assert decision.predicted_cached_tokens <= max(0, overlaps.get(instruction.target, 0))
        self.open[name] = instruction.target
        self.placed += 1
        self.charge(name, prompt_tokens, 0, limit)

    def charge(self, name, prompt_tokens, output_tokens, limit):
        outputs = self.ledger.outputs
        self.charged[name] = Charged(
            prompt_tokens + output_tokens,
            outputs.find_joint_tokens(output_tokens, limit),
            outputs.find_remaining_tokens(output_tokens, limit),
            limit,
            output_tokens,
        )

    def check_refusal(self, refused, excluded, pin):
        if refused.reason is RejectReason.DUPLICATE_REQUEST:
            assert refused.request_id in self.open
            return
        if pin is not None:
            return
        takers = {target for target, facts in self.present.items() if facts.accepts_requests()}
        assert not takers - excluded

    @rule(name=names, cached_tokens=cached)
    def show_first_token(self, name, cached_tokens):
        self.placer.handle(FirstToken(now_s=self.now_s, request_id=name, cached_tokens=cached_tokens))

    @rule(name=names, output_tokens=st.integers(-5, 5_000))
    def progress(self, name, output_tokens):
        self.placer.handle(OutputProgressed(now_s=self.now_s, request_id=name, output_tokens=output_tokens))
        before = self.charged.get(name)
        if before is not None and output_tokens > before.output_tokens:
            self.charge(name, before.context_tokens - before.output_tokens, output_tokens, before.limit_tokens)

    @rule(name=names, outcome=st.sampled_from(Outcome), cached_tokens=cached, output=st.none() | st.integers(-5, 900))
    def end(self, name, outcome, cached_tokens, output):
        end = RequestEnded(
            now_s=self.now_s, request_id=name, outcome=outcome, cached_tokens=cached_tokens, output_tokens=output
        )
        self.placer.handle(end)
        self.open.pop(name, None)
        self.charged.pop(name, None)

    @invariant()
    def the_ledger_holds_what_is_open_and_nothing_else(self):
        assert set(self.ledger.open_requests()) == set(self.open)
        assert self.ledger.reserved_total == self.placed
        assert self.ledger.released_total == self.placed - len(self.open)
        self.placer.check_invariants()

    @invariant()
    def every_rank_carries_its_own_requests_and_no_negative_load(self):
        for target in TARGETS:
            every = self.ledger.totals(target, self.placer.clock.now_s)
            assert self.ledger.find_decoding(target) == (every.decoding_requests, every.context_tokens)
            totals = self.find_own_totals(target)
            mine = [name for name, where in self.open.items() if where == target]
            decoding = [name for name in mine if self.ledger.find(name).phase is Phase.DECODE]
            assert totals.open_requests == len(mine)
            assert totals.decoding_requests == len(decoding)
            figures = (totals.waiting_s, totals.waiting_tokens, totals.context_tokens, totals.open_tokens)
            assert min(figures) >= 0
            if not mine:
                assert totals == RankTotals()
            every, generating = ([self.charged[name] for name in each] for each in (mine, decoding))
            assert totals.joint_output_tokens == sum(each.joint_tokens for each in every)
            assert totals.joint_context_tokens == sum(each.joint_tokens * each.context_tokens for each in every)
            assert totals.remaining_output_tokens == sum(each.remaining_tokens for each in generating)
            assert totals.context_tokens == sum(each.context_tokens for each in generating)

    def find_own_totals(self, target):
        """What this router has there, without what another one told."""
        account = self.ledger.accounts.get(target)
        return RankTotals() if account is None else account.totals(self.placer.clock.now_s)

    @invariant()
    def everything_kept_is_bounded(self):
        assert len(self.placer.homes) <= 3
        assert len(self.placer.residency) <= 3
        assert len(self.placer.decisions) <= 8

    def teardown(self):
        for name in list(self.open):
            self.placer.handle(RequestEnded(now_s=self.now_s, request_id=name, outcome=Outcome.CANCELLED))
        assert len(self.ledger) == 0
        assert self.ledger.released_total == self.ledger.reserved_total
        assert not self.ledger.accounts
        self.placer.check_invariants()


RUN = settings(max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TestPlacement = PlacementMachine.TestCase
TestPlacement.settings = RUN


class LeavesLoadOfLostRanks(Ledger):
    """Mutant: a rank that vanishes keeps its requests charged."""

    def release_target(self, target, now_s):
        return ()


class ReleasesTwice(Ledger):
    """Mutant: a request stays open after its release, so that a second one counts too."""

    def release(self, request_id, now_s):
        kept = self.find(request_id)
        released = super().release(request_id, now_s)
        if kept is not None:
            self._open[request_id] = kept
        return released


class KeepsPrefillAfterFirstToken(Ledger):
    """Mutant: the first token does not take the prefill part off."""

    def start_decode(self, request_id, now_s):
        kept = self.find(request_id)
        started = super().start_decode(request_id, now_s)
        if started:
            self.accounts[kept.target].prefilling[request_id] = kept
        return started


class ForgetsTheDecodePart(Ledger):
    """Mutant: a request that generates is not taken off at its end."""

    def release(self, request_id, now_s):
        entry = self.find(request_id)
        if entry is not None and entry.phase is Phase.DECODE:
            return None
        return super().release(request_id, now_s)


class ReckonsWithLaterLengths(Ledger):
    """Mutant: at its end a request takes off what answers of its length have left now, not what it was charged."""

    def release(self, request_id, now_s):
        entry = self.find(request_id)
        if entry is not None:
            account = self.accounts[entry.target]
            later = self.outputs.find_joint_tokens(entry.output_tokens, entry.max_output_tokens)
            account.joint_output_tokens += entry.joint_output_tokens - later
        return super().release(request_id, now_s)


class CountsNegative(Ledger):
    """Mutant: progress takes more off than is there."""

    def record_output(self, request_id, output_tokens):
        known = super().record_output(request_id, output_tokens)
        if known:
            account = self.accounts[self.find(request_id).target]
            account.remaining_output_tokens -= output_tokens
        return known


def drive(ledger_type):
    """One fixed run through every phase and every end, all invariants checked after each step."""
    machine = type("Driven", (PlacementMachine,), {"ledger_type": ledger_type})()
    machine.build("round_robin")

    def check():
        machine.the_ledger_holds_what_is_open_and_nothing_else()
        machine.every_rank_carries_its_own_requests_and_no_negative_load()
        machine.everything_kept_is_bounded()

    for n, name in enumerate(NAMES):
        machine.arrive(name, 1_000 * n, {}, "s", frozenset(), (1, 2), limit=(None, 60)[n % 2])
        check()
    machine.learn_other_lengths(3_000, 200)
    check()
    for name in NAMES[:4]:
        machine.show_first_token(name, None)
        check()
        machine.progress(name, 500)
        check()
    machine.learn_other_lengths(40, 200)
    check()
    for name, outcome in zip(NAMES, (Outcome.DONE, Outcome.ERROR, Outcome.CANCELLED), strict=False):
        for _ in range(2):
            machine.end(name, outcome, None, 500)
            check()
    machine.change_fleet({})
    check()
    machine.teardown()


def test_the_real_ledger_passes_the_fixed_run():
    drive(Ledger)


@pytest.mark.parametrize(
    "mutant",
    [
        LeavesLoadOfLostRanks,
        ReleasesTwice,
        KeepsPrefillAfterFirstToken,
        ForgetsTheDecodePart,
        CountsNegative,
        ReckonsWithLaterLengths,
    ],
)
def test_a_ledger_that_does_not_release_exactly_once_is_caught(mutant):
    with pytest.raises((AssertionError, KeyError)):
        drive(mutant)
