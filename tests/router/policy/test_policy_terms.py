"""Each term is seconds, by its formula, and finite for any sane input."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config.policy import Coefficients
from router.fleet.tiers import ReuseOption, TierLinks
from router.policy.admission import AdmissionTerm
from router.policy.balance import BalanceTerm
from router.policy.base import HotHead, PlacementQuery, RankView
from router.policy.decode import DecodeTerm
from router.policy.prefill import prefill_s
from router.policy.returns import ReturnsTerm
from router.policy.reuse import ReuseTerm
from router.policy.settle import SettleTerm
from router.policy.spread import SpreadTerm
from router.policy.stall import StallTerm
from router.policy.transfer import Link, TransferTerm
from router.policy.wait import WaitTerm
from wire.ids import RequestId, SessionId, Target, WorkerId

RANK = Target(WorkerId("a"), 0)
COSTS = Coefficients(
    prefill_s_per_token=1e-3,
    attention_s_per_token_pair=1e-6,
    decode_s_per_request=1e-3,
    decode_s_per_context_token=1e-6,
    decode_step_s=0.01,
    future_turns=9.0,
    crowding_ratio=0.2,
    working_set_factor=2.0,
    max_copies=3,
    kv_bytes_per_token=1_000,
    link_bytes_per_s=1e6,
)
SESSION = SessionId("s")


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


def test_a_prefill_is_scaled_by_the_pace_of_the_fleet_of_the_worker_and_of_attention():
    term = ReuseTerm(COSTS)
    cold = term.cost_s(query(), view())
    assert term.cost_s(query(prefill_ratio=3.0), view(prefill_ratio=2.0)) == pytest.approx(6 * cold)
    assert term.cost_s(query(attention_ratio=3.0), view()) == pytest.approx(1.0 + 3 * 0.5)


def test_a_rank_with_room_or_without_a_known_size_admits_at_once():
    term = AdmissionTerm(COSTS)
    assert term.cost_s(query(), view(open_tokens=5_000, open_requests=1, capacity_tokens=10_000)) == 0.0
    assert term.cost_s(query(), view(open_tokens=50_000, open_requests=1)) == 0.0
    assert term.cost_s(query(prompt_tokens=50_000), view(capacity_tokens=10_000)) == 0.0


def test_a_full_rank_admits_when_enough_of_those_running_have_ended():
    full = view(
        open_tokens=10_000,
        open_requests=2,
        decoding_requests=2,
        remaining_output_tokens=400,
        context_tokens=10_000,
        capacity_tokens=10_000,
    )
    step_s = 0.01 + 2 * 1e-3 + 0.04
    assert AdmissionTerm(COSTS).cost_s(query(), full) == pytest.approx(200 * step_s * 1_100 / 10_000)


def test_free_space_costs_nothing():
    roomy = view(capacity_tokens=10_000, resident_tokens=1_000, eviction_reuse_ratio=0.5)
    assert BalanceTerm(COSTS).cost_s(query(), roomy) == 0.0


def test_what_is_pushed_out_costs_its_prefill_by_the_chance_that_it_is_asked_for():
    full = view(capacity_tokens=10_000, resident_tokens=10_000, eviction_reuse_ratio=0.25)
    expected = 1_100 * 0.25 * (1e-3 + 1e-6 * 500)
    assert BalanceTerm(COSTS).cost_s(query(), full) == pytest.approx(expected)


def test_only_new_tokens_beyond_free_space_push_others_out():
    nearly = view(capacity_tokens=10_000, resident_tokens=9_900, eviction_reuse_ratio=0.25, overlap_tokens=800)
    expected = 200 * 0.25 * (1e-3 + 1e-6 * 500)
    assert BalanceTerm(COSTS).cost_s(query(), nearly) == pytest.approx(expected)


@pytest.mark.parametrize("blind", [{"eviction_reuse_ratio": 0.5}, {"capacity_tokens": 100, "resident_tokens": 100}])
def test_unknown_capacity_or_age_pushes_nothing_out(blind):
    assert BalanceTerm(COSTS).cost_s(query(), view(**blind)) == 0.0


def test_a_fresh_session_pays_for_the_turns_it_will_spend_on_a_busy_rank():
    busy = view(busy_ratio=0.5)
    term = SettleTerm(COSTS)
    assert term.cost_s(query(session=SESSION, request_work_s=2.0), busy) == pytest.approx(5.0)
    assert term.cost_s(query(request_work_s=2.0), busy) == pytest.approx(0.5)
    assert term.cost_s(query(session=SESSION, home=RANK, request_work_s=2.0), busy) == 0.0


@pytest.mark.parametrize(("live_sessions", "cost_s"), [(0, 0.0), (10, 0.0), (15, 1.0), (20, 2.0), (90, 2.0)])
def test_a_fresh_session_avoids_a_rank_where_more_live_than_elsewhere(live_sessions, cost_s):
    fresh = query(session=SESSION, mean_live_sessions=10.0, request_work_s=1.0)
    crowded = view(live_sessions=live_sessions, live_tokens=live_sessions * 1_000)
    assert SettleTerm(COSTS).cost_s(fresh, crowded) == pytest.approx(cost_s)


def test_a_session_is_no_crowd_at_its_own_home():
    term = SettleTerm(COSTS.model_copy(update={"rebalance_ratio": 1.0}))
    for home, cost_s in ((RANK, 0.0), (Target(WorkerId("b"), 0), 2.0)):
        back = query(session=SESSION, home=home, home_tokens=500, mean_live_sessions=1.0, request_work_s=1.0)
        assert term.cost_s(back, view(live_sessions=2, live_tokens=500)) == pytest.approx(cost_s)


def lost(live_tokens, capacity_tokens=10_000):
    return live_tokens * math.exp(-2.0 * capacity_tokens / live_tokens) if live_tokens else 0.0


@pytest.mark.parametrize("live_tokens", [0, 2_000, 10_000, 30_000])
def test_a_fresh_session_pays_for_what_the_live_ones_will_lose_through_it_each_turn(live_tokens):
    cost_s = SettleTerm(COSTS).cost_s(query(session=SESSION), view(live_tokens=live_tokens, capacity_tokens=10_000))
    assert cost_s == pytest.approx(10 * (lost(live_tokens + 1_100) - lost(live_tokens)) * (1e-3 + 1e-6 * 500))


def test_the_fuller_a_rank_the_dearer_the_next_session():
    costs = [
        SettleTerm(COSTS).cost_s(query(session=SESSION), view(live_tokens=n * 2_000, capacity_tokens=10_000))
        for n in range(12)
    ]
    assert costs == sorted(costs)
    assert costs[-1] > 10 * costs[1]


def test_a_session_with_a_home_weighs_crowds_by_a_ratio_and_at_home_without_itself():
    term = SettleTerm(COSTS.model_copy(update={"rebalance_ratio": 0.5}))
    at_home = query(session=SESSION, home=RANK, home_tokens=4_000)
    elsewhere = query(session=SESSION, home=Target(WorkerId("b"), 0), home_tokens=4_000)
    crowded = view(live_tokens=14_000, capacity_tokens=10_000)
    full = 10 * (1e-3 + 1e-6 * 500)
    assert term.cost_s(at_home, crowded) == pytest.approx(0.5 * full * (lost(11_100) - lost(10_000)))
    assert term.cost_s(elsewhere, crowded) == pytest.approx(0.5 * full * (lost(15_100) - lost(14_000)))


HEAD = HotHead(tokens=400, requests_per_s=0.1, copies=1, least_wait_s=0.5)


def test_a_copy_of_a_hot_head_earns_the_waits_it_will_spare():
    spread = SpreadTerm(COSTS)
    asked = query(session=SESSION, head=HEAD)
    assert spread.cost_s(asked, view(own_wait_s=0.4)) == pytest.approx(-0.1 * 60 / 2 * 0.1)
    assert spread.cost_s(asked, view(own_wait_s=0.4, cache_age_s=30.0)) == pytest.approx(-0.1 * 30 / 2 * 0.1)
    assert spread.cost_s(asked, view(own_wait_s=0.9)) == 0.0


def test_a_copy_is_never_better_than_free_and_holders_or_the_last_copy_earn_nothing():
    spread = SpreadTerm(COSTS)
    asked = query(session=SESSION, head=HEAD)
    assert spread.cost_s(asked, view()) == -prefill_s(400, 400, COSTS)
    assert spread.cost_s(asked, view(overlap_tokens=400)) == 0.0
    full = HotHead(tokens=400, requests_per_s=9.0, copies=3, least_wait_s=5.0)
    assert spread.cost_s(query(session=SESSION, head=full), view()) == 0.0
    assert spread.cost_s(query(session=SESSION), view()) == 0.0


def test_a_transfer_takes_the_bytes_that_the_decode_rank_lacks_over_its_link():
    term = TransferTerm(COSTS)
    prefill, decode = view(), RankView(target=Target(WorkerId("b"), 0), overlap_tokens=600)
    assert term.pair_cost_s(query(), prefill, decode, Link()) == pytest.approx(0.4)
    assert term.pair_cost_s(query(), prefill, decode, Link(bytes_per_s=2e6, topology_factor=3.0)) == pytest.approx(0.6)
    assert term.pair_cost_s(query(), prefill, prefill, Link()) == 0.0


@settings(deadline=None)
@given(
    prompt_tokens=st.integers(0, 10**8),
    overlap=st.integers(0, 10**8),
    output=st.integers(0, 10**8),
    counts=st.lists(st.integers(0, 1 << 40), min_size=13, max_size=13),
    rate=st.floats(0, 1e12),
    capacity=st.none() | st.integers(0, 1 << 40),
)
def test_every_term_is_finite_and_not_negative(prompt_tokens, overlap, output, counts, rate, capacity):  # noqa: PLR0917
    asked = query(
        prompt_tokens=prompt_tokens,
        expected_output_tokens=output,
        joint_output_tokens=output,
        session=SESSION,
        mean_live_sessions=rate,
        return_rate_per_s=rate,
        request_work_s=rate,
    )
    seen = view(
        overlap_tokens=min(overlap, max(0, prompt_tokens - 1)),
        own_wait_s=float(counts[0]),
        decoding_requests=counts[1],
        remaining_output_tokens=counts[2],
        context_tokens=counts[3],
        resident_tokens=counts[4],
        live_tokens=counts[5],
        open_tokens=counts[6],
        open_requests=counts[7],
        joint_output_tokens=counts[8],
        joint_context_tokens=counts[9],
        live_sessions=counts[10],
        paused_sessions=counts[11],
        paused_tokens=counts[12],
        capacity_tokens=capacity,
        eviction_reuse_ratio=1.0,
        busy_ratio=1.0,
    )
    terms = (WaitTerm(), AdmissionTerm(COSTS), ReuseTerm(COSTS), StallTerm(COSTS), DecodeTerm(COSTS))
    for term in (*terms, ReturnsTerm(COSTS), BalanceTerm(COSTS), SettleTerm(COSTS)):
        cost_s = term.cost_s(asked, seen)
        assert math.isfinite(cost_s)
        assert cost_s >= 0
