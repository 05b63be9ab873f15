"""Reservations are charged once, decay as they are done and leave nothing behind."""

import pytest

from router.placement.ledger import Ledger, RankTotals
from router.placement.reservation import Phase, Reservation
from wire.ids import RequestId, Target, WorkerId

RANK = Target(WorkerId("a"), 0)
OTHER = Target(WorkerId("a"), 1)


def reservation(
    name="r1", target=RANK, *, at_s=0.0, prefill_s=10.0, uncached=1_000, output=100, limit=None, origin="local"
):
    return Reservation(
        request_id=RequestId(name),
        target=target,
        origin=origin,
        reserved_at_s=at_s,
        prompt_tokens=4_000,
        uncached_tokens=uncached,
        prefill_s=prefill_s,
        remaining_prefill_s=prefill_s,
        expected_output_tokens=output,
        max_output_tokens=limit,
    )


@pytest.fixture
def ledger():
    made = Ledger()
    yield made
    made.check_invariants()


def test_an_empty_ledger_charges_nothing(ledger):
    assert ledger.totals(RANK, 5.0) == RankTotals()
    assert len(ledger) == 0
    assert ledger.find("r1") is None


def test_a_reservation_counts_at_once_and_only_on_its_rank(ledger):
    assert ledger.reserve(reservation())
    joint = ledger.outputs.find_joint_tokens(0)
    assert ledger.totals(RANK, 0.0) == RankTotals(
        waiting_s=10.0,
        waiting_tokens=1_000,
        waiting_requests=1,
        open_tokens=4_100,
        joint_output_tokens=joint,
        joint_context_tokens=4_000 * joint,
    )
    assert ledger.totals(OTHER, 0.0) == RankTotals()
    assert "r1" in ledger
    assert ledger.find("r1").phase is Phase.PREFILL


def test_seconds_ahead_shrink_with_the_clock_down_to_a_tenth(ledger):
    ledger.reserve(reservation())
    assert ledger.totals(RANK, 4.0).waiting_s == 6.0
    assert ledger.totals(RANK, 4.0).waiting_tokens == 600
    assert ledger.totals(RANK, 1_000.0).waiting_s == 1.0
    assert ledger.totals(RANK, 0.0).waiting_s == 10.0


def test_a_clock_that_goes_back_takes_nothing_off(ledger):
    ledger.reserve(reservation(at_s=10.0))
    assert ledger.totals(RANK, 3.0).waiting_s == 10.0
    ledger.reserve(reservation("r2", at_s=5.0))
    assert ledger.totals(RANK, 10.0).waiting_s == 20.0


def test_a_rank_works_on_one_prefill_at_a_time_in_order(ledger):
    ledger.reserve(reservation("r1", prefill_s=4.0))
    ledger.reserve(reservation("r2", prefill_s=6.0))
    ledger.reserve(reservation("r3", at_s=3.0, prefill_s=1.0))
    assert ledger.totals(RANK, 3.0).waiting_s == 8.0
    ledger.release("r1", 3.0)
    assert ledger.totals(RANK, 3.0).waiting_s == 7.0


def test_the_end_of_a_request_that_generates_leaves_the_seconds_ahead_as_they_are(ledger):
    ledger.reserve(reservation("generates"))
    ledger.start_decode("generates", 0.0)
    ledger.reserve(reservation("waits"))
    assert ledger.totals(RANK, 4.0).waiting_s == 6.0
    ledger.release("generates", 4.0)
    assert ledger.totals(RANK, 4.0).waiting_s == ledger.waiting_s(RANK, 4.0) == 6.0
    ledger.check_invariants()


def test_the_first_token_releases_the_prefill_part_and_starts_the_decode_part(ledger):
    ledger.reserve(reservation(output=100))
    assert ledger.start_decode("r1", 2.0)
    joint = ledger.outputs.find_joint_tokens(0)
    assert ledger.totals(RANK, 2.0) == RankTotals(
        decoding_requests=1,
        remaining_output_tokens=ledger.outputs.expected_tokens,
        context_tokens=4_000,
        open_tokens=4_100,
        joint_output_tokens=joint,
        joint_context_tokens=4_000 * joint,
    )
    assert ledger.find("r1").remaining_prefill_s == 0.0


def test_the_decode_part_is_what_answers_of_that_length_have_left(ledger):
    ledger.reserve(reservation(output=100))
    ledger.start_decode("r1", 0.0)
    assert ledger.record_output("r1", 30)
    totals = ledger.totals(RANK, 0.0)
    left, joint = ledger.outputs.find_remaining_tokens(30), ledger.outputs.find_joint_tokens(30)
    assert (totals.remaining_output_tokens, totals.context_tokens) == (left, 4_030)
    assert (totals.joint_output_tokens, totals.joint_context_tokens) == (joint, 4_030 * joint)
    assert ledger.record_output("r1", 10)
    assert ledger.totals(RANK, 0.0) == totals
    ledger.record_output("r1", 50_000)
    assert ledger.totals(RANK, 0.0).remaining_output_tokens == ledger.outputs.find_remaining_tokens(50_000)


def test_what_a_client_allows_is_the_most_that_is_left_and_one_token_always_is(ledger):
    ledger.reserve(reservation(limit=40))
    for output_tokens, left in ((0, 40), (30, 10), (40, 1), (500, 1)):
        ledger.record_output("r1", output_tokens)
        totals = ledger.totals(RANK, 0.0)
        assert totals.joint_output_tokens == left
        assert totals.joint_context_tokens == left * (4_000 + output_tokens)
    ledger.start_decode("r1", 1.0)
    assert ledger.totals(RANK, 1.0).remaining_output_tokens == 1


def test_a_request_is_reckoned_by_the_lengths_known_at_its_last_word(ledger):
    """Tables that are made anew leave what is charged as it is, until the request tells of more."""
    ledger.reserve(reservation("r1"))
    ledger.start_decode("r1", 0.0)
    before = ledger.totals(RANK, 0.0)
    for _ in range(1_000):
        ledger.outputs.record(20_000)
    assert ledger.totals(RANK, 0.0) == before
    ledger.check_invariants()
    ledger.record_output("r1", 8)
    after = ledger.totals(RANK, 0.0)
    assert after.remaining_output_tokens == ledger.outputs.find_remaining_tokens(8) > 10_000
    assert after.joint_output_tokens == ledger.outputs.find_joint_tokens(8) > 10_000
    ledger.release("r1", 1.0)
    assert ledger.totals(RANK, 1.0) == RankTotals()


def test_output_before_the_first_token_changes_the_joint_part_only(ledger):
    ledger.reserve(reservation())
    ledger.record_output("r1", 5)
    totals = ledger.totals(RANK, 0.0)
    assert (totals.remaining_output_tokens, totals.context_tokens, totals.waiting_requests) == (0, 0, 1)
    assert totals.joint_context_tokens == ledger.outputs.find_joint_tokens(5) * 4_005


def test_a_request_is_released_exactly_once(ledger):
    ledger.reserve(reservation())
    assert ledger.release("r1", 1.0).request_id == "r1"
    assert ledger.release("r1", 1.0) is None
    assert (ledger.reserved_total, ledger.released_total) == (1, 1)
    assert ledger.totals(RANK, 1.0) == RankTotals()


def test_what_comes_after_the_end_finds_nothing(ledger):
    ledger.reserve(reservation())
    ledger.release("r1", 0.0)
    assert not ledger.start_decode("r1", 1.0)
    assert not ledger.record_output("r1", 5)


def test_a_second_first_token_changes_nothing(ledger):
    ledger.reserve(reservation())
    ledger.start_decode("r1", 1.0)
    assert not ledger.start_decode("r1", 2.0)


def test_a_request_is_charged_once(ledger):
    assert ledger.reserve(reservation())
    assert not ledger.reserve(reservation(target=OTHER))
    assert ledger.totals(OTHER, 0.0) == RankTotals()
    assert ledger.reserved_total == 1


def test_a_lost_rank_gives_back_all_it_held(ledger):
    ledger.reserve(reservation("r1"))
    ledger.reserve(reservation("r2"))
    ledger.reserve(reservation("r3", OTHER))
    ledger.start_decode("r2", 1.0)
    assert {entry.request_id for entry in ledger.release_target(RANK, 2.0)} == {"r1", "r2"}
    assert ledger.release_target(RANK, 2.0) == ()
    assert ledger.open_requests() == ("r3",)


def test_reservations_of_several_routers_are_told_apart(ledger):
    ledger.reserve(reservation("r1", origin="left"))
    ledger.reserve(reservation("r2", origin="right"))
    assert ledger.open_requests("left") == ("r1",)
    assert ledger.open_requests() == ("r1", "r2")


def test_work_that_costs_no_time_keeps_its_tokens(ledger):
    ledger.reserve(reservation(prefill_s=0.0, uncached=7))
    totals = ledger.totals(RANK, 100.0)
    assert (totals.waiting_s, totals.waiting_tokens, totals.open_requests) == (0.0, 7, 1)


def test_broken_books_are_found():
    ledger = Ledger()
    ledger.reserve(reservation())
    ledger.released_total = 1
    with pytest.raises(AssertionError, match="0 reservations should be open, 1 are"):
        ledger.check_invariants()
    ledger.released_total = 0
    account = ledger.accounts[RANK]
    ledger.accounts[OTHER] = type(account)()
    with pytest.raises(AssertionError, match="a@1 has an account and nothing in it"):
        ledger.check_invariants()
    ledger.accounts[OTHER] = ledger.accounts.pop(RANK)
    with pytest.raises(AssertionError, match="charged for another rank's request"):
        ledger.check_invariants()
    ledger.accounts = {RANK: account}
    account.joint_context_tokens += 1
    with pytest.raises(AssertionError, match="joint_context_tokens is"):
        ledger.check_invariants()
    account.joint_context_tokens -= 1
    account.remaining_s = -1.0
    with pytest.raises(AssertionError, match="negative sum"):
        ledger.check_invariants()
    ledger.accounts = {}
    with pytest.raises(AssertionError, match="accounts hold"):
        ledger.check_invariants()
