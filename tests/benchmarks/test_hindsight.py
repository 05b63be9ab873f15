"""Plans made in hindsight are played as written, on traces that differ as little as they say."""

import math
from array import array

import pytest

from benchmarks.anchors import Point
from benchmarks.hindsight import Played, change, judge
from simulator.fleet.models import FleetPlan
from simulator.fleet.run import simulate
from simulator.graph.request import BlockRequest, BlockTrace, Trigger, Wait

POINT = Point("d8", 8, 150, 11_573, 9.0, "default", 0.86, 24.0, 300.0, 1.2, 584.0, 1.1)


def make_trace():
    first = [
        BlockRequest(request_id=f"s{n}", session=f"s{n}", blocks=array("I", range(100 * n, 100 * n + 9)),
                     prompt_tokens=600, output_tokens=20, not_before_s=10.0 * n)
        for n in range(3)
    ]  # fmt: skip
    second = [
        BlockRequest(request_id=f"t{n}", session=f"s{n}", blocks=array("I", range(100 * n, 100 * n + 9)),
                     prompt_tokens=600, output_tokens=20, waits=(Wait(n, Trigger.COMPLETION, 2.0),))
        for n in range(3)
    ]  # fmt: skip
    return BlockTrace(64, (*first, *second))


def test_a_plan_is_played_as_written():
    trace, fleet = make_trace(), FleetPlan(workers=3, cache_blocks=64)
    kept = simulate(trace, fleet, Played(trace, "012012"), name="kept")
    moved = simulate(trace, fleet, Played(trace, "012120"), name="moved")
    crowded = simulate(trace, fleet, Played(trace, "111111"), name="crowded")
    assert kept.reuse_ratio > 0.4 > moved.reuse_ratio == 0.0
    assert (kept.busiest_share, crowded.busiest_share) == (1.0, 3.0)


def test_a_plan_for_another_trace_is_refused():
    with pytest.raises(ValueError, match="a plan for 3 requests, a trace of 6"):
        Played(make_trace(), "012")


def test_a_trace_is_changed_by_no_more_than_it_says():
    trace = make_trace()
    assert change(trace, 0.0, 0.0, 1) == trace
    moved = change(trace, 1.0, 0.0, 1)
    shifts_s = [
        after.not_before_s - before.not_before_s for after, before in zip(moved.requests, trace.requests, strict=True)
    ]
    assert all(abs(shift_s) <= 1.0 for shift_s in shifts_s)
    assert len(set(shifts_s[:3])) > 1
    assert not any(shifts_s[3:])
    paused = change(trace, 0.0, 0.05, 1)
    logs = [math.log(request.waits[0].pause_s / 2.0) for request in paused.requests[3:]]
    assert all(0 < abs(log) < 0.3 for log in logs)
    assert change(trace, 1.0, 0.05, 1) == change(trace, 1.0, 0.05, 1) != change(trace, 1.0, 0.05, 2)


@pytest.mark.parametrize(
    ("ttft_ms", "e2e_ms", "keeps"), [(13.9, 584.0, True), (14.0, 500.0, False), (9.0, 584.1, False)]
)
def test_both_bounds_count(ttft_ms, e2e_ms, keeps):
    rows = [
        {"speed": 9.0, "policy": "session_hash", "ttft_ms": 14.0, "e2e_ms": 618.0},
        {"speed": 9.0, "policy": "hindsight", "ttft_ms": ttft_ms, "e2e_ms": e2e_ms},
    ]
    assert [row["keeps_both"] for row in judge(rows, [POINT])] == [False, keeps]
