"""Routers that share a fleet: what each placed counts for all, an old word never does."""

import pytest

from router.placement.homes import Homes
from router.placement.ledger import Ledger
from router.placement.origins import PARTIAL_TTL_S, HomeRecord, LedgerPartial, RankPartial, Stamp
from router.placement.reservation import Reservation
from router.placement.stimuli import HomeTold, PartialTold
from wire.ids import Target, WorkerId

A, B = (Target(WorkerId(name), 0) for name in "ab")


def reserve(ledger, name="r1", target=A, now_s=0.0):
    ledger.reserve(
        Reservation(
            request_id=name,
            target=target,
            origin="here",
            reserved_at_s=now_s,
            prompt_tokens=4_000,
            uncached_tokens=1_000,
            prefill_s=10.0,
            remaining_prefill_s=10.0,
            expected_output_tokens=100,
        )
    )


def partial(token=1, sequence=1, *ranks, origin="there"):
    return LedgerPartial(origin=origin, stamp=Stamp(token, sequence), ranks=ranks)


WAITING = RankPartial(
    target=A,
    waiting_s=4.0,
    waiting_tokens=400,
    waiting_requests=1,
    open_tokens=900,
    joint_output_tokens=70,
    joint_context_tokens=60_000,
)


def test_work_of_another_router_counts_beside_the_own_and_is_done_with_time():
    ledger = Ledger()
    reserve(ledger)
    assert ledger.accept(partial(1, 1, WAITING), 0.0) == {A}
    totals = ledger.totals(A, 1.0)
    assert totals.waiting_s == pytest.approx(9.0 + 3.0)
    assert (totals.waiting_requests, totals.open_tokens) == (2, 5_000)
    joint = ledger.outputs.find_joint_tokens(0)
    assert (totals.joint_output_tokens, totals.joint_context_tokens) == (joint + 70, 4_000 * joint + 60_000)
    assert ledger.totals(A, 9.0).waiting_s == pytest.approx(1.0)
    assert len(ledger) == 1
    ledger.check_invariants()


def test_a_newer_word_replaces_the_older_and_an_old_one_is_passed_over():
    ledger = Ledger()
    ledger.accept(partial(1, 5, WAITING), 0.0)
    assert ledger.accept(partial(1, 5), 0.0) is None
    assert ledger.accept(partial(1, 4), 0.0) is None
    assert ledger.totals(A, 0.0).waiting_requests == 1
    assert ledger.accept(partial(1, 6), 0.0) == {A}
    assert ledger.totals(A, 0.0).waiting_requests == 0


def test_a_router_that_started_anew_fences_its_former_life_off():
    ledger = Ledger()
    ledger.accept(partial(2, 1), 0.0)
    assert ledger.accept(partial(1, 99, WAITING), 0.0) is None
    assert ledger.totals(A, 0.0).waiting_requests == 0


def test_a_router_that_fell_silent_is_forgotten():
    ledger = Ledger()
    ledger.accept(partial(1, 1, WAITING), 0.0)
    assert ledger.expire(PARTIAL_TTL_S) == frozenset()
    assert ledger.expire(PARTIAL_TTL_S + 0.1) == {A}
    assert ledger.totals(A, 40.0).waiting_s == 0.0
    assert not ledger.words


def test_a_home_told_by_another_router_is_taken_unless_this_one_knows_of_a_later_use():
    homes = Homes(idle_ttl_s=60.0, max_homes=9)
    record = HomeRecord(origin="there", stamp=Stamp(1, 1), session="s", target=A, age_s=10.0, tokens=500)
    assert homes.accept(record, 5.0)
    assert homes.find("s", 5.0) == A
    assert not homes.accept(record, 5.0)
    homes.settle("s", B, 20.0)
    older = HomeRecord(origin="there", stamp=Stamp(1, 2), session="s", target=A, age_s=30.0, tokens=500)
    assert not homes.accept(older, 21.0)
    assert homes.find("s", 21.0) == B


def test_placement_keeps_away_from_what_another_router_just_loaded(world, ranks):
    loaded = tuple(RankPartial(target=rank, waiting_s=9.0, waiting_requests=3) for rank in ranks[:3])
    world.placer.handle(PartialTold(now_s=0.0, partial=partial(1, 1, *loaded)))
    assert {world.arrive(f"r{n}", prompt_tokens=2_000).target for n in range(6)} == {ranks[3]}
    world.placer.handle(PartialTold(now_s=0.0, partial=partial(1, 2)))
    assert world.arrive("next", prompt_tokens=2_000).target != ranks[3]


def test_a_session_goes_to_the_home_that_another_router_told(world, ranks):
    record = HomeRecord(origin="there", stamp=Stamp(1, 1), session="s\0toy", target=ranks[1], tokens=20_000)
    world.placer.handle(HomeTold(now_s=0.0, record=record))
    assert world.home("s") == ranks[1]
    assert world.arrive("r1", session="s", prompt_tokens=20_500, overlaps={ranks[1]: 20_000}).target == ranks[1]
