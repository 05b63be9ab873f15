"""Feed stimuli, compare instructions."""

import pytest

from router.config.policy import Coefficients
from router.placement.instructions import Place, Reject, RejectReason
from router.placement.placer import MAX_TOKENS
from router.placement.stimuli import FleetChanged, Outcome
from wire.ids import Target, WorkerId


def test_a_request_is_placed_on_a_rank_of_the_fleet_with_its_decision(world, ranks):
    placed = world.arrive("r1", 5.0, prompt_tokens=1_000, session="s")
    assert isinstance(placed, Place)
    assert placed.request_id == "r1"
    assert placed.target in ranks
    decision = placed.decision
    assert decision.target == placed.target
    assert (decision.request_id, decision.decided_at_s, decision.policy) == ("r1", 5.0, "cache_affinity")
    assert (decision.model, decision.session, decision.prompt_tokens) == ("toy", "s", 1_000)
    assert [candidate.target for candidate in decision.candidates] == list(ranks)
    assert world.placer.decisions.find("r1").decision == decision


def test_an_empty_fleet_has_no_worker(make_world):
    refused = make_world().arrive("r1")
    assert isinstance(refused, Reject)
    assert refused.reason is RejectReason.NO_WORKER
    assert refused.decision.target is None


def test_a_model_that_no_rank_serves_is_unknown(world):
    assert world.arrive("r1", model="other").reason is RejectReason.UNKNOWN_MODEL


def test_no_model_asked_for_accepts_any(world):
    assert isinstance(world.arrive("r1", model=None), Place)


@pytest.mark.parametrize("state", [{"healthy": False}, {"draining": True}])
def test_ranks_that_take_nothing_new_are_never_chosen(make_world, ranks, facts, state):
    world = make_world()
    good = ranks[2]
    world.placer.handle(
        FleetChanged(now_s=0.0, ranks=tuple(facts(target, **({} if target == good else state)) for target in ranks))
    )
    held = {target: 900 for target in ranks if target != good}
    assert {world.arrive(f"r{n}", overlaps=held).target for n in range(20)} == {good}
    world.fleet(ranks, **state)
    assert world.arrive("late").reason is RejectReason.ALL_UNHEALTHY


def test_ranks_that_come_later_with_more_models_can_be_chosen_and_those_that_left_cannot(make_world, facts, ranks):
    world, (first, second, *_) = make_world(), ranks
    both = facts(first), facts(second, models=("toy", "other"))
    for n, (fleet, target) in enumerate(((both[:1], first), (both, second), (both[:1], first), (both[1:], second))):
        world.placer.handle(FleetChanged(now_s=0.0, ranks=fleet))
        excluded = frozenset({first}) if len(fleet) == 2 else frozenset()
        assert world.arrive(f"r{n}", excluded=excluded).target == target


def test_targets_tried_before_are_not_chosen_again(world, ranks):
    tried = frozenset(ranks[:3])
    assert world.arrive("r1", excluded=tried, overlaps={ranks[0]: 999}).target == ranks[3]
    refused = world.arrive("r2", excluded=frozenset(ranks))
    assert refused.reason is RejectReason.NO_WORKER


def test_a_request_that_runs_already_is_refused_and_keeps_its_decision(world):
    first = world.arrive("r1")
    again = world.arrive("r1")
    assert again.reason is RejectReason.DUPLICATE_REQUEST
    assert world.placer.decisions.find("r1").decision == first.decision
    assert len(world.placer.ledger) == 1


def test_a_retry_after_the_end_of_the_first_attempt_is_placed_elsewhere(world):
    first = world.arrive("r1").target
    world.end("r1", outcome=Outcome.ERROR)
    second = world.arrive("r1", excluded=frozenset({first}))
    assert second.target != first
    assert world.placer.decisions.find("r1").attempts == 2


def test_load_is_charged_at_the_decision_and_gone_at_the_end(world):
    target = world.arrive("r1", prompt_tokens=50_000).target
    charged = world.totals(target)
    assert charged.waiting_requests == 1
    assert charged.waiting_tokens == 50_000
    assert charged.waiting_s > 1.0
    world.end("r1", 3.0)
    assert world.totals(target, 3.0).open_requests == 0
    assert world.totals(target, 3.0).waiting_s == 0.0


def test_a_session_stays_on_its_rank_while_it_is_idle(world):
    home = world.serve("r0", session="s", prompt_tokens=50_000)
    for turn in range(1, 10):
        target = world.serve(f"r{turn}", turn * 30.0, session="s", prompt_tokens=51_000, overlaps={home: 50_000})
        assert target == home


def test_a_session_lets_go_when_waiting_costs_more_than_prefilling_anew(world, ranks):
    home = world.serve("r0", session="s", prompt_tokens=20_000)
    world.report(home, 10.0, waiting=40, waiting_tokens=4_000_000)
    moved = world.arrive("r1", 10.0, session="s", prompt_tokens=20_500, overlaps={home: 20_000})
    assert moved.target != home
    assert moved.decision.reason.startswith(f"left home {home}: holds 20,000 of 20,500 prompt tokens; waiting 80.0 s")


def test_a_request_of_a_session_whose_home_is_busy_for_less_than_its_prefill_waits_there(world):
    home = world.serve("r0", session="s", prompt_tokens=100_000)
    world.report(home, 10.0, waiting=1, waiting_tokens=20_000)
    kept = world.arrive("r1", 10.0, session="s", prompt_tokens=99_120, overlaps={home: 98_304})
    assert kept.target == home
    assert kept.decision.reason.startswith(
        "kept at home: holds 98,304 of 99,120 prompt tokens; waiting 0.4 s there beats re-prefilling 99k tokens "
        "elsewhere (5.2 s)"
    )


def test_fresh_sessions_spread_over_the_ranks(world, ranks):
    counts = dict.fromkeys(ranks, 0)
    for n in range(40):
        counts[world.serve(f"r{n}", n * 2.0, session=f"s{n}", prompt_tokens=20_000)] += 1
    assert min(counts.values()) >= 8


def test_paced_sessions_spread_although_nothing_is_in_flight_at_any_decision(world, ranks):
    head = {}
    counts = dict.fromkeys(ranks, 0)
    for n in range(40):
        target = world.serve(f"r{n}", n * 2.0, session=f"s{n}", prompt_tokens=20_000, overlaps=head)
        counts[target] += 1
        head = {**head, target: 4_000}
    assert max(counts.values()) <= 14


def test_reuse_confirmed_by_events_is_predicted_and_hope_is_told_apart(world):
    chain = tuple(range(100, 200))
    leader = world.arrive("r1", prompt_tokens=1_600, chain_hashes=chain, chain_block_tokens=16)
    assert leader.decision.predicted_cached_tokens == 0
    for n in range(8):
        sibling = world.arrive(
            f"s{n}",
            0.025,
            prompt_tokens=1_700,
            chain_hashes=(*chain, 1_000 + n),
            chain_block_tokens=16,
            max_output_tokens=0,
        ).decision
        assert sibling.predicted_cached_tokens == 0
        credited = {entry.target: entry.predicted_overlap_tokens for entry in sibling.candidates}
        assert credited[leader.target] == 1_440
        if sibling.target == leader.target:
            assert sibling.hoped_cached_tokens == 1_440
            assert "1,440 expected from requests being prefilled there" in sibling.reason
            break
    else:
        pytest.fail("no sibling went to the leader")


def test_a_burst_of_siblings_follows_the_one_being_prefilled_once_that_is_under_way(world):
    chain = tuple(range(1_000))
    leader = world.arrive("lead", prompt_tokens=16_000, chain_hashes=chain, chain_block_tokens=16).target
    later = world.arrive(
        "next", 0.3, prompt_tokens=16_100, chain_hashes=(*chain, 5_000), chain_block_tokens=16, max_output_tokens=1
    )
    assert later.target == leader


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.CANCELLED, Outcome.TIMED_OUT, Outcome.WORKER_LOST])
def test_a_request_that_fails_before_its_first_token_leaves_no_hope_and_no_home(world, outcome):
    world.arrive("r1", session="s", chain_hashes=(1, 2), chain_block_tokens=16)
    assert world.home("s", 0.0) is not None
    world.end("r1", outcome=outcome)
    assert len(world.placer.residency) == 0
    assert world.home("s", 0.0) is None
    assert world.placer.decisions.find("r1").outcome == outcome.value


def test_a_request_without_a_session_that_fails_changes_no_home(world):
    world.arrive("r1")
    world.end("r1", outcome=Outcome.ERROR)
    assert len(world.placer.homes) == 0


def test_a_failure_after_the_first_token_keeps_the_home(world):
    target = world.arrive("r1", session="s").target
    world.first_token("r1", 1.0)
    world.end("r1", 2.0, outcome=Outcome.CANCELLED)
    assert world.home("s", 2.0) == target


def test_a_session_moves_only_when_the_new_rank_has_shown_a_token(world, ranks):
    home = world.serve("r0", session="s")
    moved = world.arrive("r1", 1.0, session="s", excluded=frozenset({home})).target
    assert world.home("s", 1.0) == home
    world.first_token("r1", 2.0)
    assert world.home("s", 2.0) == moved


def test_a_whole_answer_without_a_first_token_settles_the_home(world):
    home = world.serve("r0", session="s")
    moved = world.arrive("r1", 1.0, session="s", excluded=frozenset({home})).target
    world.end("r1", 2.0)
    assert world.home("s", 2.0) == moved


def test_a_home_that_cannot_be_chosen_is_named_in_the_reason(world):
    home = world.serve("r0", session="s")
    moved = world.arrive("r1", 1.0, session="s", excluded=frozenset({home}))
    assert moved.decision.reason.startswith(f"home {home} cannot be chosen; holds none of 1,000 prompt tokens")


def test_late_and_repeated_stimuli_change_nothing_and_are_counted(world):
    target = world.arrive("r1").target
    world.first_token("r1", 1.0)
    world.first_token("r1", 2.0)
    world.end("r1", 3.0)
    world.end("r1", 4.0, outcome=Outcome.ERROR)
    world.first_token("r1", 5.0)
    world.progress("r1", 9)
    ignored = world.placer.ignored
    assert (ignored.repeated, ignored.late) == (1, 3)
    assert world.placer.decisions.find("r1").outcome == "done"
    assert world.totals(target, 5.0).open_requests == 0


def test_a_report_of_an_unknown_rank_is_counted(world):
    world.report(Target(WorkerId("nobody"), 0), running=5)
    assert world.placer.ignored.unknown_targets == 1


def test_a_lost_rank_releases_its_requests_at_once_and_later_words_change_nothing(world, ranks):
    target = world.arrive("r1", session="s", chain_hashes=(1,), chain_block_tokens=16).target
    world.fleet([rank for rank in ranks if rank != target], 1.0)
    assert len(world.placer.ledger) == 0
    assert world.placer.decisions.find("r1").outcome == "worker_lost"
    assert len(world.placer.homes) == 0
    assert len(world.placer.residency) == 0
    world.end("r1", 2.0)
    assert world.placer.ignored.late == 1
    assert world.placer.ledger.released_total == 1


def test_ttft_and_reuse_are_kept_with_the_decision(world):
    world.arrive("r1", 10.0)
    world.first_token("r1", 10.5, cached_tokens=64)
    world.end("r1", 12.0, cached_tokens=128, output_tokens=3)
    record = world.placer.decisions.find("r1")
    assert record.ttft_s == 0.5
    assert record.actual_cached_tokens == 128


def test_measured_prefill_scales_what_is_predicted(world):
    world.arrive("r1", prompt_tokens=10_000)
    predicted_s = world.totals(world.placer.decisions.find("r1").decision.target).waiting_s
    world.first_token("r1", predicted_s * 4)
    world.end("r1", predicted_s * 4)
    assert world.placer.prefill_ratio == pytest.approx(2.0)
    placed = world.arrive("r2", 100.0, prompt_tokens=10_000)
    assert world.totals(placed.target, 100.0).waiting_s == pytest.approx(predicted_s * 2)
    computed_s = predicted_s - Coefficients().prefill_step_s
    assert placed.decision.candidates[0].terms["reuse"] == pytest.approx(computed_s * 2)


def test_measured_time_between_tokens_scales_what_is_predicted(world):
    world.arrive("r1", prompt_tokens=1_000)
    world.first_token("r1", 1.0)
    costs = Coefficients()
    step_s = costs.decode_step_s + costs.decode_s_per_request + 1_000 * costs.decode_s_per_context_token
    world.end("r1", 1.0 + 4 * step_s * 99, output_tokens=100)
    assert world.placer.decode_ratio == pytest.approx(2.0)


def test_nothing_is_learned_where_that_is_switched_off(make_world, ranks):
    world = make_world(learn_pace=False)
    world.fleet(ranks)
    world.arrive("r1", prompt_tokens=10_000)
    world.first_token("r1", 50.0)
    world.end("r1", 90.0, output_tokens=100)
    assert (world.placer.prefill_ratio, world.placer.decode_ratio) == (1.0, 1.0)


def test_absurd_numbers_are_cut_and_do_no_harm(world, ranks):
    world.report(ranks[0], running=-5, waiting=10**400, waiting_tokens=10**400, used_tokens=-1, capacity_tokens=10**400)
    placed = world.arrive("r1", prompt_tokens=10**400, max_output_tokens=-1, overlaps={ranks[1]: 10**500, ranks[2]: -7})
    assert placed.decision.prompt_tokens == MAX_TOKENS
    assert all(entry.overlap_tokens < MAX_TOKENS for entry in placed.decision.candidates)
    world.progress("r1", 10**400)
    world.end("r1")


def test_an_empty_prompt_is_placed(world, ranks):
    assert world.arrive("r1", prompt_tokens=0, overlaps={ranks[0]: 16}).decision.predicted_cached_tokens == 0


def test_the_same_stimuli_give_the_same_instructions(make_world, ranks):
    def play():
        world = make_world()
        world.fleet(ranks)
        placed = [world.arrive(f"r{n}", n * 0.1, session=f"s{n % 5}") for n in range(50)]
        return [(each.target, each.decision.to_json()) for each in placed]

    assert play() == play()


def test_requests_on_ranks_that_are_gone_are_found(make_world, ranks):
    other = make_world()
    other.fleet(ranks)
    other.arrive("r1")
    other.placer.check_invariants()
    other.placer._books.replace_fleet(())
    with pytest.raises(AssertionError, match="ranks that are gone"):
        other.placer.check_invariants()
    other.fleet(ranks)
