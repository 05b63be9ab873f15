"""A pair is chosen jointly, each leg carries its own load for its own time, and whatever is missing is said."""

from collections import Counter
from random import Random

import pytest

from router.fleet.breaker import Verdict
from router.fleet.role import Engine, Role
from router.placement.instructions import RejectReason
from router.placement.stimuli import FleetChanged, Outcome, PrefillEnded, RequestArrived, TargetJudged
from wire.ids import RequestId, SessionId, Target, WorkerId

POLICIES = ("cache_affinity", "round_robin", "random", "least_load", "session_hash", "power_of_two", "overlap_linear")


def ranks_of(prefix, count):
    return tuple(Target(WorkerId(f"{prefix}{n}"), 0) for n in range(count))


PREFILLS, DECODES = ranks_of("p", 2), ranks_of("d", 2)


@pytest.fixture
def make_pairs(make_world, facts):
    """Builds worlds of prefill and decode ranks, and of ranks that do both."""

    def make(prefills=PREFILLS, decodes=DECODES, whole=(), *, policy="cache_affinity", zones=None, **settings):
        world = make_world(policy, **settings)
        roles = [(Role.PREFILL, prefills), (Role.DECODE, decodes), (Role.AGGREGATED, whole)]
        world.ranks = {
            target: facts(target, role=role, engine=Engine.SGLANG, zone=(zones or {}).get(target))
            for role, targets in roles
            for target in targets
        }
        world.placer.handle(FleetChanged(now_s=0.0, ranks=tuple(world.ranks.values())))
        return world

    return make


def end_prefill(world, name, now_s, outcome=Outcome.DONE, cached_tokens=None):
    end = PrefillEnded(now_s=now_s, request_id=RequestId(name), outcome=outcome, cached_tokens=cached_tokens)
    assert world.placer.handle(end) == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_places_pairs_and_spreads_both_legs(make_pairs, policy):
    world = make_pairs(policy=policy)
    placed = [world.arrive(f"r{n}", n * 20.0, session=f"s{n}") for n in range(24)]
    assert {place.prefill for place in placed} == set(PREFILLS)
    assert {place.target for place in placed} == set(DECODES)
    assert all(place.decision.prefill == place.prefill for place in placed)
    assert "prefill on" in placed[0].decision.reason


def test_B10_each_leg_is_charged_for_its_own_time(make_pairs):
    world = make_pairs(PREFILLS[:1], DECODES[:1])
    (prefill,), (decode,) = PREFILLS[:1], DECODES[:1]
    world.arrive("r1", prompt_tokens=50_000)
    assert world.totals(prefill).waiting_tokens == 50_000
    assert world.totals(decode).waiting_s == 0.0
    assert world.totals(decode).waiting_tokens == 0
    assert world.totals(decode).open_requests == 1
    end_prefill(world, "r1", 1.0)
    assert world.totals(prefill, 1.0).open_requests == 0
    world.first_token("r1", 1.1)
    assert world.totals(decode, 1.1).decoding_requests == 1
    world.end("r1", 61.0)
    assert world.totals(decode, 61.0).open_requests == 0
    assert world.placer.ignored.late == 0


def test_B10_the_first_token_frees_a_prefill_rank_that_has_not_answered_yet(make_pairs):
    world = make_pairs(PREFILLS[:1], DECODES[:1])
    world.arrive("r1", prompt_tokens=50_000)
    world.first_token("r1", 0.5)
    assert world.totals(PREFILLS[0], 0.5).open_requests == 0
    assert world.totals(DECODES[0], 0.5).decoding_requests == 1


def test_B08_a_cold_prompt_goes_where_no_prefill_is_queued(make_pairs):
    prefills = ranks_of("p", 3)
    world = make_pairs(prefills)
    world.report(prefills[0], waiting=83)
    for target in (*prefills[1:], *DECODES):
        world.report(target)
    chosen = [world.arrive(f"r{n}", prompt_tokens=4_000).prefill for n in range(20)]
    assert set(chosen) == set(prefills[1:])


def test_the_decode_rank_that_holds_the_prompt_is_chosen_and_its_prefill_cache_counts(make_pairs):
    world = make_pairs()
    place = world.arrive("r1", prompt_tokens=60_000, overlaps={PREFILLS[1]: 50_000, DECODES[0]: 59_000})
    assert (place.prefill, place.target) == (PREFILLS[1], DECODES[0])
    assert place.decision.predicted_cached_tokens == 50_000
    assert world.totals(PREFILLS[1]).waiting_tokens == 10_000


def test_a_transfer_across_zones_is_dearer_so_that_a_pair_stays_in_one(make_pairs):
    zones = {PREFILLS[0]: "a", PREFILLS[1]: "b", DECODES[0]: "a", DECODES[1]: "b"}
    world = make_pairs(zones=zones)
    placed = [world.arrive(f"r{n}", n * 20.0, prompt_tokens=80_000) for n in range(12)]
    assert Counter(zones[place.prefill] == zones[place.target] for place in placed) == {True: 12}


def test_a_fleet_of_both_kinds_gives_a_request_to_what_costs_less(make_pairs):
    (whole,) = ranks_of("w", 1)
    world = make_pairs(whole=(whole,))
    place = world.arrive("r1", prompt_tokens=60_000, overlaps={whole: 59_000})
    assert (place.target, place.prefill) == (whole, None)
    place = world.arrive("r2", prompt_tokens=60_000, overlaps={PREFILLS[0]: 59_000, DECODES[1]: 59_000})
    assert (place.prefill, place.target) == (PREFILLS[0], DECODES[1])
    baseline = make_pairs(whole=(whole,), policy="round_robin")
    kinds = Counter(baseline.arrive(f"r{n}").prefill is None for n in range(60))
    assert min(kinds[True], kinds[False]) > 5


def test_a_large_fleet_of_pairs_is_searched_like_a_small_one(make_pairs):
    prefills, decodes = ranks_of("p", 40), ranks_of("d", 40)
    held = {prefills[17]: 30_000, decodes[23]: 31_000}
    loads = [(f"busy{n}", {}) for n in range(30)]
    chosen = []
    for is_exhaustive in (False, True):
        world = make_pairs(prefills, decodes, is_exhaustive=is_exhaustive)
        for name, overlaps in loads:
            world.arrive(name, prompt_tokens=9_000, overlaps=overlaps)
        place = world.arrive("r1", prompt_tokens=32_000, overlaps=held)
        chosen.append((place.prefill, place.target))
    assert chosen == [(prefills[17], decodes[23])] * 2


@pytest.mark.parametrize("seed", range(6))
def test_of_large_pools_no_pair_that_was_left_out_costs_less(make_pairs, seed):
    rng, prefills, decodes = Random(seed), ranks_of("p", 30), ranks_of("d", 30)
    zones = {target: rng.choice("ab") for target in (*prefills, *decodes)} if seed % 2 else None
    world = make_pairs(prefills, decodes, zones=zones)
    for n in range(60):
        now_s, held = n * 0.2, rng.sample((*prefills, *decodes), 6)
        arrival = RequestArrived(
            now_s=now_s,
            request_id=RequestId(f"r{n}"),
            model="toy",
            prompt_tokens=rng.randrange(500, 40_000),
            session=SessionId(f"s{rng.randrange(20)}"),
            overlaps={target: rng.randrange(40_000) for target in held},
            excluded=frozenset(rng.sample(decodes, 2)),
        )
        dry = world.placer.explain(arrival)
        (placed,) = world.placer.handle(arrival)
        assert len(placed.decision.costs) < len(dry.costs) == 30 * 28
        assert min(placed.decision.costs.totals_s) == pytest.approx(min(dry.costs.totals_s), rel=1e-12)
        if n % 2:
            world.first_token(f"r{n}", now_s + 0.1)


def test_a_session_stays_with_the_rank_that_generated_it(make_pairs):
    world = make_pairs()
    first = world.serve("r1", session="s", prompt_tokens=2_000)
    assert world.home("s", 2.0) == first
    assert {world.serve(f"t{n}", 3.0 + n, session="s", prompt_tokens=2_000) for n in range(6)} == {first}


@pytest.mark.parametrize("lost", ["prefill", "decode", "both"])
def test_a_rank_that_is_lost_takes_its_leg_and_no_other(make_pairs, lost):
    world = make_pairs(PREFILLS[:1], DECODES[:1])
    world.arrive("r1", prompt_tokens=1_000)
    gone = {"prefill": PREFILLS[:1], "decode": DECODES[:1], "both": (*PREFILLS, *DECODES)}[lost]
    kept = tuple(facts for target, facts in world.ranks.items() if target not in gone)
    world.placer.handle(FleetChanged(now_s=1.0, ranks=kept))
    world.placer.check_invariants()
    assert (RequestId("r1") in world.placer.ledger) == (lost == "prefill")
    if lost == "prefill":
        world.end("r1", 2.0)
    assert world.placer.ledger.open_requests() == ()


def test_a_failed_prefill_frees_its_rank_and_the_request_goes_on_to_its_end(make_pairs):
    world = make_pairs(PREFILLS[:1], DECODES[:1])
    world.arrive("r1")
    end_prefill(world, "r1", 0.1, Outcome.ERROR)
    assert world.totals(PREFILLS[0], 0.1).open_requests == 0
    end_prefill(world, "r1", 0.2)
    assert world.placer.ignored.late == 1
    world.end("r1", 0.3, Outcome.ERROR)
    assert world.placer.ledger.open_requests() == ()


def test_a_leg_that_was_refused_is_placed_anew_and_a_finished_prefill_is_not_repeated(make_pairs):
    world = make_pairs()
    first = world.arrive("r1", prompt_tokens=4_000)
    end_prefill(world, "r1", 0.1)
    world.end("r1", 0.2, Outcome.WORKER_LOST)
    again = world.arrive("r1", 0.3, prompt_tokens=4_000, excluded=frozenset({first.target}), prefilled_by=first.prefill)
    assert again.prefill == first.prefill
    assert again.target != first.target
    assert world.totals(first.prefill, 0.3).open_requests == 0
    world.end("r1", 0.4)


def test_a_pinned_request_generates_where_its_state_is(make_pairs):
    world = make_pairs()
    arrival = RequestArrived(
        now_s=0.0, request_id=RequestId("r0"), model="toy", prompt_tokens=10, session=SessionId("s"), pin="response:x"
    )
    world.placer.pins.store("response:x", DECODES[1], 0.0)
    (place,) = world.placer.handle(arrival)
    assert place.target == DECODES[1]
    assert place.prefill in PREFILLS


@pytest.mark.parametrize(
    ("prefills", "decodes", "takes_pair", "reason"),
    [
        (PREFILLS, (), True, RejectReason.NO_PARTNER),
        ((), DECODES, True, RejectReason.NO_PARTNER),
        (PREFILLS, DECODES, False, RejectReason.ONLY_PAIRS),
    ],
)
def test_what_is_missing_is_said(make_pairs, prefills, decodes, takes_pair, reason):
    world = make_pairs(prefills, decodes)
    refused = world.arrive("r1", takes_pair=takes_pair)
    assert refused.reason is reason
    assert world.placer.ledger.open_requests() == ()


def test_legs_of_different_engines_are_not_paired(make_pairs, facts):
    world = make_pairs()
    ranks = (
        facts(PREFILLS[0], role=Role.PREFILL, engine=Engine.SGLANG),
        facts(PREFILLS[1], role=Role.PREFILL, engine=Engine.VLLM),
        facts(DECODES[0], role=Role.DECODE, engine=Engine.VLLM),
    )
    world.placer.handle(FleetChanged(now_s=0.0, ranks=ranks))
    place = world.arrive("r1", overlaps={PREFILLS[0]: 900})
    assert (place.prefill, place.target) == (PREFILLS[1], DECODES[0])


def test_the_decision_shows_every_pair_with_its_terms(make_pairs):
    world = make_pairs()
    told = world.arrive("r1", prompt_tokens=9_000).decision.to_json()
    pairs = {(each["prefill"]["worker"], each["target"]["worker"]) for each in told["candidates"]}
    assert pairs == {(p.worker, d.worker) for p in PREFILLS for d in DECODES}
    assert {"wait", "reuse", "transfer", "decode"} <= set(told["candidates"][0]["terms"])


def test_a_leg_whose_ranks_all_fail_is_what_is_missing(make_pairs):
    world = make_pairs()
    for target in PREFILLS:
        for _ in range(20):
            world.placer.handle(TargetJudged(now_s=0.0, target=target, verdict=Verdict.FAILED))
    assert world.arrive("r1").reason is RejectReason.NO_PARTNER


def test_legs_that_are_charged_and_not_remembered_are_found(make_pairs):
    world = make_pairs()
    world.arrive("r1")
    legs, world.placer._legs._open = world.placer._legs._open, {}
    with pytest.raises(AssertionError, match="legs charged"):
        world.placer.check_invariants()
    world.placer._legs._open = legs
