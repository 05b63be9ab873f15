"""The published figures are read from their page, and ours are held against them."""

import pytest

from benchmarks.anchors import Point, compare, read_points
from simulator.fleet.report import RunReport, Spread

PAGE = """
| workers | cache (blocks) | speed | mode | reuse | TTFT mean / p50 / p90 / p99 | queue | TPOT | e2e | busy | share |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| 8 | 40% (3086) | 4.25 | round_robin | 0.070 | 3911 / 453 / 9 / 46701 | 0 | 6.49 | 6835 / 2 / 5 | 0.72 | 1.00 / 1.00 |
| 16 | 80% (6959) | 9 | default | 0.681 0.679-0.683 | 56 / 6 / 9 / 296 | 0 | 1.60 | 788 / 3 / 6 | 0.33 | 1.22 / 0.78 |
| 16 | 80% (6959) | 9 | default | 0.999 | 1 / 6 / 9 / 296 | 0 | 1.60 | 788 / 3 / 6 | 0.33 | 1.22 / 0.78 |
| 16 | 80% (6959) | 9 | no_active | 0.763 | 44 / 5 / 9 / 294 | 1 | 1.85 | 886 / 4 / 7 | 0.30 | 1.58 / 0.54 |
| 4P+4D | 80% (6172) | 4.25 | default | 0.423 | 217 / 1 / 5 / 699 | 2 | 4.94 | 2472 / 1 / 2 | 0.89 | 1.06 / 0.96 |
"""
POINT = Point("d16", 16, 80, 6_959, 9.0, "default", 0.681, 56.0, 296.0, 1.6, 788.0, 1.22)


def report(*, reuse_ratio, ttft_ms):
    ttft, e2e = Spread(ttft_ms, 6.0, 200.0, 300.0), Spread(790.0, 400.0, 900.0, 7_000.0)
    return RunReport(
        policy="overlap_linear", requests=10, reuse_ratio=reuse_ratio, ttft=ttft, e2e=e2e, tpot_mean_ms=1.6,
        busiest_share=1.2, idlest_share=0.8, busy_ratio=0.3, exact_predictions_ratio=1.0, retracted_requests=0,
        evicted_blocks=0, span_s=100.0,
    )  # fmt: skip


def test_rows_of_the_modes_are_read_once_each(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    assert list(read_points(path)) == [
        Point("d8", 8, 40, 3_086, 4.25, "round_robin", 0.07, 3911.0, 46701.0, 6.49, 6835.0, 1.0),
        POINT,
    ]


@pytest.mark.parametrize(
    ("reuse", "ttft_ms", "is_within"),
    [(0.69, 58.0, True), (0.702, 56.0, False), (0.68, 62.0, False), (0.68, 50.0, False)],
)
def test_a_point_is_within_the_limits_or_said_to_be_off(reuse, ttft_ms, is_within):
    row = compare(POINT, [report(reuse_ratio=reuse, ttft_ms=ttft_ms)], 2.0)
    assert row["is_within"] is is_within
    assert row["requests_per_cpu_s"] == 5


def test_runs_of_several_seeds_count_by_their_mean():
    row = compare(POINT, [report(reuse_ratio=ratio, ttft_ms=ttft) for ratio, ttft in ((0.66, 50.0), (0.70, 62.0))], 2.0)
    assert (row["ours"]["reuse"], row["ours"]["ttft_ms"], row["is_within"]) == (0.68, 56.0, True)


@pytest.mark.shared
def test_the_page_has_all_nine_points_of_both_traces_in_every_mode(shared_dir):
    points = list(read_points(shared_dir / "reference" / "placement-anchors.md"))
    assert len(points) == 2 * 9 * 3
    assert len({(point.trace, point.cache_percent, point.speed) for point in points}) == 18
