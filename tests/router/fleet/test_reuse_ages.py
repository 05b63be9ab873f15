"""How likely a token of some age is asked for again, from the pauses seen."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fleet.ages import BINS, HALVE_AT, ReuseAges, find_bin


def ask(ages, age_s):
    return ages.find_reuse_ratio(age_s, prior_ratio=0.5, prior_decay_s=100.0)


def test_before_anything_was_seen_the_prior_speaks():
    assert ask(ReuseAges(), 0.0) == pytest.approx(0.5)
    assert ask(ReuseAges(), 100.0) == pytest.approx(0.5 / math.e)


def test_sessions_that_always_come_back_within_a_minute_leave_nothing_worth_keeping_after_it():
    ages = ReuseAges()
    for _ in range(1_000):
        ages.record_stored()
        ages.record_reused(30.0)
    assert ask(ages, 2.0) > 0.9
    assert ask(ages, 200.0) < 0.5


def test_sessions_that_never_come_back_are_worth_nothing():
    ages = ReuseAges()
    for _ in range(2_000):
        ages.record_stored()
    assert ask(ages, 1.0) < 0.01


def test_long_pauses_make_old_tokens_worth_keeping():
    ages = ReuseAges()
    for _ in range(500):
        ages.record_stored()
        ages.record_reused(1_000.0)
    assert ask(ages, 300.0) > 0.9


def test_old_counts_fade_so_that_a_change_shows():
    ages = ReuseAges()
    for _ in range(int(HALVE_AT)):
        ages.record_stored()
        ages.record_reused(1_000.0)
    for _ in range(int(2 * HALVE_AT)):
        ages.record_stored()
    assert ask(ages, 300.0) < 0.4


def test_each_count_changes_the_answer_whatever_was_asked_before():
    ages = ReuseAges()
    first = ask(ages, 10.0)
    ages.record_stored()
    second = ask(ages, 10.0)
    ages.record_reused(60.0)
    third = ask(ages, 10.0)
    assert second < first < third
    assert ask(ages, 100.0) < third == ask(ages, 10.0)
    assert ages.find_reuse_ratio(10.0, prior_ratio=1.0, prior_decay_s=100.0) > third


@pytest.mark.parametrize(
    ("age_s", "place"), [(0.0, 0), (0.99, 0), (1.0, 1), (3.9, 2), (1e9, BINS - 1), (math.inf, BINS - 1), (math.nan, 0)]
)
def test_bins_double_from_one_second_on(age_s, place):
    assert find_bin(age_s) == place


@given(st.lists(st.floats(0, 1e9), max_size=50), st.integers(0, 50), st.floats(0, 1e6))
def test_the_ratio_is_a_probability(pauses, stored, age_s):
    ages = ReuseAges()
    for _ in range(stored):
        ages.record_stored()
    for pause_s in pauses:
        ages.record_reused(pause_s)
    assert 0.0 <= ask(ages, age_s) <= 1.0
