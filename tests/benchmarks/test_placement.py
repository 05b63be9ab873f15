"""Our placement is judged by the published figures and by baselines of the same run; each bound can be missed."""

import argparse

import pytest

from benchmarks.anchors import ROOT, Point
from benchmarks.placement import Cell, is_whole, judge, judge_aims, make_row, read_cells, summarize, summarize_all
from simulator.fleet.report import RunReport, Spread

PAGE = """
| workers | cache (blocks) | speed | mode | reuse | TTFT mean / p50 / p90 / p99 | queue | TPOT | e2e | busy | share |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| 8 | 80% (6172) | 9 | round_robin | 0.172 | 141 / 137 / 269 / 336 | 0 | 1.73 | 966 / 514 / 8082 | 0.32 | 1.00 / 1.00 |
| 8 | 80% (6172) | 9 | default | 0.680 | 50 / 6 / 191 / 400 | 0 | 1.67 | 800 / 402 / 7275 | 0.30 | 1.11 / 0.87 |
| 8 | 80% (6172) | 9 | scale4 | 0.769 | 40 / 5 / 159 / 200 | 0 | 1.78 | 856 / 409 / 7469 | 0.28 | 1.25 / 0.80 |
| 8 | 80% (6172) | 9 | no_active | 0.767 | 42 / 5 / 163 / 293 | 1 | 1.89 | 911 / 437 / 8041 | 0.27 | 1.29 / 0.86 |
| 8 | 80% (6172) | 9 | scale6 | 0.732 | 1 / 14 / 383 / 617 | 2 | 4.24 | 2018 / 982 / 17220 | 0.55 | 1.17 / 0.81 |
| workers | cache | order of speed | live blocks | infinite | pooled MIN | pooled LRU | session hash |
| 8 | 80% | 9 | 53606 | 0.949 | 0.909 | 0.815 | 0.717 (max 1.30) | 0.711 (max 1.62) |  | 0.763 (max 1.11) |  |
"""
DEFAULT = Point("d8", 8, 80, 6_172, 9.0, "default", 0.68, 50.0, 400.0, 1.67, 800.0, 1.11)
BEST = Point("d8", 8, 80, 6_172, 9.0, "scale4", 0.769, 40.0, 200.0, 1.78, 856.0, 1.25)
CELL = Cell(DEFAULT, BEST, 0.815)
OPTIONS = argparse.Namespace(traces=["d8", "d16"], speeds=None, caches=None)


def figures(*, ttft_ms=36.0, e2e_ms=790.0, p99_ms=150.0, reuse=0.8, busiest=1.2):
    report = RunReport(
        policy="ours", requests=10, reuse_ratio=reuse, ttft=Spread(ttft_ms, 6.0, 200.0, p99_ms),
        e2e=Spread(e2e_ms, 400.0, 900.0, 7_000.0), tpot_mean_ms=1.6, busiest_share=busiest, idlest_share=0.8,
        busy_ratio=0.3, exact_predictions_ratio=1.0, retracted_requests=0, evicted_blocks=0, span_s=100.0,
    )  # fmt: skip
    return summarize([report], CELL, 2.0)


def test_a_point_has_the_default_the_best_of_the_four_modes_and_the_pooled_cache(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    assert read_cells(path, OPTIONS) == [CELL]


def test_figures_stand_beside_the_default_and_the_best_mode():
    ours = figures()
    assert ours["ratios"]["ttft_ms_to_default"] == 0.72
    assert ours["ratios"]["ttft_ms_to_best"] == 0.9
    assert ours["ratios"]["ttft_p99_ms_to_best"] == 0.75
    assert ours["reuse_to_pooled_lru"] == -0.015


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, set()),
        ({"ttft_ms": 51.0}, {"ttft_at_most_default", "ttft_below_session_hash"}),
        ({"ttft_ms": 45.0}, {"ttft_below_session_hash"}),
        ({"e2e_ms": 801.0}, {"e2e_at_most_default"}),
        ({"busiest": 1.31}, {"busiest_at_most_1.3"}),
    ],
)
def test_each_bound_can_be_missed(changed, missed):
    policies = {
        "ours": figures(**changed),
        "session_hash": figures(ttft_ms=45.0),
        "prefix_threshold": figures(ttft_ms=60.0),
    }
    assert {name for name, kept in judge(CELL, policies).items() if not kept} == missed


def test_a_baseline_that_did_not_run_is_not_judged():
    assert "ttft_below_session_hash" not in judge(CELL, {"ours": figures()})


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, set()),
        ({"ttft_ms": 41.0}, {"ttft_at_most_best"}),
        ({"reuse": 0.794}, {"reuse_near_pooled_lru"}),
    ],
)
def test_each_aim_can_be_missed(changed, missed):
    assert {name for name, kept in judge_aims(CELL, figures(**changed)).items() if not kept} == missed


def test_the_means_over_points_are_of_each_trace_and_of_all():
    rows = [make_row(CELL, {"ours": figures(ttft_ms=ttft_ms)}) for ttft_ms in (20.0, 45.0)]
    summary = summarize_all(rows)
    assert set(summary["means"]) == {"d8", "all"}
    assert summary["means"]["all"]["geometric_ttft_ms_to_best"] == 0.75
    assert summary["means"]["d8"]["arithmetic_ttft_ms_to_best"] == 0.8125
    assert (summary["bounds_missed"], summary["aims_missed"], summary["ratio_aims_met"]) == (0, 1, False)


def test_only_a_whole_run_of_the_default_file_is_kept(monkeypatch):
    rows = [{}] * 18
    whole = {"policy": "examples/policy.yaml", "seeds": 5, "policies": ["ours", "session_hash", "prefix_threshold"]}
    monkeypatch.chdir(ROOT)
    assert is_whole(rows, argparse.Namespace(**whole))
    for changed in ({"seeds": 4}, {"policies": ["ours"]}, {"policy": "other.yaml"}):
        assert not is_whole(rows, argparse.Namespace(**{**whole, **changed}))
    assert not is_whole(rows[1:], argparse.Namespace(**whole))


@pytest.mark.shared
def test_the_page_has_eighteen_points_twelve_of_them_with_a_pooled_cache(shared_dir):
    cells = read_cells(shared_dir / "reference" / "placement-anchors.md", OPTIONS)
    assert len(cells) == 18
    assert sum(cell.pooled_lru is not None for cell in cells) == 12
    assert all(cell.best.ttft_ms <= cell.default.ttft_ms for cell in cells)
