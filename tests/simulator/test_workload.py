"""The generator: its quantiles are near the published ones, and its text has the sizes and the sharing it plans."""

import pytest

from simulator.traces import History, TraceScale
from simulator.traces.session import AnswerSlot
from simulator.workload import Workload

SHARES = (0.1, 0.5, 0.9, 0.99)


@pytest.fixture(scope="module")
def plans():
    return list(Workload(seed=5).plans(490))


def quantiles(values):
    ordered = sorted(values)
    return [ordered[int(share * len(ordered))] for share in SHARES]


@pytest.mark.parametrize(
    ("field", "published"),
    [
        ("prompt_tokens", (42_676, 103_116, 212_279, 509_583)),
        ("new_tokens", (235, 765, 5_215, 89_638)),
        ("output_tokens", (103, 219, 912, 3_738)),
        ("think_s", (4, 10, 157, 3_064)),
    ],
)
def test_unscaled_quantiles_are_near_the_published_ones(plans, field, published):
    values = [getattr(turn, field) for plan in plans for turn in (plan.turns[1:] if field == "think_s" else plan.turns)]
    found = quantiles(values)
    assert found[:3] == pytest.approx(published[:3], rel=0.3)
    assert found[3] == pytest.approx(published[3], rel=0.6)


def test_requests_a_session_are_near_the_published_ones(plans):
    assert quantiles(len(plan.turns) for plan in plans) == pytest.approx((7, 42, 154, 330), rel=0.3)


def test_about_two_percent_of_the_requests_break_their_prefix(plans):
    turns = [turn for plan in plans for turn in plan.turns]
    assert sum(turn.breaks for turn in turns) / len(turns) == pytest.approx(0.02, abs=0.005)


def test_few_sessions_have_sub_agents_and_some_have_several(plans):
    counts = [len(plan.agents) for plan in plans if plan.agents]
    assert 0.02 < len(counts) / len(plans) < 0.07
    assert max(counts) > 1


def test_equal_seeds_give_equal_sessions_and_others_do_not():
    scale = TraceScale(1 / 64, max_turns=5)
    one, same, other = (list(Workload(seed, scale).sessions(4)) for seed in (1, 1, 2))
    assert one == same != other


def test_prompts_have_the_planned_sizes_and_grow_by_what_is_new():
    for session in Workload(3, TraceScale(1 / 16, max_turns=20)).sessions(6):
        history = History()
        answer, last = None, ()
        for turn in session.turns:
            prompt = history.advance(turn, answer)
            words = sum(len(message.content.split()) for message in prompt)
            assert words == pytest.approx(turn.prompt_tokens, rel=0.03, abs=25)
            assert prompt[: turn.kept_parts] == last[: turn.kept_parts]
            answer, last = "word " * turn.output_tokens, prompt


def test_a_turn_keeps_everything_or_after_a_break_the_head_alone():
    for session in Workload(4, TraceScale(1 / 64)).sessions(20):
        parts = 0
        for turn in session.turns:
            assert turn.kept_parts in {parts, 1} if parts else turn.kept_parts == 0
            assert isinstance(turn.added[0], AnswerSlot) == (turn.kept_parts > 1)
            parts = turn.kept_parts + len(turn.added)


def test_sub_agents_share_their_head_with_siblings_and_nothing_with_their_parent():
    spawning = [s for s in Workload(6, TraceScale(1 / 32), spawning_ratio=1.0).sessions(12) if len(s.agents) > 1]
    assert spawning
    for session in spawning:
        heads = {agent.session.turns[0].added[0] for agent in session.agents}
        assert len(heads) == 1
        assert session.turns[0].added[0] not in heads
        assert all(agent.session.parent == session.session_id for agent in session.agents)
        assert all(agent.after_turn < len(session.turns) for agent in session.agents)


def test_popular_tool_sets_give_sessions_a_common_head():
    heads = [session.turns[0].added[0].content for session in Workload(7, TraceScale(1 / 64, max_turns=1)).sessions(60)]
    assert 1 < len(set(heads)) < len(heads)


def test_a_session_can_begin_when_its_prompt_has_grown():
    scale = TraceScale(1.0, min_first_tokens=80_000, max_prompt_tokens=120_000, max_turns=2)
    sessions = list(Workload(8, scale).sessions(8))
    assert sessions
    assert all(80_000 <= turn.prompt_tokens <= 120_000 for session in sessions for turn in session.turns)
