"""Costs at a glance are those of the terms, and what lets thousands of ranks be passed over holds of them."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from router.config_policy import Coefficients, PolicyWeights
from router.policy.base import PlacementQuery, RankView
from router.policy.cache_affinity import CacheAffinity
from router.policy.glance import Sketch, Stakes, glance_s
from wire.ids import RequestId, SessionId, Target, WorkerId

RANK, ELSEWHERE = Target(WorkerId("a"), 0), Target(WorkerId("b"), 0)
counts = st.sampled_from((0, 1, 2, 7)) | st.integers(0, 10**6)
ratios = st.sampled_from((0.0, 1.0)) | st.floats(0.1, 10.0)
paces = st.floats(0.1, 10.0)
policies = st.builds(
    lambda weights, full_s, rebalance: CacheAffinity(
        PolicyWeights(**weights), Coefficients(decode_s_per_full_cache=full_s, rebalance_ratio=rebalance)
    ),
    st.fixed_dictionaries(dict.fromkeys(PolicyWeights.model_fields, st.sampled_from((0.0, 0.5, 1.0, 4.0)))),
    st.sampled_from((0.0, 0.05)),
    st.sampled_from((0.0, 0.3)),
)
queries = st.builds(
    PlacementQuery,
    request_id=st.just(RequestId("r")),
    prompt_tokens=counts,
    expected_output_tokens=counts,
    joint_output_tokens=counts,
    return_rate_per_s=st.floats(0.0, 1.0),
    session=st.sampled_from((None, SessionId("s"))),
    home=st.sampled_from((None, ELSEWHERE)),
    home_tokens=counts,
    mean_live_sessions=st.floats(0.0, 100.0),
    request_work_s=ratios,
    prefill_ratio=paces,
    attention_ratio=paces,
    decode_ratio=paces,
    joint_ratio=st.floats(0.0, 1.0),
)
views = st.builds(
    RankView,
    target=st.just(RANK),
    open_requests=counts,
    served_requests=counts,
    decoding_requests=counts,
    remaining_output_tokens=counts,
    context_tokens=counts,
    joint_output_tokens=counts,
    joint_context_tokens=counts,
    capacity_tokens=st.none() | counts,
    resident_tokens=counts,
    open_tokens=counts,
    live_tokens=counts,
    live_sessions=counts,
    paused_sessions=counts,
    paused_tokens=counts,
    eviction_reuse_ratio=st.floats(0.0, 1.0),
    busy_ratio=st.floats(0.0, 1.0),
    prefill_ratio=paces,
    decode_ratio=paces,
    context_ratio=paces,
)


@settings(deadline=None, max_examples=300)
@given(policy=policies, query=queries, view=views)
def test_a_glance_gives_what_the_terms_give_where_nothing_is_held(policy, query, view):
    cost_s = glance_s(policy.stakes(query, 0), policy.sketch(view))
    assert math.isclose(cost_s, policy.total_s(query, view), rel_tol=1e-9, abs_tol=1e-9)


@settings(deadline=None, max_examples=300)
@given(policy=policies, query=queries, view=views, held=counts, most=counts)
def test_a_glance_is_never_above_the_terms_where_less_is_held_than_assumed(policy, query, view, held, most):
    held = min(held, most, max(0, query.prompt_tokens - 1))
    seen = RankView(**{name: getattr(view, name) for name in view.__struct_fields__} | {"overlap_tokens": held})
    cost_s = glance_s(policy.stakes(query, most), policy.sketch(seen))
    total_s = policy.total_s(query, seen)
    assert cost_s <= total_s * (1 + 1e-9) + 1e-9
    least_s = policy.least_reuse_s(query, most, seen.prefill_ratio)
    assert least_s <= total_s * (1 + 1e-9) + 1e-9


@settings(deadline=None, max_examples=300)
@given(policy=policies, view=views, query=queries, shares=st.lists(st.floats(0.5, 1.0), min_size=20, max_size=20))
def test_a_query_of_which_everything_is_less_costs_less_by_its_prefill_at_least(policy, view, query, shares):
    stakes, sketch = policy.stakes(query, 0), policy.sketch(view)
    less = Stakes(*(share * asked for share, asked in zip(shares, stakes, strict=False)))
    more_s = policy.reuse_weight * view.prefill_ratio * (stakes.work_s - less.work_s)
    cost_s = glance_s(stakes, sketch)
    assert glance_s(less, sketch) + more_s <= cost_s * (1 + 1e-9) + 1e-9


def test_all_numbers_of_a_query_and_a_rank_take_part():
    stakes = Stakes(*[2.0] * len(Stakes._fields))._replace(sessions=1.5)
    sketch = Sketch(*[1.0] * len(Sketch._fields))._replace(evictable_tokens=3.0)
    cost_s = glance_s(stakes, sketch)
    assert all(glance_s(stakes._replace(**{name: 9.0}), sketch) > cost_s for name in Stakes._fields)
    assert all(glance_s(stakes, sketch._replace(**{name: 0.5})) != cost_s for name in Sketch._fields)
