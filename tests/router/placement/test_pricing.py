"""Who prices ranks: compiled terms where they were built, the terms in Python without them; the choice is the same."""

from types import MappingProxyType

import pytest

from router.fleet.tiers import ReuseOption
from router.placement import standings
from router.placement.stimuli import FleetChanged
from router.placement.views import REPORT_TTL_S
from router.policy import native
from router.policy.native import FEW_RANKS, pricing_available
from wire.ids import Target, WorkerId

MANY = tuple(Target(WorkerId(f"w{n:02}"), 0) for n in range(3 * FEW_RANKS))


def live(world, targets):
    """Decisions of a stretch of traffic, the last ones with other tiers and figures beyond belief."""
    world.fleet(targets, capacity_tokens=100_000)
    placed = []
    for n in range(24):
        way = ReuseOption(reach="host", reuse_tokens=6_000, host_tokens=6_000, host_bytes=1 << 30)
        options = {targets[n % 3 % len(targets)]: (way,)} if n > 12 else {}
        overlaps = {targets[n % len(targets)]: 5_000}
        placed.append(
            world.arrive(f"r{n}", n * 0.5, session=f"s{n % 5}", prompt_tokens=9_000, overlaps=overlaps, options=options)
        )
        if n == 18:
            world.report(targets[0], n * 0.5, running=1 << 45, waiting=3)
        if n % 2:
            world.first_token(f"r{n}", n * 0.5 + 0.1)
    return [instruction.decision for instruction in placed]


@pytest.mark.parametrize("count", [1, FEW_RANKS, len(MANY)])
def test_without_the_native_module_the_terms_in_python_price_every_rank(make_world, monkeypatch, count):
    ours = live(make_world(), MANY[:count])
    monkeypatch.setattr(native, "_native", None)
    assert not pricing_available()
    theirs = live(make_world(), MANY[:count])
    assert [decision.target for decision in ours] == [decision.target for decision in theirs]
    assert [decision.predicted_ttft_s for decision in ours] == [decision.predicted_ttft_s for decision in theirs]
    assert {len(decision.candidates) for decision in theirs} == {count}
    if count <= FEW_RANKS:
        assert [decision.to_json() for decision in ours] == [decision.to_json() for decision in theirs]


@pytest.mark.skipif(not pricing_available(), reason="the native module was not built (no C++ compiler)")
def test_of_a_large_fleet_a_decision_tells_of_the_home_the_chosen_and_the_cheapest(make_world):
    told = live(make_world(), MANY)
    assert max(len(decision.candidates) for decision in told) in {FEW_RANKS, FEW_RANKS + 1}
    for decision in told:
        listed = [entry.target for entry in decision.candidates]
        assert decision.target in listed
        assert listed == sorted(listed)


def test_a_session_leaves_its_home_for_what_another_rank_is_only_expected_to_hold(make_world):
    world = make_world()
    world.fleet(MANY)
    prompt = {"prompt_tokens": 60_000, "chain_hashes": tuple(range(937)), "chain_block_tokens": 64}
    home = world.serve("r1", session="s", **prompt)
    sibling = world.arrive("r2", 1.0, excluded=frozenset({home}), **prompt).target
    world.arrive("r3", 1.0, prompt_tokens=75_000, excluded=frozenset(MANY) - {home})
    world.first_token("r2", 3.0)
    moved = world.arrive("r4", 3.0, session="s", overlaps={home: 59_968}, **prompt)
    assert moved.target == sibling
    assert moved.decision.reason.startswith(f"left home {home}")


@pytest.mark.skipif(not pricing_available(), reason="the native module was not built (no C++ compiler)")
def test_rows_that_changed_do_not_pile_up_while_sessions_stay_at_home(make_world, monkeypatch):
    monkeypatch.setattr(standings, "MAX_UNWRITTEN", 4)
    world = make_world()
    world.fleet(MANY)
    for n, target in enumerate(MANY):
        world.arrive(f"first{n}", session=f"s{n}", prompt_tokens=9_000, excluded=frozenset(MANY) - {target})
        world.first_token(f"first{n}", 1.0)
        world.end(f"first{n}", 1.0)
    (pool,) = world.placer._books.standings.pools.values()
    for n, target in enumerate(MANY):
        turn = world.arrive(f"turn{n}", 2.0, session=f"s{n}", prompt_tokens=60_000, overlaps={target: 59_000})
        assert (turn.target, len(turn.decision.candidates)) == (target, 1)
    assert len(pool.changed) <= 4 + 2


def test_a_rank_that_left_its_pool_is_priced_no_more(make_world, facts):
    world = make_world()
    world.fleet(MANY)
    lost = world.serve("r1", prompt_tokens=9_000)
    world.placer.handle(FleetChanged(now_s=1.0, ranks=tuple(facts(each, healthy=each != lost) for each in MANY)))
    moved = world.arrive("r2", 1.0, prompt_tokens=9_500, overlaps={lost: 9_000})
    assert moved.target != lost
    assert lost not in [entry.target for entry in moved.decision.candidates]


def test_what_lies_where_may_be_told_by_any_mapping(make_world):
    world = make_world()
    world.fleet(MANY)
    placed = world.arrive("r1", overlaps=MappingProxyType({MANY[3]: 900}))
    assert (placed.target, placed.decision.predicted_cached_tokens) == (MANY[3], 900)
    assert world.placer.ignored.failed_choices == 0


def test_reports_of_a_fleet_that_nobody_asks_leave_nothing_behind(make_world):
    world = make_world()
    world.fleet(MANY)
    world.serve("r1")
    for second in range(1_000):
        for target in MANY:
            world.report(target, 1.0 + second, running=second % 7)
    assert len(world.placer._books.standings._reports) <= len(MANY) * (REPORT_TTL_S + 2)
