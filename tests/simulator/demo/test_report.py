"""The arithmetic of the demo's table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.demo.client import Reply
from simulator.demo.report import RouterCounters, accuracy_text, busiest_over_mean, quantile, summarise, table_rows

COUNTERS = RouterCounters(predicted_cached_tokens=90, actual_cached_tokens=80, predictions={"exact": 3, "raced": 1})


def reply(worker="http://a", dp_rank=0, *, prompt=100, cached=40, ttft_s=0.1, failure=None):
    return Reply("s", "r", worker, dp_rank, "text", prompt, cached, 5, None if failure else ttft_s, failure)


def summary(replies, ranks=4):
    return summarise("cache_affinity", replies, ranks=ranks, router=COUNTERS, wall_s=1.5)


def test_the_cached_ratio_weighs_requests_by_their_tokens():
    found = summary([reply(prompt=100, cached=0), reply(prompt=300, cached=300)])
    assert found.cached_ratio == 0.75
    assert found.computed_tokens == 100


def test_failed_requests_are_counted_and_left_out_of_every_figure():
    found = summary([reply(), reply(failure="HTTP 503")])
    assert (found.requests, found.failed_requests, found.failed_ratio) == (2, 1, 0.5)
    assert (found.cached_ratio, found.computed_tokens) == (0.4, 60)


def test_a_run_without_replies_has_no_figures_and_counts_as_failed():
    found = summary([])
    assert (found.cached_ratio, found.ttft_p50_s, found.busiest_over_mean) == (None, None, None)
    assert found.failed_ratio == 1.0


def test_an_even_spread_is_one_and_a_single_busy_rank_is_the_number_of_ranks():
    even = [reply(f"http://{worker}", rank) for worker in "ab" for rank in (0, 1)]
    assert busiest_over_mean(even, 4) == 1.0
    assert busiest_over_mean([reply()] * 6, 4) == 4.0


def test_ranks_of_different_workers_are_different_ranks():
    assert busiest_over_mean([reply("http://a", 0), reply("http://b", 0)], 2) == 1.0


@given(st.lists(st.floats(0, 100), min_size=1), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_the_smallest_value_that_enough_values_do_not_exceed(values, share):
    found = quantile(values, share)
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values)


def test_the_median_of_a_hundred_values_is_the_fiftieth():
    assert quantile([float(n) for n in range(1, 101)], 0.5) == 50.0
    assert quantile([float(n) for n in range(1, 101)], 0.99) == 99.0


def test_rows_have_one_cell_a_policy():
    rows = dict(table_rows([summary([reply()]), summary([])]))
    assert rows["cached-token ratio (engines)"] == ["0.400", "-"]
    assert rows["prompt tokens computed"] == ["60", "0"]
    assert rows["TTFT p50"] == ["100 ms", "-"]
    assert rows["cached tokens predicted"] == ["90", "90"]
    assert rows["predictions"][0] == "exact 3, raced 1"


@pytest.mark.parametrize(
    ("predictions", "text"), [({}, "-"), ({"exact": 0}, "-"), ({"raced": 2, "exact": 9}, "exact 9, raced 2")]
)
def test_accuracy_classes_are_listed_by_count(predictions, text):
    assert accuracy_text(predictions) == text
