"""Compiled terms before random ranks: costs, ties and choice are those of the terms in Python, to the last bit."""

import math
from importlib import import_module

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.config.policy import Coefficients, PolicyWeights
from router.fleet.ages import BINS
from router.fleet.load import OwnLoad, ReportedLoad
from router.fleet.pace import WorkerPaces, WorkerRatios
from router.fleet.rank import RankFacts
from router.fleet.view import Fleet
from router.placement.chooser import Chooser
from router.placement.ledger import Ledger, RankAccount, Word
from router.placement.live import LiveSessions, LiveSums
from router.placement.origins import RankPartial
from router.placement.standings import Standings
from router.placement.views import NO_OVERLAP, Overlap, bound_overlap
from router.policy.base import HotHead, PlacementQuery
from router.policy.cache_affinity import CacheAffinity
from router.policy.native import FEW_RANKS, Held, NativePricer, RankTable, pricing_available
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


def ranks_of(counted):
    """A rank by all that is kept of it: own load, what others told and have there, its memory, who lives there."""
    sums = dict.fromkeys(SUMS, counted)
    load = st.fixed_dictionaries(
        {**sums, "prefilling": st.integers(0, 3), "decoding": st.integers(0, 3), "remaining_s": seconds}
    )
    word = st.builds(
        RankPartial,
        target=st.just(TARGETS[0]),
        waiting_s=seconds,
        waiting_requests=counted,
        decoding_requests=counted,
        **sums,
    )
    report = st.builds(
        ReportedLoad,
        reported_at_s=st.floats(10.0, 50.0),
        running_requests=counts,
        waiting_requests=counts,
        waiting_tokens=st.none() | counts,
        used_tokens=st.none() | counts,
        capacity_tokens=st.none() | counts,
        own=st.builds(OwnLoad, open_requests=counts, waiting_tokens=counts),
        s_per_token=st.floats(0.0, 1e-3),
    )
    memory = st.fixed_dictionaries(
        {
            "work_s": st.floats(0.0, 90.0),
            "tokens": st.floats(0.0, 1e6),
            "at_s": st.sampled_from((-1e5, -42_900.0, -30.0, 5.0)),
        }
    )
    return st.fixed_dictionaries(
        {
            "load": st.none() | load,
            "words": st.lists(word, max_size=2),
            "report": st.none() | report,
            "memory": st.none() | memory,
            "filled_tokens": counted,
            "reused": st.lists(st.floats(0.0, 99.0), min_size=BINS, max_size=BINS),
            "stored": st.floats(0.0, 999.0),
            "live": st.none() | st.builds(LiveSums, counted, counted, counted, counted),
            "ratios": st.none() | st.builds(WorkerRatios, paces, paces, paces),
            "capacity_tokens": st.none() | counted,
            "overlap": st.builds(Overlap, counts, counts),
        }
    )


SUMS = (
    "remaining_output_tokens", "context_tokens", "open_tokens", "joint_output_tokens", "joint_context_tokens",
)  # fmt: skip
fleets = st.lists(ranks_of(counts), min_size=1, max_size=len(TARGETS)) | st.lists(
    ranks_of(counts) | ranks_of(odd_counts), min_size=1, max_size=4
)
NOW_S, TOUCHED_S = 50.0, 10.0


class Stand:
    """A fleet as given, its pools two where there are many ranks."""

    def __init__(self, given=(), *, costs=None, now_s=NOW_S, touched_s=TOUCHED_S):
        self.targets = TARGETS[: len(given)]
        self.now_s = now_s
        self.fleet, self.ledger, self.paces = Fleet(), Ledger(), WorkerPaces()
        self.live = LiveSessions(idle_s=60.0, max_sessions=99)
        costs = Coefficients() if costs is None else costs
        self.standings = Standings(fleet=self.fleet, ledger=self.ledger, live=self.live, paces=self.paces, costs=costs)
        self.fleet.replace(
            RankFacts(
                target=target,
                url="http://x",
                models=("few",) if place >= 9 else ("many",),
                capacity_tokens=one.get("capacity_tokens"),
            )
            for place, (target, one) in enumerate(zip(self.targets, given, strict=True))
        )
        for place, one in enumerate(given):
            self._fill(TARGETS[place], one)
        self.standings.now_s = touched_s
        self.standings.change_fleet(())
        self.standings.now_s = now_s
        self.pools = list(self.standings.pools.values())

    def _fill(self, target, one):
        rank = self.fleet.find(target)
        rank.report = one.get("report")
        rank.recent.filled_tokens = one.get("filled_tokens", 0)
        if one.get("memory"):
            rank.recent.requests = 3.0
            for name, value in one["memory"].items():
                setattr(rank.recent, name, value)
        rank.ages.reused, rank.ages.stored = one.get("reused", rank.ages.reused), one.get("stored", 0.0)
        if one.get("live"):
            self.live.sums[target] = one["live"]
        if one.get("ratios"):
            self.paces.ratios[target.worker] = one["ratios"]
        if one.get("load"):
            self.ledger.accounts[target] = make_account(**one["load"])
        for origin, word in enumerate(one.get("words", ())):
            told = {} if str(origin) not in self.ledger.words else self.ledger.words[str(origin)].ranks
            self.ledger.words[str(origin)] = Word(49.0, {**told, target: word})

    def tables(self):
        """Of all ranks in numbers."""
        return [self.standings.write_all(pool) for pool in self.pools]

    def view(self, target, overlap=NO_OVERLAP):
        """A rank as the terms see it."""
        return self.standings.view(target, overlap)


def make_account(*, prefilling=0, decoding=0, settled_at_s=48.0, remaining_s=0.0, floor_s=0.0, **sums):
    account = RankAccount()
    account.prefilling, account.decoding = dict.fromkeys(range(prefilling)), dict.fromkeys(range(decoding))
    if prefilling:
        account.settled_at_s, account.remaining_s, account.floor_s = settled_at_s, remaining_s, floor_s
    for name, value in sums.items():
        setattr(account, name, value)
    return account


def stand_idle(count):
    """Ranks with nothing on them."""
    return Stand([{}] * count)


def bound(overlap, query):
    """What of it lies within a prompt."""
    return bound_overlap(
        confirmed_tokens=overlap.confirmed_tokens,
        predicted_tokens=overlap.predicted_tokens,
        prompt_tokens=query.prompt_tokens,
        credit_ratio=1.0,
    )


def ask(prompt_tokens):
    return PlacementQuery(request_id=RequestId("r"), prompt_tokens=prompt_tokens)


def hold(given):
    """What lies where."""
    overlaps = dict(zip(TARGETS, (one["overlap"] for one in given), strict=False))
    return Held(
        {target: each.confirmed_tokens for target, each in overlaps.items() if each.confirmed_tokens},
        {target: each.predicted_tokens for target, each in overlaps.items() if each.predicted_tokens},
        1.0,
    )


def price(policy, query, given, excluded=frozenset()):
    """What the compiled terms choose, None where they leave it to the others; and what the terms see."""
    stand = Stand(given, costs=policy.coefficients)
    tables = stand.tables()
    views = {
        target: stand.view(target, bound(one["overlap"], query))
        for target, one in zip(stand.targets, given, strict=True)
    }
    odd = set().union(*(table.odd for table in tables))
    priced = {target: policy.weigh(query, views[target]) for target in odd}
    pricer = NativePricer(policy, seed=SEED)
    found = pricer.choose(query, tables, hold(given), now_s=NOW_S, excluded=excluded, given=priced, options={})
    return found, [view for view in views.values() if view.target not in excluded]


@settings(deadline=None, max_examples=200)
@given(policy=policies, query=queries, ranks=fleets, out=st.frozensets(st.sampled_from(TARGETS), max_size=3))
def test_the_choice_is_that_of_the_terms(policy, query, ranks, out):
    try:
        found, named = price(policy, query, ranks, out)
        theirs = policy.choose(query, named, SEED) if named else None
    except (OverflowError, ZeroDivisionError, ValueError):
        # Figures at which the terms in Python give up.
        return
    if found is None:
        assert theirs is None or theirs.notes
        return
    ours, seat = found
    assert (ours.target, ours.tied_count, ours.notes) == (theirs.target, theirs.tied_count, theirs.notes)
    if len(named) <= FEW_RANKS:
        # To the last bit: the signs of zeros too.
        assert repr(ours.costs) == repr(theirs.costs)
    every = {cost.target: repr(cost) for cost in theirs.candidates}
    assert all(every[cost.target] == repr(cost) for cost in ours.candidates)
    cheapest = sorted(theirs.costs.totals_s)[:FEW_RANKS]
    assert sorted(ours.costs.totals_s)[: len(cheapest)] == cheapest
    assert query.home in ours.costs.targets or query.home not in every
    if seat is not None:
        chooser = Chooser(policy, Stand().standings, seed=SEED, is_exhaustive=True)
        assert repr(seat) == repr(chooser.sit(query, next(view for view in named if view.target == ours.target)))


@settings(deadline=None, max_examples=150)
@given(costs=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=9, max_size=9))
@example(costs=[1e16, 1.0, 1e-16, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
@example(costs=[1e308, 1e308, -1e308, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
@example(costs=[2.0**53, 1.0, 2.0**-60, -0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
@example(costs=[2.0**53, -1.0, -(2.0**-60), -0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
def test_costs_are_summed_as_if_exactly_and_rounded_once(costs):
    policy, query = CacheAffinity(PolicyWeights(), Coefficients()), ask(1)
    pricer, held = NativePricer(policy, seed=SEED), Held({}, {}, 1.0)
    table = RankTable(TARGETS[:1], policy.coefficients)
    found = pricer.choose(query, [table], held, now_s=0.0, excluded=frozenset(), given={TARGETS[0]: costs}, options={})
    if found is not None:
        choice, seat = found
        assert choice.costs.totals_s[0] == math.fsum(costs)
        assert seat is None


def test_a_rank_that_was_never_written_is_left_to_the_terms():
    policy, query = CacheAffinity(PolicyWeights(), Coefficients()), ask(9)
    pricer, held = NativePricer(policy, seed=SEED), Held({}, {}, 1.0)
    table = RankTable(TARGETS[:2], policy.coefficients)
    stand = stand_idle(1)
    table.write(list(stand.standings._standings.values()), stand.ledger, stand.live, stand.paces, NOW_S)
    asked = {"now_s": 0.0, "given": {}, "options": {}}
    assert pricer.choose(query, [table], held, excluded=frozenset(), **asked) is None
    assert pricer.choose(query, [table], held, excluded=frozenset(TARGETS[1:2]), **asked)[0].target == TARGETS[0]
    assert pricer.choose(query, [table], held, excluded=frozenset(TARGETS[:2]), **asked) is None


def test_what_a_question_says_of_a_rank_is_forgotten_after_it():
    policy, query = CacheAffinity(PolicyWeights(), Coefficients()), ask(9_000)
    pricer, (table,) = NativePricer(policy, seed=SEED), stand_idle(2).tables()
    asked = {"now_s": 0.0, "options": {}}
    bare = pricer.choose(query, [table], Held({}, {}, 1.0), excluded=frozenset(), given={}, **asked)
    held = Held({TARGETS[0]: 8_000}, {TARGETS[1]: 500}, 0.5)
    first, _ = pricer.choose(query, [table], held, excluded=frozenset(), given={}, **asked)
    assert (list(first.costs.overlap_tokens), list(first.costs.predicted_overlap_tokens)) == ([8_000, 0], [0, 250])
    pricer.choose(query, [table], held, excluded=frozenset(TARGETS[:1]), given={TARGETS[1]: [1.0] * 9}, **asked)
    assert pricer.choose(query, [table], Held({}, {}, 1.0), excluded=frozenset(), given={}, **asked) == bare


def test_of_ranks_whose_numbers_in_a_tie_are_equal_the_last_by_name_wins():
    core = import_module("router.policy._pricing")
    policy = CacheAffinity(PolicyWeights(), Coefficients())
    for order in (TARGETS[:3], TARGETS[2::-1]):
        table, stand = core.Table(list(order), [77, 77, 77], policy.coefficients), stand_idle(3)
        table.write(list(stand.standings._standings.values()), stand.ledger, stand.live, stand.paces, NOW_S)
        pricer = core.Pricer(policy.weights, policy.coefficients, (1e-3, 0.02), draw)
        target, tied_count, *_ = pricer.choose([table], ask(9), {}, {}, 1.0, 0.0, frozenset(), {}, SEED, FEW_RANKS)
        assert (target, tied_count) == (TARGETS[2], 3)


@settings(deadline=None, max_examples=150)
@given(policy=policies, query=queries, ranks=fleets, pace=st.floats(0.1, 1.0), extra=st.integers(0, 5_000))
def test_a_home_chosen_without_a_look_at_the_others_would_be_chosen_with_one(policy, query, ranks, pace, extra):
    tables, held = Stand(ranks, costs=policy.coefficients).tables(), hold(ranks)
    held = Held({target: tokens + extra for target, tokens in held.confirmed.items()}, held.expected, 1.0)
    pricer = NativePricer(policy, seed=SEED)
    least_ratio = min(pace, *(one["ratios"].prefill for one in ranks if one["ratios"]), 1.0)
    found = pricer.choose_home(query, tables, held, now_s=NOW_S, least_prefill_ratio=least_ratio)
    if found is None or any(table.odd for table in tables):
        return
    alone, seat = found
    among = pricer.choose(query, tables, held, now_s=NOW_S, excluded=frozenset(), given={}, options={})
    assert alone.target == query.home
    if among is not None:
        choice, other = among
        assert (choice.target, choice.tied_count) == (query.home, 1)
        assert alone.candidates[0] in choice.candidates
        assert repr(seat) == repr(other)


@pytest.mark.parametrize(("prompt_tokens", "is_alone"), [(40, False), (60, True)])
def test_a_home_that_another_rank_may_tie_with_is_not_chosen_alone(prompt_tokens, is_alone):
    policy = CacheAffinity(PolicyWeights(), Coefficients())
    query = PlacementQuery(request_id=RequestId("r"), prompt_tokens=prompt_tokens, home=TARGETS[0])
    (table,) = stand_idle(2).tables()
    held = Held({TARGETS[0]: prompt_tokens - 1}, {}, 1.0)
    # 50 tokens take a millisecond.
    alone = NativePricer(policy, seed=SEED).choose_home(query, [table], held, now_s=0.0, least_prefill_ratio=1.0)
    assert (alone is not None) == is_alone


@pytest.mark.parametrize(
    ("now_s", "own_s", "others_s"),
    [(8.0, 4.0 + 3.0, 60.0), (11.0, 3.0 + 1.0, 59.0), (20.0, 0.5, 50.0), (40.0, 0.5, 30.0), (40.1, 0.5, 0.0)],
)
def test_the_wait_goes_by_with_the_clock_and_a_report_counts_for_its_time(now_s, own_s, others_s):
    policy = CacheAffinity(PolicyWeights(), Coefficients())
    load = {"prefilling": 1, "settled_at_s": 10.0, "remaining_s": 4.0, "floor_s": 0.5}
    report = ReportedLoad(
        reported_at_s=10.0,
        running_requests=0,
        waiting_requests=1,
        waiting_tokens=60_000,
        used_tokens=None,
        capacity_tokens=None,
        own=OwnLoad(),
        s_per_token=1e-3,
    )
    stand = Stand([{"load": load, "report": report}], now_s=12.0)
    stand.ledger.words["other"] = Word(9.0, {TARGETS[0]: RankPartial(target=TARGETS[0], waiting_s=3.0)})
    choice, seat = NativePricer(policy, seed=SEED).choose(
        ask(9), stand.tables(), Held({}, {}, 1.0), now_s=now_s, excluded=frozenset(), given={}, options={}
    )
    assert seat.wait_s == own_s + others_s
    assert choice.candidates[0].terms["wait"] == own_s + others_s


@pytest.mark.parametrize("cost_s", [math.nan, math.inf, -math.inf])
def test_where_some_cost_is_no_number_the_terms_are_asked(cost_s):
    policy = CacheAffinity(PolicyWeights(), Coefficients())
    load = {"prefilling": 9, "settled_at_s": 0.0, "remaining_s": 5.0, "floor_s": 0.5}
    (table,) = Stand([{}, {}, {"load": load}]).tables()
    given = {TARGETS[1]: [cost_s, *[0.0] * 8]}
    pricer, asked = NativePricer(policy, seed=SEED), {"now_s": 0.0, "excluded": frozenset(), "options": {}}
    assert pricer.choose(ask(9), [table], Held({}, {}, 1.0), given=given, **asked) is None
    given = {TARGETS[1]: [1.0, *[0.0] * 8]}
    assert pricer.choose(ask(9), [table], Held({}, {}, 1.0), given=given, **asked)[0].target == TARGETS[0]


def test_a_tie_goes_home_else_where_the_hash_of_the_request_says():
    policy, stand = CacheAffinity(PolicyWeights(), Coefficients()), stand_idle(len(TARGETS))
    views, tables = [stand.view(target) for target in TARGETS], stand.tables()
    pricer, asked = NativePricer(policy, seed=SEED), {"now_s": 0.0, "excluded": frozenset(), "given": {}, "options": {}}
    for home in (None, *TARGETS):
        for n in range(9):
            query = PlacementQuery(request_id=RequestId(f"r{n}"), prompt_tokens=9, home=home)
            choice, _ = pricer.choose(query, tables, Held({}, {}, 1.0), **asked)
            assert choice.target == policy.choose(query, views, SEED).target
            assert choice.tied_count == len(TARGETS)
            assert home in {None, choice.target}
