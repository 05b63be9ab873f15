"""tau-bench trajectories: each agent call is the messages before an assistant message."""

import json

import pytest

from simulator.traces import History, TraceError, TraceScale, read_sessions
from simulator.traces.taubench import PERSON_PAUSE_S, TOOL_PAUSE_S

TRAJECTORY = [
    {"role": "system", "content": "policy"},
    {"role": "user", "content": "please"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "found"},
    {"role": "assistant", "content": "here it is"},
    {"role": "user", "content": "thanks"},
    {"role": "assistant", "content": "bye"},
]


def load(tmp_path, trajectory, scale=None):
    path = tmp_path / "tau.jsonl"
    path.write_text(json.dumps({"task_id": 3, "reward": 0.0, "info": {}, "trial": 1, "traj": trajectory}) + "\n")
    return list(read_sessions(path, scale))


def prompts(session):
    history = History()
    return [[part.as_json() for part in history.advance(turn, "ignored")] for turn in session.turns]


def test_each_call_is_the_messages_before_an_assistant_message(tmp_path):
    (session,) = load(tmp_path, TRAJECTORY)
    assert prompts(session) == [
        [{"role": "system", "content": "policy"}, {"role": "user", "content": "please"}],
        TRAJECTORY[:4],
        TRAJECTORY[:6],
    ]


def test_the_first_call_comes_at_once_a_tool_answers_sooner_than_a_person(tmp_path):
    (session,) = load(tmp_path, TRAJECTORY, TraceScale(time_ratio=0.5))
    assert [turn.think_s for turn in session.turns] == [0.0, TOOL_PAUSE_S / 2, PERSON_PAUSE_S / 2]


def test_new_tokens_are_those_of_the_added_messages(tmp_path):
    (session,) = load(tmp_path, TRAJECTORY)
    assert session.turns[0].prompt_tokens == session.turns[0].new_tokens
    assert all(turn.new_tokens < turn.prompt_tokens for turn in session.turns[1:])


def test_an_unknown_role_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"line 1: traj\[0\].role is 'robot'; expected one of assistant, system"):
        load(tmp_path, [{"role": "robot", "content": "x"}])


def test_a_trajectory_without_an_agent_call_is_left_out(tmp_path):
    assert load(tmp_path, [{"role": "user", "content": "x"}]) == []


def test_a_session_ends_before_its_first_prompt_over_the_limit(tmp_path):
    long = [*TRAJECTORY[:5], {"role": "user", "content": "x" * 5_000}, TRAJECTORY[6]]
    (session,) = load(tmp_path, long, TraceScale(max_prompt_tokens=500))
    assert len(session.turns) == 2
