"""The tables of simulated results say what was kept, and the page has them as they are."""

import pytest

from benchmarks.anchors import MODES
from benchmarks.placement import BASELINES
from benchmarks.simulated import PAGE, fill_page, make_anchors_table, make_placement_table, make_tables


def anchor(mode, ttft_ms, *, is_within=True):
    return {
        "trace": "d8", "cache_percent": 80, "speed": 9.0, "mode": mode, "ttft_error_ratio": ttft_ms / 50 - 1,
        "ours": {"reuse": 0.5, "ttft_ms": ttft_ms}, "published": {"reuse": 0.51, "ttft_ms": 50.0},
        "is_within": is_within,
    }  # fmt: skip


def test_a_point_has_all_modes_in_one_line_and_those_that_are_off_are_named():
    rows = [anchor(mode, 60.0 if mode == "scale4" else 51.0, is_within=mode != "scale4") for mode in MODES]
    table = make_anchors_table({"points": rows, "run": {"seeds": 3}})
    assert "| d8 | 80% | 9 | 0.500 / 0.510, 51 / 50 (+2.0%) |" in table
    assert "Ours / published; 2 of 3 within the limits; off: d8 80% 9 scale4. Means over 3 seeds" in table


def test_what_ours_missed_stands_in_its_line():
    ours = {"ttft_ms": 40.0, "ttft_p99_ms": 300.0, "e2e_ms": 900.0, "reuse": 0.7, "busiest_share": 1.31}
    row = {
        "trace": "d8", "cache_percent": 80, "speed": 9.0,
        "published": {
            "default": {"ttft_ms": 55.0, "e2e_ms": 829.0},
            "best": {"mode": "scale4", "ttft_ms": 40.0, "ttft_p99_ms": 286.0},
        },
        "policies": {"ours": ours, **{name: {"ttft_ms": 70.0} for name in BASELINES}},
        "verdicts": {"e2e_at_most_default": False, "ttft_at_most_default": True},
        "aims": {"reuse_near_pooled_lru": False},
    }  # fmt: skip
    means = {
        f"{kind}_{name}_to_best": 1.0 for kind in ("geometric", "arithmetic") for name in ("ttft_ms", "ttft_p99_ms")
    }
    summary = {"means": {"all": means}, "bounds_missed": 1, "aims_missed": 1}
    table = make_placement_table({"points": [row], "summary": summary})
    assert "| 40, 300, 900 | 0.700 | 1.31 | 70 | 70 | e2e at most default, reuse near pooled lru |" in table
    assert "all: TTFT 1.00 (1.00), p99 1.00 (1.00); the aim is 0.80. 1 bounds and 1 aims" in table


def test_a_table_that_is_not_given_stays():
    page = (
        "a\n<!-- table: anchors -->\nold\n<!-- end of table -->\n<!-- table: other -->\nkept\n<!-- end of table -->\n"
    )
    assert fill_page(page, {"anchors": "new"}) == page.replace("old", "new")


@pytest.mark.parametrize("name", ["anchors", "placement", "speed"])
def test_the_page_has_what_was_kept(name):
    text = PAGE.read_text(encoding="utf-8")
    assert f"<!-- table: {name} -->" in text
    assert fill_page(text, make_tables([name])) == text
