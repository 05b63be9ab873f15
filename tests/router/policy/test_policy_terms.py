"""Each term is seconds, by its formula, and finite for any sane input."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config import Coefficients
from router.fleet.tiers import ReuseOption, TierLinks
from router.policy.balance import BalanceTerm
from router.policy.base import PlacementQuery, RankView
from router.policy.decode import DecodeTerm
from router.policy.prefill import prefill_s
from router.policy.reuse import ReuseTerm
from router.policy.wait import WaitTerm
from wire.ids import RequestId, SessionId, Target, WorkerId

RANK = Target(WorkerId("a"), 0)
COSTS = Coefficients(
    prefill_s_per_token=1e-3,
    attention_s_per_token_pair=1e-6,
    decode_s_per_request=1e-3,
    decode_s_per_context_token=1e-6,
    reuse_probability=0.5,
    reuse_decay_s=100.0,
    future_turns=9.0,
    crowding_ratio=0.2,
)


def query(**changes):
    return PlacementQuery(
        request_id=RequestId("r1"), **{"prompt_tokens": 1_000, "expected_output_tokens": 100, **changes}
    )


def view(**changes):
    return RankView(target=RANK, **changes)


def test_wait_is_own_work_and_that_of_others():
    assert WaitTerm().cost_s(query(), view(own_wait_s=1.5, foreign_wait_s=0.25)) == 1.75


def test_prefill_grows_with_what_is_new_and_with_what_it_attends_to():
    assert prefill_s(0, 1_000, COSTS) == 0.0
    assert prefill_s(1_000, 1_000, COSTS) == pytest.approx(1.0 + 0.5)
    assert prefill_s(100, 1_000, COSTS) == pytest.approx(0.1 + 100 * 1e-6 * 950)


def test_prefill_in_two_parts_costs_as_much_as_in_one():
    whole = prefill_s(1_000, 1_000, COSTS)
    assert prefill_s(400, 400, COSTS) + prefill_s(600, 1_000, COSTS) == pytest.approx(whole)


def test_reuse_is_the_cheapest_way_to_serve_the_prompt_that_the_engine_takes():
    term = ReuseTerm(COSTS)
    links = TierLinks(host_bytes_per_s=1e6, pool_bytes_per_s=1e5)
    host = ReuseOption(reach="host", reuse_tokens=900, host_tokens=900, host_bytes=10_000)
    pool = ReuseOption(reach="pools", reuse_tokens=900, pool_tokens=900, pool_bytes=1_000_000)
    rebuilt = ReuseOption(reach="device", reuse_tokens=900, window_tokens=100)
    unknown = ReuseOption(reach="host", reuse_tokens=900, host_tokens=900, host_bytes=None)
    cold_s, tail_s = term.cost_s(query(), view()), prefill_s(100, 1_000, COSTS)
    assert term.cost_s(query(), view(options=(host, pool), links=links)) == pytest.approx(0.01 + tail_s)
    assert term.cost_s(query(), view(options=(pool, unknown, rebuilt), links=links)) == cold_s
    computing = TierLinks(recomputes=True)
    assert term.cost_s(query(), view(options=(rebuilt,), links=computing)) == pytest.approx(
        prefill_s(200, 1_000, COSTS)
    )


def test_reuse_is_the_prefill_of_what_the_rank_lacks_at_the_measured_pace():
    term = ReuseTerm(COSTS)
    cold = term.cost_s(query(), view())
    assert cold == pytest.approx(1.5)
    assert term.cost_s(query(), view(overlap_tokens=900)) == pytest.approx(prefill_s(100, 1_000, COSTS))
    assert term.cost_s(query(), view(predicted_overlap_tokens=900)) == pytest.approx(prefill_s(100, 1_000, COSTS))
    assert term.cost_s(query(prefill_ratio=3.0), view()) == pytest.approx(3 * cold)


def test_decode_costs_nothing_on_a_rank_that_generates_nothing():
    assert DecodeTerm(COSTS).cost_s(query(), view()) == 0.0


def test_decode_is_the_slow_down_of_others_and_of_the_request_itself():
    busy = view(decoding_requests=2, remaining_output_tokens=50, context_tokens=4_000)
    slowed_others = (1e-3 + 1e-6 * 1_000) * 50
    slowed_itself = (2 * 1e-3 + 1e-6 * 4_000) * 100
    assert DecodeTerm(COSTS).cost_s(query(), busy) == pytest.approx(slowed_others + slowed_itself)
    assert DecodeTerm(COSTS).cost_s(query(decode_ratio=2.0), busy) == pytest.approx(2 * (slowed_others + slowed_itself))


def test_others_are_slowed_only_while_the_request_generates():
    long = view(decoding_requests=1, remaining_output_tokens=10_000)
    assert DecodeTerm(COSTS).cost_s(query(), long) == pytest.approx(2e-3 * 100 + 1e-3 * 100)


def test_free_space_costs_nothing():
    roomy = view(capacity_tokens=10_000, resident_tokens=1_000, fill_tokens_per_s=10.0)
    assert BalanceTerm(COSTS).cost_s(query(home=RANK), roomy) == 0.0


def test_what_is_pushed_out_costs_its_prefill_by_the_chance_that_it_is_asked_for():
    full = view(capacity_tokens=10_000, resident_tokens=10_000, fill_tokens_per_s=100.0)
    expected = 1_100 * 0.5 * math.exp(-1.0) * (1e-3 + 1e-6 * 500)
    assert BalanceTerm(COSTS).cost_s(query(home=RANK), full) == pytest.approx(expected)


def test_only_new_tokens_beyond_free_space_push_others_out():
    nearly = view(capacity_tokens=10_000, resident_tokens=9_900, fill_tokens_per_s=100.0, overlap_tokens=800)
    expected = 200 * 0.5 * math.exp(-1.0) * (1e-3 + 1e-6 * 500)
    assert BalanceTerm(COSTS).cost_s(query(home=RANK), nearly) == pytest.approx(expected)


@pytest.mark.parametrize("blind", [{"fill_tokens_per_s": 5.0}, {"capacity_tokens": 100, "resident_tokens": 100}])
def test_unknown_capacity_or_age_pushes_nothing_out(blind):
    assert BalanceTerm(COSTS).cost_s(query(home=RANK), view(**blind)) == 0.0


def test_a_fresh_session_pays_for_the_turns_it_will_spend_on_a_busy_rank():
    busy = view(busy_ratio=0.5, request_work_s=2.0)
    term = BalanceTerm(COSTS)
    assert term.cost_s(query(session=SessionId("s")), busy) == pytest.approx(5.0)
    assert term.cost_s(query(), busy) == pytest.approx(0.5)
    assert term.cost_s(query(session=SessionId("s"), home=RANK), busy) == 0.0


@pytest.mark.parametrize(("recent_work_s", "cost_s"), [(0.0, 0.0), (10.0, 0.0), (15.0, 1.0), (20.0, 2.0), (90.0, 2.0)])
def test_a_fresh_session_avoids_a_rank_that_was_given_more_than_the_others(recent_work_s, cost_s):
    given_more = view(recent_work_s=recent_work_s, request_work_s=1.0)
    fresh = query(session=SessionId("s"), mean_recent_work_s=10.0)
    assert BalanceTerm(COSTS).cost_s(fresh, given_more) == pytest.approx(cost_s)


@settings(deadline=None)
@given(
    prompt_tokens=st.integers(0, 10**8),
    overlap=st.integers(0, 10**8),
    output=st.integers(0, 10**8),
    counts=st.lists(st.integers(0, 1 << 40), min_size=6, max_size=6),
    rate=st.floats(0, 1e12),
    capacity=st.none() | st.integers(0, 1 << 40),
)
def test_every_term_is_finite_and_not_negative(prompt_tokens, overlap, output, counts, rate, capacity):  # noqa: PLR0917
    asked = query(
        prompt_tokens=prompt_tokens, expected_output_tokens=output, session=SessionId("s"), mean_recent_work_s=rate
    )
    seen = view(
        overlap_tokens=min(overlap, max(0, prompt_tokens - 1)),
        own_wait_s=float(counts[0]),
        decoding_requests=counts[1],
        remaining_output_tokens=counts[2],
        context_tokens=counts[3],
        resident_tokens=counts[4],
        request_work_s=float(counts[5]),
        capacity_tokens=capacity,
        fill_tokens_per_s=rate,
        busy_ratio=1.0,
        recent_work_s=float(counts[5]),
    )
    for term in (WaitTerm(), ReuseTerm(COSTS), DecodeTerm(COSTS), BalanceTerm(COSTS)):
        cost_s = term.cost_s(asked, seen)
        assert math.isfinite(cost_s)
        assert cost_s >= 0
