"""The figures of a load: added up from outcomes, shown as tables and as JSON."""

import io
import json
from random import Random

import pytest
from replay_traces import request
from rich.console import Console

from simulator.demo.exchange import Exchange, Failure
from simulator.replay import measure
from simulator.replay.measure import Measurements, Times
from simulator.replay.run import Ending, Outcome
from simulator.replay.show import LoadReport, print_report

USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 15}}


def answer(*, usage=USAGE, times=(1.2, 1.3, 1.7), worker="w0", rank="1", failure=None, output=5, **more):
    headers = {} if worker is None else {"x-worker": worker, "x-rank": rank}
    made = Exchange(1.0, 2.0, headers, [], list(times), times[0] if times else None, usage, True, True, failure)
    return Outcome(
        request("a", [1, 2], output=output), made, **{"late_s": 0.0, "retries": 0, "retry_wait_s": 0.0, **more}
    )


def measured(*outcomes, **arguments):
    made = Measurements("X-Worker", "X-Rank", **arguments)
    for outcome in outcomes:
        made.take(outcome)
    return made.figures()


def test_times_are_from_sending_to_the_first_piece_between_tokens_and_to_the_end():
    figures = measured(answer(late_s=0.5))
    assert figures.ttft.mean_ms == pytest.approx(200)
    assert figures.inter_token.mean_ms == pytest.approx(125)
    assert (figures.piece_gap.count, figures.piece_gap.max_ms) == (2, pytest.approx(400))
    assert (figures.e2e.p99_ms, figures.late.p50_ms) == (pytest.approx(1_000), pytest.approx(500))


def test_cached_tokens_count_where_the_target_tells_them():
    silent = {"prompt_tokens": 80, "completion_tokens": 5}
    figures = measured(answer(), answer(usage=silent), answer(usage={}))
    assert (figures.prompt_tokens, figures.cached_tokens, figures.cached_ratio) == (100, 15, 0.75)
    assert (figures.answers_with_cached_tokens, figures.answers_without_usage) == (1, 1)
    assert figures.recorded_prompt_tokens == 48


def test_a_target_that_tells_no_cached_tokens_has_no_ratio():
    assert measured(answer(usage={})).cached_ratio is None


def test_usage_that_is_no_count_counts_nothing():
    odd = {"prompt_tokens": "many", "completion_tokens": -3, "prompt_tokens_details": {"cached_tokens": None}}
    figures = measured(answer(usage=odd), answer(usage={"prompt_tokens_details": 7}))
    assert (figures.prompt_tokens, figures.output_tokens, figures.answers_with_cached_tokens) == (0, 0, 0)


def test_failures_are_counted_by_kind_with_the_first_text_and_give_no_times():
    failed = [answer(failure=Failure("http_500", text)) for text in ("first", "second")]
    figures = measured(*failed, answer(failure=Failure("timeout", "t"), retries=2, retry_wait_s=3.0), answer())
    assert [(error.kind, error.count, error.example) for error in figures.errors] == [
        ("http_500", 2, "first"), ("timeout", 1, "t"),
    ]  # fmt: skip
    assert (figures.complete, figures.failed, figures.failed_ratio, figures.e2e.count) == (1, 3, 0.75, 1)
    assert (figures.retries, figures.retry_wait_s) == (2, 3.0)


def test_a_run_without_any_answer_has_failed():
    figures = measured()
    assert (figures.failed_ratio, figures.ttft, figures.busiest_over_mean) == (1.0, None, None)


def test_a_key_that_the_target_repeats_is_not_kept():
    made = Measurements("X-Worker", None, secret="sk-1")
    assert made.take(answer(failure=Failure("http_401", "bad key sk-1"))) == "bad key (the key)"
    assert made.figures().errors[0].example == "bad key (the key)"


def test_the_share_of_each_worker_is_by_the_routers_word():
    figures = measured(answer(), answer(), answer(rank="0"), answer(worker=None))
    assert [(each.worker, each.requests, each.cached_tokens) for each in figures.workers] == [
        ("w0 rank 1", 2, 30), ("w0 rank 0", 1, 15),
    ]  # fmt: skip
    assert figures.busiest_over_mean == pytest.approx(4 / 3)
    assert figures.workers[0].share_ratio == pytest.approx(2 / 3)


def test_names_from_outside_are_bounded(monkeypatch):
    monkeypatch.setattr(measure, "MAX_NAMES", 2)
    outcomes = [answer(worker=name) for name in "abcd"]
    outcomes += [answer(failure=Failure(f"http_{status}", "no")) for status in range(500, 504)]
    figures = measured(*outcomes)
    assert {each.worker: each.requests for each in figures.workers} == {
        "a rank 1": 1, "b rank 1": 1, "(others)": 2,
    }  # fmt: skip
    assert {each.kind: each.count for each in figures.errors} == {"http_500": 1, "http_501": 1, "(others)": 2}


def test_an_answer_shorter_than_asked_is_counted():
    assert measured(answer(), answer(output=6)).short_answers == 1


def test_of_many_times_a_fair_part_is_kept(monkeypatch):
    monkeypatch.setattr(measure, "KEPT_TIMES", 500)
    times = Times(Random(1))
    for number in range(10_000):
        times.add(number / 1000)
    spread = times.spread()
    assert (spread.count, spread.max_ms, len(times._kept)) == (10_000, 9_999, 500)
    assert spread.mean_ms == pytest.approx(4_999.5)
    assert spread.p50_ms == pytest.approx(5_000, rel=0.1)


def report(figures):
    return LoadReport(
        trace="t.jsonl", target="http://h/v1", api="chat", prompt_as="messages", model="m", seed=1, prompt_ratio=1.0,
        time_ratio=1.0, concurrency=4, requests=3, sessions=1, reusable_ratio=0.5, ending=Ending.COMPLETE, sent=3,
        cancelled=0, most_in_flight=2, wall_s=2.0, requests_per_s=1.0, output_tokens_per_s=2.5, figures=figures,
    )  # fmt: skip


def test_the_report_is_one_json_object():
    read = json.loads(report(measured(answer())).as_json())
    assert (read["ending"], read["figures"]["cached_ratio"], read["figures"]["workers"][0]["worker"]) == (
        "complete", 0.75, "w0 rank 1",
    )  # fmt: skip


def test_the_tables_show_foreign_words_as_they_are_but_move_no_cursor():
    failed = answer(failure=Failure("http_500", "[red]oops\x1b[2J"))
    workers = [answer(worker=f"w{serial}[b]") for serial in range(20)]
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    print_report(report(measured(failed, *workers)), console)
    text = console.file.getvalue()
    assert "[red]oops" in text
    assert "\x1b[2J" not in text
    assert "w0[b] rank 1" in text
    assert "and 4 more" in text
