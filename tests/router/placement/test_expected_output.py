"""What placement expects of answers and of sessions that pause, from the stimuli to the terms of a decision."""

import pytest

from router.config.policy import Coefficients, PolicyWeights
from router.placement.stimuli import Outcome, RequestArrived
from router.policy.steps import context_token_s

NOTHING = dict.fromkeys(PolicyWeights.model_fields, 0.0)
TERMS = ["wait", "admission", "reuse", "stall", "decode", "returns", "balance", "settle", "spread"]


def only(**weights):
    return PolicyWeights(**{**NOTHING, **weights})


def terms(instruction, name):
    return {entry.target: entry.terms[name] for entry in instruction.decision.candidates}


def answer(world, name, output_tokens, **more):
    world.arrive(name)
    world.first_token(name)
    world.end(name, output_tokens=output_tokens, **more)


def test_answers_teach_what_to_expect_of_the_next_ones(world):
    outputs = world.placer.ledger.outputs
    before = outputs.expected_tokens
    for n in range(200):
        answer(world, f"r{n}", 30_000)
    assert outputs.expected_tokens > 20_000 > before
    target = world.arrive("next", prompt_tokens=1_000).target
    assert world.totals(target).open_tokens == 1_000 + outputs.expected_tokens
    assert world.totals(target).joint_output_tokens == outputs.find_joint_tokens(0) > 10_000


@pytest.mark.parametrize(
    ("outcome", "output_tokens"), [(Outcome.CANCELLED, 9_000), (Outcome.ERROR, 9_000), (Outcome.DONE, None)]
)
def test_answers_that_broke_off_or_whose_length_nobody_told_teach_nothing(world, outcome, output_tokens):
    outputs = world.placer.ledger.outputs
    before = [outputs.find_remaining_tokens(tokens) for tokens in (0, 100, 5_000)]
    for n in range(200):
        answer(world, f"r{n}", output_tokens, outcome=outcome)
    assert [outputs.find_remaining_tokens(tokens) for tokens in (0, 100, 5_000)] == before


@pytest.mark.parametrize(("limit", "planned", "joint"), [(10, 10, 10), (0, 0, 1), (-5, 0, 1)])
def test_a_clients_limit_cuts_what_is_planned_for_and_what_others_meet(world, limit, planned, joint):
    target = world.arrive("r1", prompt_tokens=1_000, max_output_tokens=limit).target
    totals = world.totals(target)
    assert totals.open_tokens == 1_000 + planned
    assert (totals.joint_output_tokens, totals.joint_context_tokens) == (joint, joint * 1_000)
    world.first_token("r1", 1.0)
    assert world.totals(target, 1.0).remaining_output_tokens == joint


@pytest.mark.parametrize("limit", [None, 10**6, 10**400])
def test_a_limit_beyond_what_is_expected_changes_nothing(world, limit):
    target = world.arrive("r1", prompt_tokens=1_000, max_output_tokens=limit).target
    outputs = world.placer.ledger.outputs
    assert world.totals(target).open_tokens == 1_000 + outputs.expected_tokens
    assert world.totals(target).joint_output_tokens == outputs.find_joint_tokens(0)


def test_a_short_answer_slows_and_is_slowed_for_its_own_length_only(make_world, ranks):
    """Term `decode` of a second request, by the request that is open: as long as the shorter of the two."""
    costs = Coefficients()
    for limit in (1, 20):
        world = make_world(weights=only(decode=1.0))
        world.fleet(ranks)
        busy = world.arrive("r1", prompt_tokens=4_000, max_output_tokens=limit).target
        decode_s = terms(world.arrive("r2", prompt_tokens=6_000), "decode")
        context_s = context_token_s(None, costs)
        expected_s = limit * (2 * costs.decode_s_per_request + context_s * (4_000 + 6_000))
        assert decode_s[busy] == pytest.approx(expected_s)
        assert {cost_s for target, cost_s in decode_s.items() if target != busy} == {0.0}


def test_a_prefill_goes_where_it_holds_up_fewer_and_a_hit_does_not_mind(make_world, ranks):
    world = make_world(weights=only(stall=1.0))
    world.fleet(ranks[:2])
    busy = world.arrive("r1").target
    idle = next(rank for rank in ranks[:2] if rank != busy)
    world.first_token("r1")
    cold = world.arrive("r2", prompt_tokens=20_000)
    assert cold.target == idle
    assert terms(cold, "stall")[idle] == 0.0
    world.end("r2")
    hit = terms(world.arrive("r3", prompt_tokens=20_000, overlaps={busy: 19_999}), "stall")
    assert hit[busy] < terms(cold, "stall")[busy] / 1_000


def test_requests_that_others_queued_are_held_up_by_the_engine_and_not_by_this_one(make_world, ranks):
    world = make_world(weights=only(stall=1.0))
    world.fleet(ranks[:2])
    world.report(ranks[0], running=0, waiting=30)
    world.report(ranks[1], running=1)
    stall_s = terms(world.arrive("r1", prompt_tokens=20_000), "stall")
    assert stall_s[ranks[0]] == 0.0
    assert stall_s[ranks[1]] > 0.1


def test_a_new_session_goes_where_fewer_pause_and_none_is_expected_back_that_is_still_served(make_world, ranks):
    world = make_world(weights=only(returns=1.0))
    world.fleet(ranks[:2])
    crowded = world.arrive("r1", session="s", prompt_tokens=50_000).target
    assert set(terms(world.arrive("early", session="t"), "returns").values()) == {0.0}
    world.end("early", outcome=Outcome.ERROR)
    world.end("r1", 1.0)
    placed = world.arrive("r2", 2.0, session="u", prompt_tokens=50_000)
    assert placed.target != crowded
    assert terms(placed, "returns")[crowded] > 0.0


def test_a_session_expects_others_back_at_its_home_and_not_itself(make_world, ranks):
    world = make_world(weights=only(returns=1.0))
    world.fleet(ranks[:1])
    home = ranks[0]
    world.serve("r1", session="s", prompt_tokens=50_000)
    assert terms(world.arrive("r2", 1.0, session="s", prompt_tokens=51_000), "returns")[home] == 0.0
    world.serve("r3", 2.0, session="t", prompt_tokens=30_000)
    beside_s = terms(world.arrive("r4", 3.0, session="s", prompt_tokens=52_000), "returns")[home]
    world.end("r2", 3.0)
    world.end("r4", 4.0)
    paused_s = terms(world.arrive("r5", 4.0, session="s", prompt_tokens=52_000), "returns")[home]
    stranger_s = terms(world.arrive("r6", 4.0, session="v", prompt_tokens=52_000), "returns")[home]
    assert beside_s > 0.0
    assert paused_s == pytest.approx(beside_s, rel=0.1)
    assert stranger_s == pytest.approx(beside_s, rel=0.1)
    world.end("r5", 5.0)
    assert terms(world.arrive("r7", 5.0, session="v", prompt_tokens=52_000), "returns")[home] > 2 * stranger_s


def test_a_decision_and_its_dry_run_tell_every_term_and_their_sum(world):
    asked = RequestArrived(now_s=0.0, request_id="r1", model="toy", prompt_tokens=9_000, max_output_tokens=12)
    dry = world.placer.explain(asked)
    decision = world.placer.handle(asked)[0].decision
    assert dry.candidates == decision.candidates
    for entry in decision.candidates:
        assert list(entry.terms) == TERMS
        assert entry.total_s == pytest.approx(sum(entry.terms.values()))


@pytest.mark.parametrize("limit", [1, 20, 10**6])
def test_a_request_with_a_limit_is_slowed_for_no_longer_than_that(make_world, ranks, limit):
    world = make_world(weights=only(decode=1.0))
    world.fleet(ranks)
    busy = world.arrive("r1", prompt_tokens=4_000).target
    outputs, costs = world.placer.ledger.outputs, Coefficients()
    decode_s = terms(world.arrive("r2", prompt_tokens=6_000, max_output_tokens=limit), "decode")
    joint = min(limit, outputs.find_joint_tokens(0))
    expected_s = joint * (2 * costs.decode_s_per_request + context_token_s(None, costs) * (4_000 + 6_000))
    assert decode_s[busy] == pytest.approx(expected_s)


@pytest.mark.parametrize("step_s_of", [lambda _: 0.02, lambda context_tokens: 0.002 + context_tokens * 2e-7])
def test_ranks_that_slow_by_no_context_cost_no_more_for_it(make_world, ranks, step_s_of):
    """Term `decode` follows what answers beside contexts of different lengths took."""
    world, now_s = make_world(weights=only(decode=1.0)), 0.0
    world.fleet(ranks)
    for n in range(300):
        context_tokens = 1_000 + 90_000 * (n % 7)
        name = f"r{n}"
        world.arrive(name, now_s, prompt_tokens=context_tokens)
        world.first_token(name, now_s + 1.0)
        now_s += 1.0 + 100 * step_s_of(context_tokens)
        world.end(name, now_s, output_tokens=101)
    busy = world.arrive("long", now_s, prompt_tokens=500_000).target
    short_s, long_s = (
        terms(world.arrive(f"asked {tokens}", now_s, prompt_tokens=tokens), "decode")[busy] for tokens in (1, 500_000)
    )
    slows = step_s_of(500_000) > 2 * step_s_of(0)
    assert (long_s > 1.5 * short_s) is slows
