"""Compiled terms before random ranks: costs, ties and choice are those of the terms in Python, to the last bit."""

import math
from importlib import import_module

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.config.policy import Coefficients, PolicyWeights
from router.policy.base import HotHead, PlacementQuery, RankView
from router.policy.cache_affinity import CacheAffinity
from router.policy.native import FEW_RANKS, Held, NativePricer, RankTable, Wait, pricing_available
from router.policy.ties import draw
from wire.ids import RequestId, SessionId, Target, WorkerId

pytestmark = pytest.mark.skipif(not pricing_available(), reason="the native module was not built (no C++ compiler)")

TARGETS = tuple(Target(WorkerId(f"w{n}"), 0) for n in range(14))
SEED = 3
#: Absent, one, few, many, and beyond what is reckoned with in whole numbers.
counts = st.sampled_from((0, 1, 2, 7)) | st.integers(0, 10**6)
odd_counts = counts | st.sampled_from((-3, 1 << 34, 1 << 51, 1 << 70))
paces = st.floats(0.1, 10.0)
seconds = st.just(0.0) | st.floats(0.0, 30.0)
numbers = st.sampled_from((math.nan, math.inf, -1.0, 1e300)) | st.floats(0.0, 10.0)
policies = st.builds(
    lambda weights, costs: CacheAffinity(PolicyWeights(**weights), Coefficients().model_copy(update=costs)),
    st.fixed_dictionaries(dict.fromkeys(PolicyWeights.model_fields, st.sampled_from((0.0, 0.3, 1.0, 4.0)))),
    st.just({})
    | st.fixed_dictionaries(
        {},
        optional={
            "decode_s_per_full_cache": st.sampled_from((0.0, 0.05)),
            "rebalance_ratio": st.sampled_from((0.0, 0.3)),
            "prefill_s_per_token": numbers,
            "attention_s_per_token_pair": numbers,
            "decode_step_s": numbers,
            "decode_s_per_request": numbers,
            "decode_s_per_context_token": numbers,
            "future_turns": numbers,
            "crowding_ratio": numbers,
            "working_set_factor": numbers,
        },
    ),
)
heads = st.builds(
    HotHead, tokens=counts, requests_per_s=st.floats(0.0, 9.0), copies=st.integers(1, 5), least_wait_s=seconds
)
queries = st.builds(
    PlacementQuery,
    request_id=st.integers(0, 99).map(lambda n: RequestId(f"r{n}")),
    prompt_tokens=counts,
    expected_output_tokens=counts,
    joint_output_tokens=counts,
    joint_ratio=st.floats(0.0, 1.0),
    return_rate_per_s=st.floats(0.0, 1.0),
    session=st.sampled_from((None, SessionId("s"))),
    home=st.none() | st.sampled_from(TARGETS),
    home_tokens=counts,
    pauses_at_home=st.booleans(),
    mean_live_sessions=st.floats(0.0, 100.0),
    request_work_s=seconds,
    head=st.none() | heads,
    prefill_ratio=paces,
    attention_ratio=paces,
    decode_ratio=paces,
)


def views_of(counted):
    return st.builds(
        RankView,
        target=st.just(TARGETS[0]),
        open_requests=counted,
        served_requests=counted,
        decoding_requests=counted,
        remaining_output_tokens=counted,
        context_tokens=counted,
        joint_output_tokens=counted,
        joint_context_tokens=counted,
        capacity_tokens=st.none() | counted,
        resident_tokens=counted,
        open_tokens=counted,
        live_tokens=counted,
        live_sessions=counted,
        paused_sessions=counted,
        paused_tokens=counted,
        cache_age_s=st.none() | st.floats(0.1, 200.0),
        eviction_reuse_ratio=st.floats(0.0, 1.0),
        busy_ratio=st.floats(0.0, 1.0),
        prefill_ratio=paces,
        decode_ratio=paces,
        context_ratio=paces,
        own_wait_s=seconds,
        foreign_wait_s=seconds,
        overlap_tokens=counts,
        predicted_overlap_tokens=counts,
    )


fleets = st.lists(views_of(counts), min_size=1, max_size=len(TARGETS)) | st.lists(
    views_of(counts) | views_of(odd_counts), min_size=1, max_size=4
)


def spread(views, query, now_s):
    """Ranks of their own names, which hold no more than the prompt has, some in a second table."""
    most = max(0, query.prompt_tokens - 1)
    named = []
    for target, view in zip(TARGETS, views, strict=False):
        held = min(view.overlap_tokens, most)
        told = view.predicted_overlap_tokens
        hoped = min(told, most) if told > held and held < most else 0
        values = {name: getattr(view, name) for name in view.__struct_fields__}
        values |= {"target": target, "overlap_tokens": held, "predicted_overlap_tokens": hoped}
        named.append(RankView(**values))
    tables = [RankTable([view.target for view in part]) for part in (named[:9], named[9:])]
    for table, part in zip(tables, (named[:9], named[9:]), strict=True):
        for view in part:
            table.put(view, Wait((now_s, view.own_wait_s, 0.0), (), (view.foreign_wait_s, now_s, 30.0)))
    return named, tables


def ask(prompt_tokens):
    return PlacementQuery(request_id=RequestId("r"), prompt_tokens=prompt_tokens)


def price(policy, query, views, excluded=frozenset(), now_s=50.0):
    """What the compiled terms choose; None where they leave it to the others."""
    named, tables = spread(views, query, now_s)
    held = Held(
        {view.target: view.overlap_tokens for view in named if view.overlap_tokens},
        {view.target: view.predicted_overlap_tokens for view in named if view.predicted_overlap_tokens},
        1.0,
    )
    odd = set().union(*(table.odd for table in tables))
    given = {view.target: policy.weigh(query, view) for view in named if view.target in odd}
    pricer = NativePricer(policy, seed=SEED)
    choice = pricer.choose(query, tables, held, now_s=now_s, excluded=excluded, given=given, options={})
    return choice, [view for view in named if view.target not in excluded]


@settings(deadline=None, max_examples=200)
@given(policy=policies, query=queries, views=fleets, out=st.frozensets(st.sampled_from(TARGETS), max_size=3))
def test_the_choice_is_that_of_the_terms(policy, query, views, out):
    try:
        ours, named = price(policy, query, views, out)
        theirs = policy.choose(query, named, SEED) if named else None
    except (OverflowError, ZeroDivisionError, ValueError):
        # Figures at which the terms in Python give up.
        return
    if ours is None:
        assert theirs is None or theirs.notes
        return
    assert (ours.target, ours.tied_count, ours.notes) == (theirs.target, theirs.tied_count, theirs.notes)
    if len(named) <= FEW_RANKS:
        # To the last bit: the signs of zeros too.
        assert repr(ours.costs) == repr(theirs.costs)
    every = {cost.target: repr(cost) for cost in theirs.candidates}
    assert all(every[cost.target] == repr(cost) for cost in ours.candidates)
    cheapest = sorted(theirs.costs.totals_s)[:FEW_RANKS]
    assert sorted(ours.costs.totals_s)[: len(cheapest)] == cheapest
    assert query.home in ours.costs.targets or query.home not in every


@settings(deadline=None, max_examples=150)
@given(costs=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=9, max_size=9))
@example(costs=[1e16, 1.0, 1e-16, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
@example(costs=[1e308, 1e308, -1e308, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
@example(costs=[2.0**53, 1.0, 2.0**-60, -0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
@example(costs=[2.0**53, -1.0, -(2.0**-60), -0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
def test_costs_are_summed_as_if_exactly_and_rounded_once(costs):
    policy, query = CacheAffinity(PolicyWeights(), Coefficients()), ask(1)
    pricer, held = NativePricer(policy, seed=SEED), Held({}, {}, 1.0)
    table = RankTable(TARGETS[:1])
    choice = pricer.choose(query, [table], held, now_s=0.0, excluded=frozenset(), given={TARGETS[0]: costs}, options={})
    if choice is not None:
        assert choice.costs.totals_s[0] == math.fsum(costs)


def test_a_rank_that_was_never_written_is_left_to_the_terms():
    policy, query = CacheAffinity(PolicyWeights(), Coefficients()), ask(9)
    pricer, held, table = NativePricer(policy, seed=SEED), Held({}, {}, 1.0), RankTable(TARGETS[:2])
    table.put(RankView(target=TARGETS[0]), Wait())
    asked = {"now_s": 0.0, "given": {}, "options": {}}
    assert pricer.choose(query, [table], held, excluded=frozenset(), **asked) is None
    assert pricer.choose(query, [table], held, excluded=frozenset(TARGETS[1:2]), **asked).target == TARGETS[0]
    assert pricer.choose(query, [table], held, excluded=frozenset(TARGETS[:2]), **asked) is None


def test_what_a_question_says_of_a_rank_is_forgotten_after_it():
    policy, query = CacheAffinity(PolicyWeights(), Coefficients()), ask(9_000)
    pricer, table = NativePricer(policy, seed=SEED), RankTable(TARGETS[:2])
    for target in TARGETS[:2]:
        table.put(RankView(target=target), Wait())
    asked = {"now_s": 0.0, "options": {}}
    bare = pricer.choose(query, [table], Held({}, {}, 1.0), excluded=frozenset(), given={}, **asked)
    held = Held({TARGETS[0]: 8_000}, {TARGETS[1]: 500}, 0.5)
    first = pricer.choose(query, [table], held, excluded=frozenset(), given={}, **asked)
    assert (list(first.costs.overlap_tokens), list(first.costs.predicted_overlap_tokens)) == ([8_000, 0], [0, 250])
    pricer.choose(query, [table], held, excluded=frozenset(TARGETS[:1]), given={TARGETS[1]: [1.0] * 9}, **asked)
    assert pricer.choose(query, [table], Held({}, {}, 1.0), excluded=frozenset(), given={}, **asked) == bare


def test_of_ranks_whose_numbers_in_a_tie_are_equal_the_last_by_name_wins():
    core = import_module("router.policy._pricing")
    policy = CacheAffinity(PolicyWeights(), Coefficients())
    for order in (TARGETS[:3], TARGETS[2::-1]):
        table = core.Table(list(order), [77, 77, 77])
        for target in order:
            table.put(target, RankView(target=target), (), (), ())
        pricer = core.Pricer(policy.weights, policy.coefficients, (1e-3, 0.02), draw)
        target, tied_count, *_ = pricer.choose([table], ask(9), {}, {}, 1.0, 0.0, frozenset(), {}, SEED, FEW_RANKS)
        assert (target, tied_count) == (TARGETS[2], 3)


@settings(deadline=None, max_examples=150)
@given(policy=policies, query=queries, views=fleets, pace=st.floats(0.1, 1.0), extra=st.integers(0, 5_000))
def test_a_home_chosen_without_a_look_at_the_others_would_be_chosen_with_one(policy, query, views, pace, extra):
    named, tables = spread(views, query, 50.0)
    held = Held(
        {view.target: view.overlap_tokens + extra for view in named},
        {view.target: view.predicted_overlap_tokens for view in named},
        1.0,
    )
    pricer = NativePricer(policy, seed=SEED)
    least_ratio = min(pace, *(view.prefill_ratio for view in named))
    alone = pricer.choose_home(query, tables, held, now_s=50.0, least_prefill_ratio=least_ratio)
    if alone is None or any(table.odd for table in tables):
        return
    choice = pricer.choose(query, tables, held, now_s=50.0, excluded=frozenset(), given={}, options={})
    assert alone.target == query.home
    if choice is not None:
        assert (choice.target, choice.tied_count) == (query.home, 1)
        assert alone.candidates[0] in choice.candidates


@pytest.mark.parametrize(("prompt_tokens", "is_alone"), [(40, False), (60, True)])
def test_a_home_that_another_rank_may_tie_with_is_not_chosen_alone(prompt_tokens, is_alone):
    policy = CacheAffinity(PolicyWeights(), Coefficients())
    query = PlacementQuery(request_id=RequestId("r"), prompt_tokens=prompt_tokens, home=TARGETS[0])
    table = RankTable(TARGETS[:2])
    for target in TARGETS[:2]:
        table.put(RankView(target=target), Wait())
    held = Held({TARGETS[0]: prompt_tokens - 1}, {}, 1.0)
    # 50 tokens take a millisecond.
    alone = NativePricer(policy, seed=SEED).choose_home(query, [table], held, now_s=0.0, least_prefill_ratio=1.0)
    assert (alone is not None) == is_alone


@pytest.mark.parametrize(
    ("now_s", "own_s", "others_s"),
    [(8.0, 4.0 + 3.0, 60.0), (11.0, 3.0 + 1.0, 59.0), (20.0, 0.5, 50.0), (40.0, 0.5, 30.0), (40.1, 0.5, 0.0)],
)
def test_the_wait_goes_by_with_the_clock_and_a_report_counts_for_its_time(now_s, own_s, others_s):
    policy, table = CacheAffinity(PolicyWeights(), Coefficients()), RankTable(TARGETS[:1])
    table.put(RankView(target=TARGETS[0]), Wait((10.0, 4.0, 0.5), ((3.0, 9.0),), (60.0, 10.0, 30.0)))
    choice = NativePricer(policy, seed=SEED).choose(
        ask(9), [table], Held({}, {}, 1.0), now_s=now_s, excluded=frozenset(), given={}, options={}
    )
    assert choice.candidates[0].terms["wait"] == own_s + others_s


@pytest.mark.parametrize("cost_s", [math.nan, math.inf, -math.inf])
def test_where_some_cost_is_no_number_the_terms_are_asked(cost_s):
    policy, table = CacheAffinity(PolicyWeights(), Coefficients()), RankTable(TARGETS[:3])
    table.put(RankView(target=TARGETS[0]), Wait())
    table.put(RankView(target=TARGETS[2], open_requests=9, served_requests=9), Wait((0.0, 5.0, 0.5)))
    given = {TARGETS[1]: [cost_s, *[0.0] * 8]}
    pricer, asked = NativePricer(policy, seed=SEED), {"now_s": 0.0, "excluded": frozenset(), "options": {}}
    assert pricer.choose(ask(9), [table], Held({}, {}, 1.0), given=given, **asked) is None
    given = {TARGETS[1]: [1.0, *[0.0] * 8]}
    assert pricer.choose(ask(9), [table], Held({}, {}, 1.0), given=given, **asked).target == TARGETS[0]


def test_a_tie_goes_home_else_where_the_hash_of_the_request_says():
    policy, table = CacheAffinity(PolicyWeights(), Coefficients()), RankTable(TARGETS)
    views = [RankView(target=target) for target in TARGETS]
    for view in views:
        table.put(view, Wait())
    pricer, asked = NativePricer(policy, seed=SEED), {"now_s": 0.0, "excluded": frozenset(), "given": {}, "options": {}}
    for home in (None, *TARGETS):
        for n in range(9):
            query = PlacementQuery(request_id=RequestId(f"r{n}"), prompt_tokens=9, home=home)
            choice = pricer.choose(query, [table], Held({}, {}, 1.0), **asked)
            assert choice.target == policy.choose(query, views, SEED).target
            assert choice.tied_count == len(TARGETS)
            assert home in {None, choice.target}
