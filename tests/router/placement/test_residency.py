"""What is being prefilled now is seen by siblings, for a short time, and is bounded."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.placement.residency import PredictedResidency, count_shared_blocks
from wire.ids import Target, WorkerId

A = Target(WorkerId("a"), 0)
B = Target(WorkerId("b"), 0)


@pytest.fixture
def residency():
    made = PredictedResidency(ttl_s=10.0, grace_s=1.0, max_predictions=3)
    yield made
    made.check_invariants()


@settings(deadline=None)
@given(shared=st.integers(0, 40), left=st.integers(0, 20), right=st.integers(0, 20))
def test_shared_blocks_are_counted_to_the_first_difference(shared, left, right):
    head = list(range(shared))
    one = head + [1_000 + n for n in range(left)]
    other = head + [2_000 + n for n in range(right)]
    assert count_shared_blocks(one, other) == shared


def test_a_sibling_sees_the_head_it_shares(residency):
    residency.store("r1", A, (1, 2, 3), 16, 0.0)
    assert residency.find((1, 2, 9), 16, 5.0) == {A: 32}
    assert residency.find((7, 2, 3), 16, 5.0) == {}
    assert residency.find((), 16, 5.0) == {}


def test_the_longest_head_of_a_rank_counts(residency):
    residency.store("r1", A, (1, 2, 3), 16, 0.0)
    residency.store("r2", A, (1, 5), 16, 0.0)
    residency.store("r3", B, (1,), 16, 0.0)
    assert residency.find((1, 2, 4), 16, 0.0) == {A: 32, B: 16}


def test_those_that_share_most_are_compared_to_the_block_and_others_to_the_power_of_two_below():
    residency = PredictedResidency(ttl_s=10.0, grace_s=1.0, max_predictions=100)
    head = tuple(range(100))
    residency.store("far", B, (*head[:50], 999), 16, 0.0)
    residency.store("near", A, (*head, 1_000), 16, 0.0)
    assert residency.find((*head, 2_000), 16, 0.0) == {A: 1_600, B: 32 * 16}
    residency.check_invariants()


def test_block_sizes_are_not_mixed(residency):
    residency.store("r1", A, (1, 2), 16, 0.0)
    assert residency.find((1, 2), 64, 0.0) == {}


def test_a_prompt_without_blocks_predicts_nothing(residency):
    residency.store("r1", A, (), 16, 0.0)
    residency.store("r2", A, (1,), 0, 0.0)
    assert len(residency) == 0


def test_a_prediction_ends_with_its_time(residency):
    residency.store("r1", A, (1,), 16, 0.0)
    assert residency.find((1,), 16, 10.0) == {A: 16}
    assert residency.find((1,), 16, 10.1) == {}
    assert len(residency) == 0
    assert residency.expire(10.1) == 0


def test_after_the_first_token_a_prediction_stays_for_a_grace(residency):
    residency.store("r1", A, (1,), 16, 0.0)
    residency.confirm("r1", 2.0)
    residency.confirm("unknown", 2.0)
    assert residency.find((1,), 16, 3.0) == {A: 16}
    assert residency.find((1,), 16, 3.1) == {}


happenings = st.lists(
    st.tuples(st.sampled_from(("store", "confirm", "withdraw", "look")), st.integers(0, 5), st.floats(0.0, 6.0)),
    max_size=40,
)


@settings(deadline=None)
@given(happened=happenings, grace_s=st.sampled_from((0.0, 1.0, 20.0)))
def test_predictions_end_when_each_by_itself_would(happened, grace_s):
    residency = PredictedResidency(ttl_s=10.0, grace_s=grace_s, max_predictions=4)
    now_s, ends_s = 0.0, {}
    for what, number, later_s in happened:
        now_s += later_s
        if what == "store":
            residency.store(f"r{number}", A, (1, 2 + number, 9), 16 + number, now_s)
            ends_s.pop(number, None)
            ends_s[number] = now_s + 10.0
            ends_s = dict(list(ends_s.items())[-4:])
        elif what == "confirm":
            residency.confirm(f"r{number}", now_s)
            if number in ends_s:
                ends_s[number] = min(ends_s[number], now_s + grace_s)
        elif what == "withdraw":
            residency.withdraw(f"r{number}")
            ends_s.pop(number, None)
        else:
            residency.expire(now_s)
            ends_s = {name: end_s for name, end_s in ends_s.items() if end_s >= now_s}
            for name in range(6):
                found = residency.find((1, 2 + name), 16 + name, now_s)
                assert found == ({A: 2 * (16 + name)} if name in ends_s else {})
            assert len(residency) == len(ends_s)
        residency.check_invariants()


def test_withdrawn_predictions_are_gone(residency):
    residency.store("r1", A, (1, 2), 16, 0.0)
    residency.store("r2", B, (1, 3), 16, 0.0)
    residency.withdraw("r1")
    residency.withdraw("r1")
    assert residency.find((1, 2), 16, 0.0) == {B: 16}


def test_a_retry_replaces_its_prediction(residency):
    residency.store("r1", A, (1, 2), 16, 0.0)
    residency.store("r1", B, (1, 2), 16, 1.0)
    assert residency.find((1, 2), 16, 1.0) == {B: 32}


def test_predictions_on_lost_ranks_go(residency):
    residency.store("r1", A, (1,), 16, 0.0)
    residency.store("r2", B, (1,), 16, 0.0)
    residency.forget_targets([A])
    assert residency.find((1,), 16, 0.0) == {B: 16}


def test_the_oldest_prediction_goes_when_there_are_too_many(residency):
    for n in range(5):
        residency.store(f"r{n}", A, (n,), 16, 0.0)
    assert len(residency) == 3
    assert residency.find((1,), 16, 0.0) == {}
    assert residency.find((2,), 16, 0.0) == {A: 16}


def test_broken_books_are_found():
    residency = PredictedResidency(ttl_s=10.0, grace_s=1.0, max_predictions=3)
    residency.store("r1", A, (1,), 16, 0.0)
    residency._max_predictions = 0
    with pytest.raises(AssertionError, match="1 predictions, 0 allowed"):
        residency.check_invariants()
    residency._places = {}
    with pytest.raises(AssertionError, match="by place"):
        residency.check_invariants()
