"""Terms of requests that are served together: what each adds to a step, and what a prefill holds up."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.policy import Coefficients
from router.fleet.tiers import ReuseOption, TierLinks
from router.policy.base import PlacementQuery, RankView
from router.policy.decode import DecodeTerm
from router.policy.prefill import prefill_s
from router.policy.returns import ReturnsTerm
from router.policy.reuse import ReuseTerm
from router.policy.stall import StallTerm
from router.policy.steps import added_step_s, context_token_s
from wire.ids import RequestId, SessionId, Target, WorkerId

RANK = Target(WorkerId("a"), 0)
COSTS = Coefficients(
    prefill_s_per_token=1e-3,
    attention_s_per_token_pair=1e-6,
    decode_step_s=0.01,
    decode_s_per_request=1e-3,
    decode_s_per_context_token=1e-6,
    decode_s_per_full_cache=0.05,
)
SESSION = SessionId("s")


def query(**changes):
    return PlacementQuery(
        request_id=RequestId("r1"), **{"prompt_tokens": 1_000, "expected_output_tokens": 100, **changes}
    )


def view(**changes):
    return RankView(target=RANK, **changes)


def test_a_token_attended_to_costs_its_share_of_a_full_cache_where_that_is_known():
    assert context_token_s(None, COSTS) == context_token_s(0, COSTS) == 1e-6
    assert context_token_s(8_000, COSTS) == 0.05 / 8_000
    assert context_token_s(8_000, COSTS.model_copy(update={"decode_s_per_full_cache": 0.0})) == 1e-6


def test_a_step_slows_with_requests_their_tokens_and_how_full_the_cache_is():
    assert added_step_s(2, 4_000, None, COSTS) == pytest.approx(2e-3 + 4e-3)
    assert added_step_s(2, 4_000, 8_000, COSTS) == pytest.approx(2e-3 + 0.025)
    assert added_step_s(0, 99_000, 8_000, COSTS) == pytest.approx(0.05)


def test_decode_costs_nothing_on_a_rank_where_nothing_is_open():
    assert DecodeTerm(COSTS).cost_s(query(), view()) == 0.0


@given(
    open_there=st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 200_000)), min_size=1, max_size=20),
    prompt_tokens=st.integers(0, 200_000),
    capacity=st.none() | st.integers(1, 10**6),
    pace=st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0)),
)
def test_decode_is_the_slow_down_of_each_other_summed_over_all_that_are_open(open_there, prompt_tokens, capacity, pace):
    """Each step that two have in common, each is a request and its context to the other."""
    attended_s = context_token_s(capacity, COSTS)
    slowed_s = 0.0
    for joint_tokens, context_tokens in open_there:
        slows_other_s = joint_tokens * (1e-3 + attended_s * prompt_tokens)
        is_slowed_s = joint_tokens * (1e-3 + attended_s * context_tokens)
        slowed_s += slows_other_s + is_slowed_s
    seen = view(
        capacity_tokens=capacity,
        joint_output_tokens=sum(joint for joint, _ in open_there),
        joint_context_tokens=sum(joint * context for joint, context in open_there),
        decode_ratio=pace[1],
    )
    asked = query(prompt_tokens=prompt_tokens, decode_ratio=pace[0])
    assert DecodeTerm(COSTS).cost_s(asked, seen) == pytest.approx(pace[0] * pace[1] * slowed_s)


def test_stall_is_the_own_work_once_for_each_request_that_is_served():
    term, reuse = StallTerm(COSTS), ReuseTerm(COSTS)
    asked = query(prefill_ratio=3.0)
    assert term.cost_s(asked, view()) == 0.0
    for overlap_tokens in (0, 900):
        seen = view(overlap_tokens=overlap_tokens, open_requests=9, served_requests=4, prefill_ratio=2.0)
        assert term.cost_s(asked, seen) == pytest.approx(4 * reuse.cost_s(asked, seen))
    whole = view(open_requests=9, served_requests=4)
    assert term.cost_s(query(prompt_tokens=0), whole) == 0.0


def test_stall_counts_fetching_where_that_is_quicker_than_computing():
    links = TierLinks(host_bytes_per_s=1e6, pool_bytes_per_s=1e5)
    host = ReuseOption(reach="host", reuse_tokens=999, host_tokens=999, host_bytes=10_000)
    seen = view(open_requests=2, served_requests=2, options=(host,), links=links)
    assert StallTerm(COSTS).cost_s(query(), seen) == pytest.approx(2 * (0.01 + prefill_s(1, 1_000, COSTS)))


def slowed_by_returns(asked, sessions, capacity_tokens=None):
    """The sum that the term's words describe, over sessions told one by one."""
    generating_s = asked.expected_output_tokens * asked.decode_ratio * COSTS.decode_step_s
    chance = 1.0 - math.exp(-asked.return_rate_per_s * generating_s)
    attended_s = context_token_s(capacity_tokens, COSTS)
    each = [2 * 1e-3 + attended_s * (tokens + asked.prompt_tokens) for tokens in sessions]
    return asked.decode_ratio * chance * asked.joint_output_tokens / 2 * sum(each)


@given(
    sessions=st.lists(st.integers(0, 200_000), max_size=20),
    rate=st.floats(0.0, 100.0),
    prompt_tokens=st.integers(0, 200_000),
    output=st.integers(0, 5_000),
    capacity=st.none() | st.integers(1, 10**6),
    pace=st.floats(0.1, 10.0),
)
def test_returns_is_what_sessions_that_pause_will_slow_by_the_chance_that_they_come_back(  # noqa: PLR0917
    sessions, rate, prompt_tokens, output, capacity, pace
):
    asked = query(
        prompt_tokens=prompt_tokens,
        expected_output_tokens=output,
        joint_output_tokens=output // 2,
        return_rate_per_s=rate,
        decode_ratio=pace,
    )
    seen = view(paused_sessions=len(sessions), paused_tokens=sum(sessions), capacity_tokens=capacity)
    cost_s = ReturnsTerm(COSTS).cost_s(asked, seen)
    assert cost_s == pytest.approx(slowed_by_returns(asked, sessions, capacity), rel=1e-9, abs=1e-12)


def test_returns_grows_with_the_rate_and_never_beyond_half_of_what_two_answers_have_in_common():
    seen = view(paused_sessions=3, paused_tokens=60_000)
    costs = [
        ReturnsTerm(COSTS).cost_s(query(return_rate_per_s=rate, joint_output_tokens=80), seen)
        for rate in (0.0, 0.01, 1.0, 1e12)
    ]
    assert costs == sorted(costs)
    assert costs[0] == 0.0
    assert costs[-1] == pytest.approx(80 / 2 * (3 * 2e-3 + 1e-6 * (60_000 + 3 * 1_000)))


def test_at_its_home_a_session_does_not_return_to_itself():
    term = ReturnsTerm(COSTS)
    more = {"session": SESSION, "return_rate_per_s": 0.1}
    at_home = query(home=RANK, home_tokens=50_000, pauses_at_home=True, **more)
    elsewhere = query(home=Target(WorkerId("b"), 0), home_tokens=50_000, pauses_at_home=True, **more)
    alone = view(paused_sessions=1, paused_tokens=50_000)
    assert term.cost_s(at_home, alone) == 0.0
    assert term.cost_s(elsewhere, alone) == pytest.approx(slowed_by_returns(elsewhere, [50_000]))
    beside = view(paused_sessions=2, paused_tokens=70_000)
    assert term.cost_s(at_home, beside) == pytest.approx(slowed_by_returns(at_home, [20_000]))
    coarse = view(paused_sessions=2, paused_tokens=49_000)
    assert term.cost_s(at_home, coarse) == pytest.approx(slowed_by_returns(at_home, [0]))
