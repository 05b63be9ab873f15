"""Tables of figures: made from results, and those in the pages are those of the results that lie here."""

import json
from pathlib import Path

import pytest

from benchmarks.rows import Aim, make_row
from benchmarks.tables import NAMES, PAGES, Result, fill_page, make_table, read_result, say_aim, say_number

ROOT = Path(__file__).parents[2]
RUN = {"version": "1.0", "cores": 2, "python": "3.11.7", "load_before": 0.1, "load_after": 0.2}


def result_of(*rows):
    return Result("index", RUN, list(rows))


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_are_those_of_the_kept_results(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text == fill_page(text, {name: read_result(name) for name in NAMES})


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_has_its_table_on_both_pages(name):
    assert f"<!-- figures: {name} -->" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"<!-- all figures: {name} -->" in (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_result_is_of_a_full_run(name):
    assert read_result(name).run["quick"] is False


def test_the_newest_version_counts(tmp_path):
    for version in ("0.9.0", "0.10.0", "0.2.1"):
        told = {"benchmark": "index", "run": {"version": version}, "rows": []}
        (tmp_path / f"index-{version}.json").write_text(json.dumps(told))
    (tmp_path / "index-draft.json").write_text("{}")
    assert read_result("index", tmp_path).run["version"] == "0.10.0"


def test_an_absent_result_names_the_command_that_makes_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"python -m benchmarks\.turn --json"):
        read_result("turn", tmp_path)


def test_the_value_is_the_median_and_the_spread_its_extremes():
    row = make_row("x", [3.0, 1.0, 2.0], "us", reference="other", reference_value=4.0)
    assert (row.value, row.spread, row.ratio) == (2.0, (1.0, 3.0), 2.0)


def test_a_rate_is_better_when_it_is_larger():
    assert make_row("x", 10.0, "events/s", reference="other", reference_value=4.0, more_is_better=True).ratio == 2.5


@pytest.mark.parametrize(
    ("aim", "met"),
    [
        (Aim(at_most=2.0), True),
        (Aim(at_most=1.9), False),
        (Aim(at_least=2.0, of_ratio=True), True),
        (Aim(at_least=2.1, of_ratio=True), False),
        (None, None),
    ],
)
def test_an_aim_is_judged_on_the_value_or_on_the_ratio(aim, met):
    assert make_row("x", 2.0, "us", reference="other", reference_value=4.0, aim=aim).met is met


def test_a_ratio_whose_reference_is_missing_is_not_judged():
    row = make_row("x", 2.0, "us", reference="other", reference_value=None, aim=Aim(at_least=2.0, of_ratio=True))
    assert (row.met, row.reference, row.ratio) == (None, None, None)


def test_a_difference_has_a_reference_and_no_ratio():
    row = make_row("x", -2.0, "ms", reference="other", reference_value=4.0, gives_ratio=False)
    assert (row.reference_value, row.ratio) == (4.0, None)


def test_a_loss_is_written_like_a_win():
    missed = make_row("slow", 9.0, "us", reference="other", reference_value=3.0, aim=Aim(at_most=5.0), headline=True)
    table = make_table(result_of(missed), all_rows=False)
    assert "| slow | 9 us |  | at most 5 us, missed | other: 3 us | 0.333 |" in table


def test_the_front_page_has_the_headlines_only():
    rows = [make_row("first", 1.0, "us", headline=True), make_row("second", 2.0, "us")]
    assert "second" not in make_table(result_of(*rows), all_rows=False)
    assert "second" in make_table(result_of(*rows), all_rows=True)


def test_filling_a_page_twice_changes_nothing():
    page = "before\n<!-- figures: index -->\nold\n<!-- end of figures -->\nafter\n"
    results = {"index": result_of(make_row("x", 1.0, "us", headline=True))}
    once = fill_page(page, results)
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    assert "| x |" in once
    assert fill_page(once, results) == once


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (0.12345, "0.123"),
        (12.345, "12.3"),
        (999.4, "999"),
        (1_234.0, "1,230"),
        (2_561_789.0, "2,560,000"),
        (-3.456, "-3.46"),
    ],
)
def test_numbers_have_three_digits(value, words):
    assert say_number(value) == words


def test_aims_are_said_in_words():
    assert say_aim(Aim(at_most=5.0), "us") == "at most 5 us"
    assert say_aim(Aim(at_least=10.0, of_ratio=True), "us") == "at least 10 times as good"
