"""Placement's time only grows, whatever the clocks of its stimuli do."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.placement.clock import MAX_REPORT_STEP_S, MAX_STEP_S, PlacementClock


def test_it_follows_a_good_clock():
    clock = PlacementClock()
    assert [clock.advance(at_s) for at_s in (1_000.0, 1_000.5, 1_010.0)] == [1_000.0, 1_000.5, 1_010.0]
    assert clock.jumps == 0


def test_a_late_word_stands_still_and_a_clock_set_back_goes_on_from_there():
    clock = PlacementClock()
    clock.advance(1_000.0)
    assert clock.advance(999.9) == 1_000.0
    assert clock.advance(1_000.1) == pytest.approx(1_000.1)
    assert clock.jumps == 0
    assert clock.advance(10.0) == pytest.approx(1_000.1)
    assert clock.advance(12.0) == pytest.approx(1_002.1)
    assert clock.jumps == 1


def test_a_leap_counts_in_part():
    clock = PlacementClock()
    clock.advance(0.0)
    assert clock.advance(1e12) == MAX_STEP_S
    assert clock.advance(1e12 + 5.0) == MAX_STEP_S + 5.0


@pytest.mark.parametrize("at_s", [math.nan, math.inf, -math.inf])
def test_what_is_no_time_changes_nothing(at_s):
    clock = PlacementClock()
    clock.advance(5.0)
    assert clock.advance(at_s) == clock.advance_by_report(at_s) == 5.0
    assert clock.jumps == 2


def test_a_report_from_the_future_carries_time_on_a_little_and_time_waits_for_the_others():
    clock = PlacementClock()
    clock.advance(100.0)
    assert clock.advance_by_report(1e9) == 100.0 + MAX_REPORT_STEP_S
    assert clock.advance(101.0) == 100.0 + MAX_REPORT_STEP_S
    assert clock.advance(100.0 + MAX_REPORT_STEP_S + 1.0) == 100.0 + MAX_REPORT_STEP_S + 1.0


@given(st.lists(st.tuples(st.booleans(), st.floats(allow_nan=True)), max_size=30))
def test_it_never_goes_back(stimuli):
    clock = PlacementClock()
    last_s = None
    for is_report, at_s in stimuli:
        now_s = clock.advance_by_report(at_s) if is_report else clock.advance(at_s)
        assert math.isfinite(now_s)
        assert last_s is None or now_s >= last_s or clock._last_s is None
        last_s = now_s if clock._last_s is not None else None
