"""What rests on state inside one engine goes there or nowhere."""

import pytest

from router.placement.instructions import Place, RejectReason
from router.placement.pins import Pins
from router.placement.stimuli import FleetChanged, RequestArrived, StateDropped, StateKept, StateLost
from wire.ids import RequestId, Target, WorkerId

A, B = (Target(WorkerId(name), 0) for name in "ab")


@pytest.fixture
def pins():
    made = Pins(idle_ttl_s=60.0, max_pins=2)
    yield made
    made.check_invariants()


def test_a_name_is_found_until_nobody_used_it_for_too_long(pins):
    pins.store("resp_1", A, 0.0)
    assert pins.find("resp_1", 60.0).target == A
    assert pins.find("resp_1", 120.0).target == A
    assert pins.find("resp_1", 181.0) is None
    pins.expire(181.0)
    assert len(pins) == 0


def test_the_longest_unused_name_goes_when_there_are_too_many(pins):
    for n in range(3):
        pins.store(f"resp_{n}", A, float(n))
    assert pins.find("resp_0", 3.0) is None
    assert pins.find("resp_2", 3.0).target == A


def test_a_lost_rank_leaves_a_name_that_is_known_to_be_lost(pins):
    pins.store("resp_1", A, 0.0)
    pins.forget_targets([B])
    assert not pins.find("resp_1", 1.0).is_lost
    pins.forget_targets([A])
    assert pins.find("resp_1", 1.0).is_lost
    pins.store("resp_1", B, 2.0)
    assert not pins.find("resp_1", 2.0).is_lost


@pytest.fixture
def pinned(world, ranks):
    world.placer.handle(StateKept(now_s=0.0, name="resp_1", target=ranks[2]))
    return world


@pytest.mark.parametrize("policy", ["cache_affinity", "round_robin", "session_hash"])
def test_a_pinned_request_goes_to_its_rank_whatever_waits_there(make_world, ranks, policy):
    world = make_world(policy)
    world.fleet(ranks)
    world.placer.handle(StateKept(now_s=0.0, name="resp_1", target=ranks[2]))
    world.report(ranks[2], waiting=50, waiting_tokens=5_000_000)
    for n in range(4):
        placed = world.arrive(f"r{n}", pin="resp_1", overlaps={ranks[0]: 900})
        assert placed.target == ranks[2]
        assert placed.decision.reason == f"{ranks[2]} has the state that it rests on; it can go nowhere else"


def test_a_pin_whose_rank_is_gone_is_refused_and_stays_refused_when_the_rank_returns_empty(pinned, ranks):
    pinned.fleet([rank for rank in ranks if rank != ranks[2]], 1.0)
    refused = pinned.arrive("r1", 1.0, pin="resp_1")
    assert refused.reason is RejectReason.LOST_STATE
    assert "gone" in refused.decision.reason
    pinned.fleet(ranks, 2.0)
    assert pinned.arrive("r2", 2.0, pin="resp_1").reason is RejectReason.LOST_STATE
    assert isinstance(pinned.arrive("r3", 2.0), Place)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"healthy": False}, RejectReason.PINNED_ELSEWHERE),
        ({"draining": True}, RejectReason.PINNED_DRAINING),
        ({"draining": True, "healthy": False}, RejectReason.PINNED_DRAINING),
    ],
)
def test_a_pin_whose_rank_takes_nothing_now_is_refused_for_now(pinned, ranks, facts, state, reason):
    changed = tuple(facts(rank, **(state if rank == ranks[2] else {})) for rank in ranks)
    pinned.placer.handle(FleetChanged(now_s=1.0, ranks=changed))
    assert pinned.arrive("r1", 1.0, pin="resp_1").reason is reason
    pinned.fleet(ranks, 2.0)
    assert pinned.arrive("r2", 2.0, pin="resp_1").target == ranks[2]


def test_a_pin_that_was_tried_is_never_moved(pinned, ranks):
    refused = pinned.arrive("r1", pin="resp_1", excluded=frozenset({ranks[2]}))
    assert refused.reason is RejectReason.PINNED_ELSEWHERE


def test_state_that_nobody_has_heard_of_is_refused_unless_there_is_one_rank_only(pinned, ranks):
    assert pinned.arrive("r1", pin="resp_9").reason is RejectReason.UNKNOWN_STATE
    pinned.fleet(ranks[:1], 1.0)
    assert pinned.arrive("r2", 1.0, pin="resp_9").target == ranks[0]


def test_state_that_was_dropped_is_unknown(pinned):
    pinned.placer.handle(StateDropped(now_s=1.0, name="resp_1"))
    assert pinned.arrive("r1", 1.0, pin="resp_1").reason is RejectReason.UNKNOWN_STATE


def test_looking_a_name_up_does_not_keep_it(pins):
    pins.store("resp_1", A, 0.0)
    assert pins.look_up("resp_1", 60.0).target == A
    assert pins.find("resp_1", 61.0) is None


def test_a_dry_run_does_not_keep_a_name_that_nobody_uses(make_world, ranks):
    world = make_world()
    world.fleet(ranks)
    world.placer.handle(StateKept(now_s=0.0, name="resp_1", target=ranks[2]))
    before = world.placer.pins.look_up("resp_1", 1.0).last_used_s
    arrival = RequestArrived(now_s=9.0, request_id=RequestId("r1"), model=None, prompt_tokens=100, pin="resp_1")
    assert world.placer.explain(arrival).target == ranks[2]
    assert world.placer.pins.look_up("resp_1", 9.0).last_used_s == before


def test_a_worker_whose_process_was_replaced_has_lost_what_it_kept_and_nothing_else(pinned, ranks):
    others = [rank for rank in ranks if rank.worker != ranks[2].worker]
    pinned.placer.handle(StateKept(now_s=0.0, name="resp_2", target=others[0]))
    pinned.placer.handle(StateLost(now_s=1.0, worker=ranks[2].worker))
    assert pinned.arrive("r1", 1.0, pin="resp_1").reason is RejectReason.LOST_STATE
    assert pinned.arrive("r2", 1.0, pin="resp_2").target == others[0]
