"""Broken policies, absurd figures, jumping clocks, an empty fleet: placed or refused with reasons, nothing left."""

import math

import pytest

from router.config.policy import Coefficients, PolicyWeights
from router.fleet.rank import RankFacts
from router.placement.instructions import Place, RejectReason
from router.placement.placer import Placer
from router.placement.stimuli import FleetChanged, LoadReported, Outcome, RequestArrived, RequestEnded
from router.policy.base import Choice, build_table
from router.policy.cache_affinity import CacheAffinity
from wire.ids import RequestId, Target, WorkerId

MANY = tuple(Target(WorkerId(f"w{worker}"), rank) for worker in range(4) for rank in range(4))


class Raises:
    name = "raises"
    coefficients = Coefficients()

    def choose(self, query, ranks, seed):
        raise KeyError("no such thing")


class ChoosesOthers(Raises):
    name = "chooses_others"

    def choose(self, query, ranks, seed):
        table = build_table(query, ranks, [0.0] * len(ranks))
        return Choice(target=Target(WorkerId("elsewhere"), 0), costs=table)


class TakesRanksAway(Raises):
    name = "takes_ranks_away"

    def choose(self, query, ranks, seed):
        ranks.clear()


class BrokenTerm(CacheAffinity):
    name = "broken"

    def __init__(self):
        super().__init__(PolicyWeights(), Coefficients())

    def weigh(self, query, rank):
        raise ZeroDivisionError("broken")


def make(policy, count=16):
    placer = Placer(policy=policy, rng_seed=1)
    facts = tuple(RankFacts(target=target, url="http://x", models=("toy",)) for target in MANY[:count])
    placer.handle(FleetChanged(now_s=0.0, ranks=facts))
    return placer


def arrive(placer, name="r1", now_s=0.0, **more):
    given = {"model": "toy", "prompt_tokens": 1_000, **more}
    (instruction,) = placer.handle(RequestArrived(now_s=now_s, request_id=RequestId(name), **given))
    return instruction


def end_all(placer, now_s=9.0):
    for name in placer.ledger.open_requests():
        placer.handle(RequestEnded(now_s=now_s, request_id=name, outcome=Outcome.DONE))
    assert len(placer.ledger) == 0
    assert placer.ledger.reserved_total == placer.ledger.released_total
    placer.check_invariants()


@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("policy", [Raises(), ChoosesOthers(), TakesRanksAway(), BrokenTerm()])
def test_a_policy_that_fails_is_overruled_by_load_and_told(policy, count):
    placer = make(policy, count)
    placed = [arrive(placer, f"r{n}") for n in range(8)]
    assert all(isinstance(each, Place) for each in placed)
    assert len({each.target for each in placed}) == min(count, 8)
    assert placed[0].decision.reason.startswith(f"policy {policy.name} failed (")
    assert "and was overruled; fewest requests there: 0" in placed[0].decision.reason
    assert placer.ignored.failed_choices == 8
    end_all(placer)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308])
@pytest.mark.parametrize(
    "name",
    ["prefill_s_per_token", "attention_s_per_token_pair", "decode_step_s", "decode_s_per_request", "future_turns",
     "decode_s_per_full_cache", "decode_s_per_context_token", "prefill_step_s", "crowding_ratio", "working_set_factor",
     "reuse_decay_s", "predicted_credit_ratio", "reuse_probability"],
)  # fmt: skip
def test_a_coefficient_that_is_no_number_places_requests_all_the_same(name, value):
    costs = Coefficients().model_copy(update={name: value})
    placer = make(CacheAffinity(PolicyWeights(), costs))
    for target in MANY[:4]:
        placer.handle(
            LoadReported(now_s=0.0, target=target, running_requests=2, waiting_requests=1, capacity_tokens=10_000)
        )
    for n in range(12):
        placed = arrive(placer, f"r{n}", now_s=n * 1.0, session=f"s{n % 3}", prompt_tokens=9_000)
        assert isinstance(placed, Place)
        assert placed.decision.reason
    end_all(placer, 20.0)


@pytest.mark.parametrize("jump_s", [1e12, -1e12, math.nan, math.inf])
def test_a_clock_that_jumps_loses_no_release_and_no_home(world, jump_s):
    home = world.serve("r0", 100.0, session="s")
    world.arrive("r1", 101.0, session="s")
    world.arrive("r2", jump_s, session="s", overlaps={home: 900})
    world.first_token("r1", 102.0)
    world.end("r1", 103.0)
    world.end("r2", 104.0)
    assert len(world.placer.ledger) == 0
    assert world.placer.clock.jumps >= 1
    later = world.arrive("r3", 105.0, session="s", overlaps={home: 900})
    assert later.target == home or jump_s == 1e12
    assert all(math.isfinite(entry.total_s) for entry in later.decision.candidates)


def test_a_report_from_the_future_does_not_make_present_work_look_done(world, ranks):
    busy = world.arrive("r1", 100.0, prompt_tokens=5_000_000).target
    world.report(ranks[0], 1e9)
    waits = {entry.target: entry.terms["wait"] for entry in world.arrive("r2", 100.1).decision.candidates}
    assert waits[busy] > 60.0


def test_a_fleet_of_zero_refuses_each_request_with_its_reason(make_world, ranks):
    world = make_world()
    for n in range(3):
        refused = world.arrive(f"r{n}")
        assert refused.reason is RejectReason.NO_WORKER
        assert refused.decision.reason
    world.fleet(ranks)
    world.arrive("r9")
    world.fleet((), 1.0)
    assert world.arrive("r10", 1.0).reason is RejectReason.NO_WORKER
    assert len(world.placer.ledger) == 0
    world.end("r9", 2.0)
    assert world.placer.ignored.late == 1


def test_a_policy_changed_under_way_keeps_what_is_charged(world, ranks):
    first = world.arrive("r1", session="s", prompt_tokens=50_000)
    world.placer.change_policy(Raises())
    second = world.arrive("r2", 0.1)
    assert second.target != first.target
    world.placer.change_policy(CacheAffinity(PolicyWeights(), Coefficients()), shadow=Raises())
    third = world.arrive("r3", 0.2, session="s", prompt_tokens=51_000, overlaps={first.target: 50_000})
    assert third.decision.shadow.policy == "raises"
    for name in ("r1", "r2", "r3"):
        world.end(name, 9.0)
    assert len(world.placer.ledger) == 0
