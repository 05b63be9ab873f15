"""A rank's memory of what it was given fades."""

import math

import pytest

from router.fleet.recent import RecentSum, RecentWork


def test_a_sum_fades_to_a_third_in_its_memory():
    recent = RecentSum(memory_s=10.0)
    assert recent.value(5.0) == 0.0
    recent.add(3.0, 0.0)
    assert recent.value(0.0) == 3.0
    assert recent.value(10.0) == pytest.approx(3.0 / math.e)
    recent.add(1.0, 10.0)
    assert recent.value(10.0) == pytest.approx(1.0 + 3.0 / math.e)


def test_a_clock_that_goes_back_changes_nothing():
    recent = RecentSum(memory_s=10.0)
    recent.add(1.0, 100.0)
    recent.add(1.0, 50.0)
    assert recent.value(100.0) == 2.0
    assert recent.value(0.0) == 2.0


def test_work_of_late_becomes_shares_averages_and_rates():
    work = RecentWork(memory_s=60.0)
    assert (work.busy_ratio(0.0), work.request_work_s(0.0), work.fill_tokens_per_s(0.0)) == (0.0, 0.0, 0.0)
    work.record(work_s=4.0, new_tokens=600, now_s=0.0)
    work.record(work_s=2.0, new_tokens=600, now_s=0.0)
    assert work.busy_ratio(0.0) == pytest.approx(0.1)
    assert work.request_work_s(0.0) == pytest.approx(3.0)
    assert work.request_work_s(30.0) == pytest.approx(3.0)
    assert work.fill_tokens_per_s(0.0) == pytest.approx(20.0)
    assert work.filled_tokens == 1_200
    work.record(work_s=1_000.0, new_tokens=0, now_s=0.0)
    assert work.busy_ratio(0.0) == 1.0


def test_a_memory_faded_away_is_no_work():
    work = RecentWork(memory_s=1.0)
    work.record(work_s=4.0, new_tokens=600, now_s=0.0)
    assert work.request_work_s(1e6) == 0.0
