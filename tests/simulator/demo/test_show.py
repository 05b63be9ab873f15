"""What the demo prints: progress without a terminal, the table, a decision in words."""

import io

from rich.console import Console

from simulator.demo.client import Reply
from simulator.demo.comparison import most_telling
from simulator.demo.plan import DemoOptions, build_plan
from simulator.demo.progress import RunProgress
from simulator.demo.report import RouterCounters, summarise
from simulator.demo.show import describe_decision, show_plan, show_table


def console():
    return Console(file=io.StringIO(), width=120, force_terminal=False)


def reply(request_id="r", cached=40, failure=None):
    return Reply("s", request_id, "http://a", 0, "text", 100, cached, 5, 0.1, failure)


def test_progress_off_a_terminal_is_a_line_every_tenth():
    out = console()
    with RunProgress(out, "round_robin", 40) as progress:
        for _ in range(40):
            progress.take(reply())
    lines = out.file.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1] == "round_robin: 40/40 requests, 0 failed"


def test_failures_are_shown_with_their_reason():
    out = console()
    with RunProgress(out, "round_robin", 2) as progress:
        progress.take(reply(failure="HTTP 503: [no] worker"))
    assert "failed request of s: HTTP 503: [no] worker" in out.file.getvalue()
    assert "1 failed" in out.file.getvalue()


def test_a_bar_is_drawn_on_a_terminal():
    out = Console(file=io.StringIO(), width=100, force_terminal=True)
    with RunProgress(out, "round_robin", 2) as progress:
        progress.take(reply())
        progress.take(reply())
    assert "2/2" in out.file.getvalue()


def test_the_table_has_a_column_a_policy_and_a_row_a_figure():
    out = console()
    counters = RouterCounters(1, 2, {"exact": 1})
    show_table(out, [summarise(name, [reply()], ranks=8, router=counters, wall_s=1) for name in ("one", "two")])
    text = out.file.getvalue()
    for words in ("one", "two", "cached-token ratio", "TTFT p99", "busiest rank / mean", "predictions", "0.400"):
        assert words in text


def test_the_plan_says_what_is_sent_to_what():
    out = console()
    show_plan(out, build_plan(DemoOptions(sessions=3, turns=3, prompt_ratio=1 / 64), len))
    assert "3 sessions" in out.file.getvalue()
    assert "4 replicas x 2 ranks, torch forward" in out.file.getvalue()


def test_a_decision_is_told_by_its_reason_and_its_cheapest_candidates():
    far = {"target": {"worker": "b", "dp_rank": 1}, "overlap_tokens": 0, "terms": {"reuse": 0.2}, "total_s": 0.2}
    terms = {"reuse": 0.01, "wait": 0.0}
    near = {"target": {"worker": "a", "dp_rank": 0}, "overlap_tokens": 640, "terms": terms, "total_s": 0.01}
    reason = "most of the prompt is resident"
    decision = {"reason": reason, "predicted_cached_tokens": 640, "candidates": [far, near]}
    record = {"decision": decision, "actual_cached_tokens": 640, "accuracy": "exact", "ttft_s": 0.1}
    lines = describe_decision(record).splitlines()
    assert lines[0] == "reason:  most of the prompt is resident"
    assert lines[1] == "cached tokens:  640 predicted, 640 reported by the engine (exact)"
    assert lines[2] == "  a rank 0: 10.0 ms, 640 tokens resident (reuse 10.0, wait 0.0)"
    assert lines[3].startswith("  b rank 1: 200.0 ms")


def test_the_decision_shown_is_the_answered_one_with_the_most_cached_tokens():
    replies = [reply("a", 10), reply("b", 90), reply("c", 99, failure="x"), reply("d", 20)]
    assert most_telling(replies).request_id == "b"
    assert most_telling([]) is None
