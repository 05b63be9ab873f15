"""A rank's memory of what it was given fades."""

import math

import pytest

from router.fleet.recent import RecentShare, RecentWork


def test_a_rank_that_was_given_nothing_remembers_nothing():
    assert RecentWork(memory_s=60.0).share(5.0) == RecentShare(0.0, 0.0, 0.0, 0.0)


def test_work_of_late_becomes_shares_averages_and_rates():
    work = RecentWork(memory_s=60.0)
    work.record(work_s=4.0, new_tokens=600, now_s=0.0)
    work.record(work_s=2.0, new_tokens=600, now_s=0.0)
    share = work.share(0.0)
    assert share.busy_ratio == pytest.approx(0.1)
    assert share.request_work_s == pytest.approx(3.0)
    assert share.fill_tokens_per_s == pytest.approx(20.0)
    assert work.filled_tokens == 1_200


def test_memory_fades_to_a_third_in_its_time_and_the_average_stays():
    work = RecentWork(memory_s=60.0)
    work.record(work_s=6.0, new_tokens=600, now_s=0.0)
    share = work.share(60.0)
    assert share.busy_ratio == pytest.approx(0.1 / math.e)
    assert share.fill_tokens_per_s == pytest.approx(10.0 / math.e)
    assert share.request_work_s == 6.0
    work.record(work_s=6.0, new_tokens=600, now_s=60.0)
    assert work.share(60.0).busy_ratio == pytest.approx(0.1 + 0.1 / math.e)


def test_a_rank_is_busy_at_most_all_the_time():
    work = RecentWork(memory_s=60.0)
    work.record(work_s=1e6, new_tokens=0, now_s=0.0)
    assert work.share(0.0).busy_ratio == 1.0


def test_a_clock_that_goes_back_changes_nothing():
    work = RecentWork(memory_s=60.0)
    work.record(work_s=3.0, new_tokens=0, now_s=100.0)
    work.record(work_s=3.0, new_tokens=0, now_s=50.0)
    assert work.share(100.0) == work.share(0.0) == RecentShare(6.0, 0.1, 3.0, 0.0)


def test_a_memory_faded_away_is_no_work():
    work = RecentWork(memory_s=1.0)
    work.record(work_s=4.0, new_tokens=600, now_s=0.0)
    assert work.share(1e6).busy_ratio == 0.0
    work.record(work_s=2.0, new_tokens=0, now_s=1e6)
    assert work.share(1e6).request_work_s == 2.0
