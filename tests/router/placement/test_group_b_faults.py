"""Public faults of other routers' policies, each given, when and then."""

from random import Random

import pytest

from router.config.fleet import build_fleet_config
from router.errors import ConfigError
from router.placement.instructions import Place, RejectReason
from router.placement.settings import RequestLimit
from router.placement.stimuli import FleetChanged, Outcome
from router.sessions.identity import find_session
from wire.ids import Target, WorkerId

POLICIES = ("cache_affinity", "round_robin", "random", "least_load", "session_hash")


def workers(count, ranks=1):
    return tuple(Target(WorkerId(f"w{worker}"), rank) for worker in range(count) for rank in range(ranks))


@pytest.mark.parametrize("policy", POLICIES)
def test_B01_unrelated_requests_one_at_a_time_reach_all_idle_workers_alike(make_world, policy):
    world = make_world(policy)
    targets = workers(4)
    world.fleet(targets)
    counts = dict.fromkeys(targets, 0)
    for n in range(400):
        counts[world.serve(f"r{n}", n * 120.0)] += 1
    assert all(60 <= count <= 140 for count in counts.values()), counts


def test_B02_a_miss_goes_by_load_and_not_to_the_emptier_cache(make_world):
    world = make_world()
    busy, full = workers(2)
    world.fleet((busy, full))
    world.report(busy, running=8, waiting=32, waiting_tokens=64_000, used_tokens=10_000, capacity_tokens=1_000_000)
    world.report(full, used_tokens=999_000, capacity_tokens=1_000_000)
    assert {world.serve(f"r{n}", 0.0, prompt_tokens=2_000) for n in range(20)} == {full}


def test_B03_affinity_survives_imbalance_and_yields_to_a_much_longer_queue(make_world):
    world = make_world()
    light, near, heavy = workers(3)
    world.fleet((light, near, heavy))
    for target, waiting in ((light, 10), (near, 11), (heavy, 30)):
        world.report(target, waiting=waiting, waiting_tokens=waiting * 2_000)
    assert world.serve("r1", prompt_tokens=21_000, overlaps={near: 20_000}) == near
    assert world.serve("r2", prompt_tokens=21_000, overlaps={heavy: 20_000}) != heavy


def test_B04_a_thousand_requests_cancelled_anywhere_leave_no_load(make_world):
    world = make_world()
    targets = workers(4)
    world.fleet(targets)
    rng = Random(4)
    for n in range(1_000):
        name, at_s = f"r{n}", n * 0.01
        world.arrive(name, at_s, prompt_tokens=rng.randrange(1, 50_000))
        if rng.random() < 0.6:
            world.first_token(name, at_s)
            world.progress(name, rng.randrange(1, 400))
        if rng.random() < 0.3:
            world.end(name, at_s, outcome=Outcome.ERROR)
            world.arrive(name, at_s, prompt_tokens=100)
        world.end(name, at_s, outcome=Outcome.CANCELLED)
        world.end(name, at_s, outcome=Outcome.CANCELLED)
    assert len(world.placer.ledger) == 0
    for target in targets:
        totals = world.totals(target, 20.0)
        assert (totals.open_requests, totals.waiting_s, totals.waiting_tokens, totals.context_tokens) == (0, 0, 0, 0)


@pytest.mark.parametrize("policy", ["cache_affinity", "session_hash"])
def test_B05_two_routers_with_the_same_view_choose_the_same_rank_for_a_session(make_world, policy):
    targets = workers(4, ranks=2)
    routers = [make_world(policy, seed=seed) for seed in (1, 2)]
    for router in routers:
        router.fleet(targets)
    home = routers[0].serve("r0", session="s", prompt_tokens=30_000)
    held = {home: 30_000}
    for turn in range(1, 9):
        assert (
            routers[turn % 2].serve(f"r{turn}", turn * 10.0, session="s", prompt_tokens=31_000, overlaps=held) == home
        )


def test_B06_a_session_sticks_to_its_rank_and_each_turn_renews_it(make_world):
    world = make_world(home_idle_ttl_s=100.0)
    targets = workers(1, ranks=4)
    world.fleet(targets)
    home = world.serve("r0", session="s", prompt_tokens=40_000)
    for turn in range(1, 6):
        at_s = turn * 90.0
        world.report(home, at_s, running=1)
        assert world.serve(f"r{turn}", at_s, session="s", prompt_tokens=41_000, overlaps={home: 40_000}) == home
    assert world.home("s", 540.0) == home


def test_B07_a_session_whose_rank_is_gone_is_placed_once_elsewhere_and_does_not_bounce_back(make_world):
    world = make_world()
    targets = workers(3)
    world.fleet(targets)
    first = world.serve("r0", session="s", prompt_tokens=20_000)
    world.fleet([target for target in targets if target != first], 10.0)
    second = world.serve("r1", 10.0, session="s", prompt_tokens=20_500)
    assert second != first
    world.fleet(targets, 20.0)
    for turn in range(2, 6):
        held = {second: 20_000}
        at_s = 20.0 + turn
        assert world.serve(f"r{turn}", at_s, session="s", prompt_tokens=21_000, overlaps=held) == second


def test_B08_cold_requests_go_where_no_prefill_is_queued(make_world):
    world = make_world()
    queued, *idle = workers(3)
    world.fleet((queued, *idle))
    world.report(queued, waiting=83)
    for target in idle:
        world.report(target)
    chosen = [world.arrive(f"r{n}", prompt_tokens=4_000).target for n in range(20)]
    assert set(chosen) == set(idle)


def test_B09_what_the_engine_reports_and_what_the_router_reckons_are_kept_apart(make_world):
    world = make_world()
    (target,) = workers(1)
    world.fleet((target,))
    for n in range(10):
        world.report(target, n * 1.0, used_tokens=990_000, capacity_tokens=1_000_000)
        world.serve(f"r{n}", n * 1.0, prompt_tokens=1_000)
        assert world.placer.fleet.find(target).find_resident_tokens() == 990_000


def test_B10_the_first_token_takes_the_prefill_load_off(make_world):
    world = make_world()
    (target,) = workers(1)
    world.fleet((target,))
    world.arrive("r1", prompt_tokens=50_000)
    world.first_token("r1", 1.0)
    totals = world.totals(target, 1.0)
    assert (totals.waiting_s, totals.waiting_tokens, totals.waiting_requests) == (0.0, 0, 0)
    assert totals.decoding_requests == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_B12_no_policy_chooses_a_rank_that_is_out_and_a_session_hash_comes_back(make_world, facts, policy):
    world = make_world(policy)
    targets = workers(4)
    world.fleet(targets)
    home = world.serve("r0", session="s")
    world.placer.handle(
        FleetChanged(now_s=1.0, ranks=tuple(facts(target, healthy=target != home) for target in targets))
    )
    away = {world.serve(f"out{n}", 1.0 + n, session="s", overlaps={home: 900}) for n in range(12)}
    assert home not in away
    world.fleet(targets, 20.0)
    if policy == "session_hash":
        assert len(away) == 1
        assert world.serve("back", 20.0, session="s") == home


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("headers", [{}, {"X-Session-ID": ""}, {"X-Session-ID": " \t "}])
def test_B13_requests_without_a_session_are_spread(make_world, policy, headers):
    world = make_world(policy)
    targets = workers(4)
    world.fleet(targets)
    session = find_session(headers, {}).session
    assert session is None
    assert {world.serve(f"r{n}", n * 120.0, session=session) for n in range(60)} == set(targets)


@pytest.mark.parametrize("policy", POLICIES)
def test_B14_only_ranks_that_a_worker_really_serves_are_chosen(make_world, policy):
    world = make_world(policy)
    low = [Target(WorkerId("low"), rank) for rank in range(8)]
    high = [Target(WorkerId("high"), rank) for rank in range(8, 16)]
    world.fleet([*low, *high])
    hoped = {Target(WorkerId("high"), 0): 900, Target(WorkerId("gone"), 3): 900}
    placed = [world.arrive(f"r{n}", session=f"s{n}", overlaps=hoped) for n in range(64)]
    assert all(isinstance(instruction, Place) and instruction.target in {*low, *high} for instruction in placed)
    assert any(instruction.target in high for instruction in placed)
    world.fleet(low, 1.0)
    refused = world.arrive("none", 1.0, excluded=frozenset(low))
    assert refused.reason is RejectReason.NO_WORKER


def test_B14_two_workers_that_would_own_the_same_ranks_are_refused_at_registration():
    twice = {"workers": [{"url": "http://a:1", "id": "x", "dp_size": 8}, {"url": "http://b:1", "id": "x"}]}
    with pytest.raises(ConfigError, match=r"workers\.1\.id: 'x': the same id as workers\.0"):
        build_fleet_config(twice, "fleet.yaml")


def test_B15_a_limit_that_names_no_worker_is_refused_and_one_that_does_holds(make_world):
    config = {"workers": [{"url": "http://a:1", "id": "w0"}], "admission": [{"workers": ["w"], "max_requests": 3}]}
    with pytest.raises(ConfigError, match=r"admission\.0\.workers\.0: 'w': .*none of that id; did you mean 'w0'"):
        build_fleet_config(config, "fleet.yaml")
    world = make_world(limits=(RequestLimit(workers=frozenset({WorkerId("w0")}), max_requests=3),))
    world.fleet(workers(1, ranks=2))
    placed = [world.arrive(f"r{n}") for n in range(4)]
    assert [isinstance(instruction, Place) for instruction in placed] == [True, True, True, False]
    assert placed[3].reason is RejectReason.OVERLOADED
    world.end("r0")
    assert isinstance(world.arrive("r4"), Place)
    world.fleet(workers(2, ranks=2))
    assert {world.arrive(f"s{n}").target.worker for n in range(6)} == {"w1"}
