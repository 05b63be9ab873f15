"""Weka sessions: ids become text, prefixes grow and break as recorded, sub-agents hang where they did."""

import json

import pytest

from simulator.traces import History, TraceError, TraceScale, read_sessions
from simulator.traces.session import AnswerSlot

BLOCK = 64


def request(ids, *, out=0, model="big", t=0.0, think=0.0, **more):
    return {
        "t": t, "type": "s", "model": model, "in": len(ids) * BLOCK + 7, "out": out, "hash_ids": list(ids),
        "think_time": think, **more,
    }  # fmt: skip


def subagent(requests, *, t=0.0, duration_ms=1_000, tool=2 * BLOCK, system=BLOCK):
    return {
        "t": t, "type": "subagent", "agent_id": "x", "duration_ms": duration_ms, "status": "completed",
        "tool_tokens": tool, "system_tokens": system, "requests": requests,
    }  # fmt: skip


def session(session_id, requests, *, tool=2 * BLOCK, system=BLOCK):
    return {
        "id": session_id, "models": ["big"], "block_size": BLOCK, "hash_id_scope": "local", "tool_tokens": tool,
        "system_tokens": system, "totals": {}, "requests": requests,
    }  # fmt: skip


def load(tmp_path, *sessions, scale=None):
    path = tmp_path / "weka.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in sessions))
    return list(read_sessions(path, scale))


def prompts(agent, answer="the answer"):
    """Each prompt as one text."""
    history = History()
    return [" ".join(part.content for part in history.advance(turn, answer) if part.content) for turn in agent.turns]


def test_a_grown_prompt_keeps_all_parts_and_adds_the_answer_and_the_new_blocks(tmp_path):
    (agent,) = load(tmp_path, session("s", [request(range(6), out=130), request(range(12))]))
    first, second = agent.turns
    assert [part.role for part in first.added] == ["system", "user"]
    assert second.kept_parts == 2
    assert isinstance(second.added[0], AnswerSlot)
    # 6 new blocks, 2 of which (130 tokens) the answer stands for
    assert len(second.added[1].content.split()) == 4 * BLOCK
    early, late = prompts(agent)
    assert late.startswith(early + " the answer ")


def test_sizes_are_scaled_and_new_tokens_count_what_the_prompt_before_lacked(tmp_path):
    scale = TraceScale(prompt_ratio=1 / 4, time_ratio=1 / 10, max_think_s=2.0)
    requests = [request(range(8)), request(range(12), out=400, think=10.0), request(range(12), think=90.0)]
    (agent,) = load(tmp_path, session("s", requests), scale=scale)
    first, second, third = agent.turns
    assert (first.prompt_tokens, first.new_tokens) == (130, 130)
    assert (second.prompt_tokens, second.new_tokens, second.output_tokens) == (194, 66, 100)
    assert (second.think_s, third.think_s) == (1.0, 2.0)


def test_a_broken_prefix_keeps_only_the_parts_that_lie_in_it(tmp_path):
    requests = [request(range(6)), request(range(12)), request([0, 1, 2, 3, 40, 41, 42])]
    (agent,) = load(tmp_path, session("s", requests))
    third = agent.turns[2]
    assert third.kept_parts == 1  # the head of 3 blocks; block 3 comes again in the new part
    before, after = prompts(agent)[1:]
    kept_words = 4 * BLOCK
    assert before.split()[:kept_words] == after.split()[:kept_words]
    assert before.split()[kept_words:] != after.split()[kept_words:]


def test_equal_ids_give_equal_text_even_when_they_come_back_later(tmp_path):
    (agent,) = load(tmp_path, session("s", [request(range(6)), request([50, 51]), request(range(6))]))
    texts = prompts(agent)
    assert texts[0] == texts[2] != texts[1]


def test_sessions_with_the_same_tools_and_system_share_their_head_and_nothing_else(tmp_path):
    one, two = load(tmp_path, session("a", [request(range(6))]), session("b", [request(range(100, 106))]))
    head_one, task_one = one.turns[0].added
    head_two, task_two = two.turns[0].added
    assert head_one == head_two
    assert task_one != task_two


def test_sessions_with_other_system_prompts_share_their_tools_only(tmp_path):
    one, two = load(
        tmp_path, session("a", [request(range(9))]), session("b", [request(range(9))], system=2 * BLOCK)
    )  # fmt: skip
    words_one, words_two = (agent.turns[0].added[0].content.split() for agent in (one, two))
    assert words_one[: 2 * BLOCK] == words_two[: 2 * BLOCK]
    assert words_one[2 * BLOCK : 3 * BLOCK] != words_two[2 * BLOCK : 3 * BLOCK]


def test_another_model_has_other_text_for_the_same_ids(tmp_path):
    (agent,) = load(tmp_path, session("s", [request(range(6)), request(range(8), model="small")]))
    assert agent.turns[1].kept_parts == 0
    assert agent.turns[0].added[0] != agent.turns[1].added[0]


def test_a_sub_agent_hangs_on_the_turn_before_it_and_shares_with_its_siblings_only(tmp_path):
    helper_one = subagent([request([90, 91, 92, 93], model="small")], t=5.0, duration_ms=1_000)
    helper_two = subagent([request([90, 91, 92, 94], model="small")], t=5.0, duration_ms=60_000)
    requests = [request(range(6)), helper_one, helper_two, request(range(8), t=10.0)]
    (agent,) = load(tmp_path, session("s", requests))
    assert [(a.after_turn, a.blocking, a.session.parent) for a in agent.agents] == [(0, True, "s"), (0, False, "s")]
    assert [a.session.session_id for a in agent.agents] == ["s.1", "s.2"]
    heads = [a.session.turns[0].added[0] for a in agent.agents]
    tasks = [a.session.turns[0].added[1] for a in agent.agents]
    assert heads[0] == heads[1] != agent.turns[0].added[0]
    assert tasks[0] != tasks[1]
    assert [one.session_id for one in agent.walk()] == ["s", "s.1", "s.2"]


def test_limits_leave_out_long_prompts_short_beginnings_and_late_turns(tmp_path):
    requests = [request(range(count)) for count in (2, 6, 8, 20, 9, 10)]
    scale = TraceScale(max_prompt_tokens=12 * BLOCK, min_first_tokens=5 * BLOCK, max_turns=3)
    (agent,) = load(tmp_path, session("s", requests), scale=scale)
    assert [turn.prompt_tokens // BLOCK for turn in agent.turns] == [6, 8, 9]
    assert [turn.kept_parts for turn in agent.turns] == [0, 2, 4]


def test_a_session_without_usable_requests_is_left_out(tmp_path):
    assert load(tmp_path, session("s", [request([])])) == []


def test_a_repeated_prompt_adds_nothing(tmp_path):
    (agent,) = load(tmp_path, session("s", [request(range(6)), request(range(6))]))
    assert agent.turns[1].added == ()
    assert agent.turns[1].kept_parts == 2
    early, late = prompts(agent)
    assert early == late


def test_a_block_size_of_zero_is_refused(tmp_path):
    bad = {**session("s", [request(range(6))]), "block_size": 0}
    with pytest.raises(TraceError, match=r"line 1: block_size is 0; expected at least 1"):
        load(tmp_path, bad)
