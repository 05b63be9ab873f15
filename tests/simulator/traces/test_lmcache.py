"""LMCache agent calls: sorted inside a session, the trace's own text word for word."""

import json

import pytest

from simulator.traces import History, TraceError, TraceScale, read_sessions
from simulator.traces.history import flat_text
from simulator.traces.session import PromptForm


def call(session_id, timestamp_s, text, output="done"):
    return {"timestamp": round(timestamp_s * 1e6), "input": text, "output": output, "session_id": session_id}


def load(tmp_path, *calls, scale=None):
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in calls))
    return list(read_sessions(path, scale))


def prompts(session):
    history = History()
    return [flat_text(history.advance(turn, "ignored")) for turn in session.turns]


def test_calls_are_sorted_by_time_and_sent_word_for_word(tmp_path):
    (session,) = load(tmp_path, call("a", 3, "one two three"), call("a", 1, "one"), call("a", 2, "one two"))
    assert session.form is PromptForm.TEXT
    assert prompts(session) == ["one", "one two", "one two three"]
    assert [turn.kept_parts for turn in session.turns] == [0, 1, 2]
    assert [turn.think_s for turn in session.turns] == [0.0, 1.0, 1.0]


def test_a_prompt_of_another_role_replaces_what_it_does_not_share(tmp_path):
    (session,) = load(tmp_path, call("a", 1, "role one: x"), call("a", 2, "role two: y"), call("a", 3, "role two: y z"))
    assert prompts(session) == ["role one: x", "role two: y", "role two: y z"]
    assert [turn.kept_parts for turn in session.turns] == [0, 0, 1]


def test_scaling_keeps_prefixes_between_calls_that_do_not_follow_each_other(tmp_path):
    base = "".join(chr(97 + n % 26) for n in range(1_000))
    calls = [call("a", 1, base), call("a", 2, "other " * 100), call("a", 3, base + "tail " * 100)]
    (session,) = load(tmp_path, *calls, scale=TraceScale(prompt_ratio=0.25))
    first, _, third = prompts(session)
    assert len(first) == 256
    assert third.startswith(first)


def test_empty_prompts_are_left_out(tmp_path):
    (session,) = load(tmp_path, call("a", 1, ""), call("a", 2, "hello", output=""))
    assert prompts(session) == ["hello"]
    assert session.turns[0].output_tokens == 1


def test_sessions_come_in_the_order_of_the_file(tmp_path):
    sessions = load(tmp_path, call("b", 9, "x"), call("a", 1, "y"))
    assert [session.session_id for session in sessions] == ["b", "a"]


def test_a_session_that_comes_back_is_refused_with_its_line(tmp_path):
    with pytest.raises(TraceError, match="line 3: its session had ended"):
        load(tmp_path, call("a", 1, "x"), call("b", 1, "x"), call("a", 2, "x"))


def test_limits_leave_out_long_prompts_and_late_calls(tmp_path):
    calls = [call("a", n, "x" * length) for n, length in enumerate((35, 7_000, 70, 105, 140))]
    (session,) = load(tmp_path, *calls, scale=TraceScale(max_prompt_tokens=100, max_turns=3))
    assert [len(prompt) for prompt in prompts(session)] == [35, 70, 105]
