"""A rank that fails gets no requests, whatever it holds and whichever policy acts; one that is full, none while
another can take them.
"""

import pytest

from router.config.policy import PolicyName
from router.fleet.breaker import BreakerSettings, BreakerState, Verdict
from router.placement.instructions import Reject, RejectReason
from router.placement.stimuli import FleetChanged, Outcome, StateKept, TargetJudged, WorkerProbed
from wire.ids import Target, WorkerId

SETTINGS = BreakerSettings()
HELD = 900


def workers(count):
    return [Target(WorkerId(f"w{number}"), 0) for number in range(count)]


def judge(world, target, verdict=Verdict.FAILED, now_s=0.0, times=1, **more):
    for _ in range(times):
        world.placer.handle(TargetJudged(now_s=now_s, target=target, verdict=verdict, **more))


def break_rank(world, target, now_s=0.0):
    judge(world, target, now_s=now_s, times=SETTINGS.failures)


def test_D12_a_rank_that_holds_the_prompt_and_fails_is_tried_no_more_than_a_few_times(make_world):
    world = make_world()
    failing, *others = workers(4)
    world.fleet([failing, *others])
    tried = 0
    for number in range(50):
        now_s = number * 0.05
        name = f"r{number}"
        target = world.arrive(name, now_s, session="s", overlaps={failing: HELD}).target
        if target == failing:
            tried += 1
            judge(world, failing, now_s=now_s)
            world.end(name, now_s, outcome=Outcome.WORKER_LOST)
        else:
            world.first_token(name, now_s)
            world.end(name, now_s)
    assert 0 < tried <= SETTINGS.failures


def test_a_rank_that_failed_twice_in_a_row_earns_no_credit_though_it_may_be_chosen(make_world):
    world = make_world()
    failing, other = workers(2)
    world.fleet([failing, other])
    assert world.serve("r0", overlaps={failing: HELD}) == failing
    judge(world, failing)
    assert world.serve("r1", overlaps={failing: HELD}) == failing
    judge(world, failing)
    decision = world.arrive("r2", overlaps={failing: HELD}).decision
    assert {each.overlap_tokens for each in decision.candidates} == {0}
    judge(world, failing, Verdict.GOOD)
    assert world.serve("r3", overlaps={failing: HELD}) == failing


@pytest.mark.parametrize(("held", "told"), [(HELD, HELD), (0, 0), (5_000, 999)])
def test_what_lies_on_a_rank_that_fails_is_what_its_answer_is_compared_with(make_world, held, told):
    world = make_world()
    (failing,) = workers(1)
    world.fleet([failing])
    judge(world, failing, times=2)
    placed = world.arrive("r0", overlaps={failing: held})
    assert (placed.target, placed.decision.predicted_cached_tokens) == (failing, told)


def test_a_failing_home_is_no_home_and_the_decision_says_so(make_world):
    world = make_world()
    targets = workers(2)
    world.fleet(targets)
    home = world.serve("r0", session="s")
    judge(world, home, times=2)
    decision = world.arrive("r1", session="s").decision
    assert "requests fail on home" in decision.reason


@pytest.mark.parametrize("policy", [name.value for name in PolicyName])
def test_B12_no_policy_chooses_a_rank_behind_an_open_breaker_and_it_comes_back(make_world, policy):
    world = make_world(policy)
    targets = workers(3)
    world.fleet(targets)
    out = world.serve("r0", session="s")
    break_rank(world, out)
    chosen = {world.serve(f"out{number}", 0.1 * number, session="s", overlaps={out: HELD}) for number in range(12)}
    assert out not in chosen
    world.placer.handle(WorkerProbed(now_s=SETTINGS.open_s, worker=out.worker))
    others = frozenset(targets) - {out}
    assert world.serve("back", SETTINGS.open_s, excluded=others) == out


def test_a_request_pinned_to_a_rank_behind_an_open_breaker_is_refused_and_never_moved(make_world):
    world = make_world()
    failing, other = workers(2)
    world.fleet([failing, other])
    world.placer.handle(StateKept(now_s=0.0, name="response:x", target=failing))
    break_rank(world, failing)
    refused = world.arrive("r0", pin="response:x")
    assert isinstance(refused, Reject)
    assert refused.reason is RejectReason.PINNED_ELSEWHERE


def test_where_every_rank_fails_the_refusal_says_that_none_is_healthy(make_world):
    world = make_world()
    targets = workers(2)
    world.fleet(targets)
    for target in targets:
        break_rank(world, target)
    assert world.arrive("r0").reason is RejectReason.ALL_UNHEALTHY


def test_D11_without_any_traffic_a_good_probe_brings_a_rank_back_after_the_time(make_world):
    world = make_world()
    (only,) = workers(1)
    world.fleet([only])
    break_rank(world, only)
    world.placer.handle(WorkerProbed(now_s=1.0, worker=only.worker))
    assert isinstance(world.arrive("early", 1.0), Reject)
    world.placer.handle(WorkerProbed(now_s=SETTINGS.open_s, worker=only.worker))
    assert world.placer.breakers.find_states(SETTINGS.open_s)[only] is BreakerState.CLOSED
    assert world.serve("r", SETTINGS.open_s) == only


def test_a_half_open_rank_gets_one_request_at_a_time(make_world):
    world = make_world()
    (only,) = workers(1)
    world.fleet([only])
    break_rank(world, only)
    now_s = SETTINGS.open_s
    assert world.arrive("trial", now_s).target == only
    assert world.arrive("second", now_s).reason is RejectReason.ALL_UNHEALTHY
    world.end("trial", now_s, outcome=Outcome.CANCELLED)
    assert world.arrive("third", now_s).target == only
    judge(world, only, Verdict.GOOD, now_s)
    assert world.arrive("fourth", now_s).target == only


def test_D02_a_full_rank_is_avoided_while_another_is_there_and_used_where_none_is(make_world):
    world = make_world()
    full, other = workers(2)
    world.fleet([full, other])
    judge(world, full, Verdict.FULL, times=10, retry_after_s=2.0)
    assert {world.serve(f"r{number}", overlaps={full: HELD}) for number in range(5)} == {other}
    assert world.serve("alone", excluded=frozenset({other})) == full
    assert world.serve("later", 2.0, overlaps={full: HELD}) == full


def test_D02_a_single_full_worker_gets_the_next_request_at_once(make_world):
    world = make_world()
    (only,) = workers(1)
    world.fleet([only])
    judge(world, only, Verdict.FULL, times=10)
    assert world.serve("next", 0.1) == only


def test_a_rank_that_is_lost_and_comes_back_is_none_the_better_for_it(make_world, facts):
    world = make_world()
    failing, other = workers(2)
    world.fleet([failing, other])
    break_rank(world, failing)
    world.fleet([other], 1.0)
    world.fleet([failing, other], 1.0)
    assert {world.serve(f"r{number}", 1.0) for number in range(8)} == {other}
    world.placer.handle(FleetChanged(now_s=2.0, ranks=(facts(other),)))
    world.serve("late", 100.0)
    assert not world.placer.breakers.knows(failing)


def test_a_verdict_on_a_rank_that_is_not_of_the_fleet_is_counted_and_forgotten(make_world):
    world = make_world()
    world.fleet(workers(1))
    judge(world, Target(WorkerId("stranger"), 0), times=9)
    assert world.placer.ignored.unknown_targets == 9
    assert not world.placer.breakers
