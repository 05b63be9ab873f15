"""The loaders on the real files: every record is taken and the reuse is that of the corpus."""

from itertools import islice

import pytest

from simulator.traces import History, TraceScale, read_sessions
from simulator.traces.history import flat_text

pytestmark = pytest.mark.shared


def trace(shared_dir, name):
    return shared_dir / "traces" / f"{name}.dev.jsonl.xz"


def test_weka_prompts_grow_by_little_and_share_heads(shared_dir):
    sessions = list(islice(read_sessions(trace(shared_dir, "weka_claude_code"), TraceScale(1 / 32)), 20))
    agents = [agent for session in sessions for agent in session.walk()]
    turns = [turn for agent in agents for turn in agent.turns]
    assert sum(turn.new_tokens for turn in turns) < 0.1 * sum(turn.prompt_tokens for turn in turns)
    heads = [session.turns[0].added[0].content for session in sessions]
    assert len(set(heads)) < len(heads)


def test_weka_text_is_about_as_long_as_the_recorded_prompts(shared_dir):
    sessions = islice(read_sessions(trace(shared_dir, "weka_claude_code"), TraceScale(1 / 16, max_turns=8)), 10)
    for session in sessions:
        turn = session.turns[0]
        words = sum(len(part.content.split()) for part in turn.added)
        assert words == pytest.approx(turn.prompt_tokens, rel=0.05)


@pytest.mark.parametrize(
    ("name", "sessions", "calls"),
    [("lmcache_agent_miniswe", 14, 322), ("lmcache_agent_magagent", 17, 503), ("lmcache_agent_taubench", 17, 328)],
)
def test_lmcache_files_are_read_whole(shared_dir, name, sessions, calls):
    found = list(read_sessions(trace(shared_dir, name)))
    assert (len(found), sum(len(session.turns) for session in found)) == (sessions, calls)


def test_miniswe_only_appends(shared_dir):
    for session in read_sessions(trace(shared_dir, "lmcache_agent_miniswe"), TraceScale(0.5)):
        history, last = History(), ""
        for turn in session.turns:
            prompt = flat_text(history.advance(turn, None))
            assert prompt.startswith(last)
            last = prompt


def test_taubench_trajectories_share_one_system_prompt(shared_dir):
    found = list(read_sessions(trace(shared_dir, "taubench_gpt4o_airline")))
    assert (len(found), sum(len(session.turns) for session in found)) == (140, 1_708)
    assert len({session.turns[0].added[0] for session in found}) == 1
