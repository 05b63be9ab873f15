"""Plans: pools that feel the pressure, limits that fit every session, options that are refused."""

import json
from pathlib import Path

import pytest

from simulator.demo.fleet import engine_flags, is_ready
from simulator.demo.plan import DemoOptions, ForwardName, build_plan, peak_tokens, pool_pages, token_density
from simulator.demo.scrape import MetricsPage, router_counters
from simulator.traces import TraceError, read_sessions

SMALL = DemoOptions(sessions=6, turns=4, prompt_ratio=1 / 64)


def count_words(text):
    return len(text.split())


def test_a_pool_holds_its_fair_share_with_some_room():
    assert pool_pages([1_000] * 16, ranks=8, page_tokens=16) == 3_000 // 16 + 1


def test_a_pool_holds_the_largest_session_however_small_the_share_is():
    pages = pool_pages([100] * 7 + [50_000], ranks=8, page_tokens=16)
    assert pages * 16 > 50_000


def test_the_default_plan_lets_no_rank_hold_the_sessions_of_all():
    plan = build_plan(DemoOptions(), count_words)
    tokens = sum(peak_tokens(agent) for session in plan.sessions for agent in session.walk())
    pool = plan.pool_pages * plan.page_tokens
    assert plan.replicas * plan.ranks * pool >= tokens
    assert pool < tokens / 3


@pytest.mark.parametrize("options", [SMALL, DemoOptions(sessions=8, full_size=True, forward=ForwardName.TIMED)])
def test_every_prompt_fits_the_model_and_the_pool(options):
    plan = build_plan(options, count_words)
    largest = max(turn.prompt_tokens + turn.output_tokens for s in plan.sessions for a in s.walk() for turn in a.turns)
    assert largest < plan.max_model_len
    assert largest < plan.pool_pages * plan.page_tokens


def test_full_size_prompts_are_around_a_hundred_thousand_tokens():
    plan = build_plan(DemoOptions(full_size=True, forward=ForwardName.TIMED), count_words)
    assert all(80_000 <= turn.prompt_tokens <= 120_000 for session in plan.sessions for turn in session.turns)


def test_equal_seeds_give_equal_plans():
    assert build_plan(SMALL, count_words) == build_plan(SMALL, count_words)


def test_a_plan_counts_the_requests_of_sub_agents():
    plan = build_plan(DemoOptions(sessions=12, turns=4, prompt_ratio=1 / 64), count_words)
    assert plan.requests == sum(len(agent.turns) for session in plan.sessions for agent in session.walk())


def test_recorded_text_is_measured_with_the_fleets_tokenizer(tmp_path):
    calls = [{"timestamp": n, "input": "ab " * 100 * n, "output": "x", "session_id": "s"} for n in (1, 2, 3)]
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(call) + "\n" for call in calls))
    (session,) = read_sessions(path)
    assert token_density(session, len) == pytest.approx(3.5, rel=0.01)
    assert token_density(session, lambda _: 1) == 1.0
    thin = build_plan(DemoOptions(trace=path), lambda _: 1)
    dense = build_plan(DemoOptions(trace=path), len)
    assert dense.pool_pages > 3 * thin.pool_pages


@pytest.mark.parametrize(
    "options",
    [
        DemoOptions(replicas=0),
        DemoOptions(ranks=17),
        DemoOptions(prompt_ratio=0.0),
        DemoOptions(prompt_ratio=1.5),
        DemoOptions(time_ratio=-1.0),
        DemoOptions(sessions=0),
        DemoOptions(turns=1),
    ],
)
def test_options_that_make_no_run_are_refused(options):
    with pytest.raises(ValueError, match="--"):
        build_plan(options, count_words)


def test_a_trace_of_single_calls_is_refused(tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_text(json.dumps({"timestamp": 1, "input": "a", "output": "b", "session_id": "s"}) + "\n")
    with pytest.raises(ValueError, match="no session of at least 3 turns"):
        build_plan(DemoOptions(trace=path), count_words)


def test_the_limit_of_length_follows_the_ratio_of_length():
    shrunk = build_plan(DemoOptions(sessions=3, turns=3), count_words)
    whole = build_plan(DemoOptions(sessions=3, turns=3, prompt_ratio=1.0), count_words)
    sizes = [[turn.prompt_tokens for session in plan.sessions for turn in session.turns] for plan in (shrunk, whole)]
    assert sizes[1] == pytest.approx([32 * tokens for tokens in sizes[0]], rel=0.01)


def test_a_missing_trace_is_refused_with_its_name():
    with pytest.raises(TraceError, match=r"nowhere\.jsonl: cannot be read"):
        build_plan(DemoOptions(trace=Path("nowhere.jsonl")), count_words)


def test_engines_are_told_the_sizes_of_the_plan():
    plan = build_plan(SMALL, count_words)
    flags = engine_flags(plan)
    pairs = dict(zip(flags[::2], flags[1::2], strict=True))
    assert pairs["--pool-pages"] == str(plan.pool_pages)
    assert pairs["--port"] == "0"
    assert pairs["--forward"] == "torch"


PAGE = """
# TYPE dovecote_router_worker_healthy gauge
dovecote_router_worker_healthy{worker="a"} 1.0
dovecote_router_worker_healthy{worker="b"} 0.0
# TYPE dovecote_router_predicted_cached_tokens_total counter
dovecote_router_predicted_cached_tokens_total{worker="a",dp_rank="0"} 30.0
dovecote_router_predicted_cached_tokens_total{worker="a",dp_rank="1"} 12.0
# TYPE dovecote_router_predictions_total counter
dovecote_router_predictions_total{accuracy="exact"} 5.0
dovecote_router_predictions_total{accuracy="raced"} 1.0
"""


def test_counters_are_added_up_over_ranks():
    counters = router_counters(MetricsPage(PAGE))
    assert counters.predicted_cached_tokens == 42
    assert counters.actual_cached_tokens == 0
    assert counters.predictions == {"exact": 5, "raced": 1}


def test_the_fleet_is_ready_when_every_replica_is_healthy():
    page = MetricsPage(PAGE)
    assert is_ready(page, 1)
    assert not is_ready(page, 2)
