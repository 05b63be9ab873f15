"""Measured over predicted seconds, learned slowly and bounded."""

import math

import pytest

from router.fleet.pace import Pace


def test_nothing_measured_is_as_predicted():
    assert Pace().ratio == 1.0


def test_steady_measurements_are_believed():
    pace = Pace()
    for _ in range(200):
        pace.record(predicted_s=1.0, measured_s=8.0)
    assert pace.ratio == pytest.approx(8.0, rel=0.01)


def test_one_outlier_moves_little_once_many_were_seen():
    pace = Pace()
    for _ in range(100):
        pace.record(predicted_s=1.0, measured_s=1.0)
    pace.record(predicted_s=1.0, measured_s=1e9)
    assert pace.ratio < 1.06


@pytest.mark.parametrize(("measured_s", "bound"), [(1e12, 64.0), (1e-12, 1 / 64)])
def test_the_ratio_is_bounded(measured_s, bound):
    pace = Pace()
    for _ in range(1_000):
        pace.record(predicted_s=1.0, measured_s=measured_s)
    assert pace.ratio == pytest.approx(bound)


@pytest.mark.parametrize(
    ("predicted_s", "measured_s"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, math.inf)]
)
def test_what_is_no_time_is_passed_over(predicted_s, measured_s):
    pace = Pace()
    pace.record(predicted_s=predicted_s, measured_s=measured_s)
    assert (pace.ratio, pace.measurements) == (1.0, 0)
