"""What came of decisions: classes, times, regret in hindsight, a second policy's opinion."""

from array import array

import pytest

from router.config.policy import PolicyWeights
from router.placement.accuracy import Accuracy
from router.placement.audit import Audit, find_regret_s
from router.placement.stimuli import RequestArrived
from router.policy.base import CostTable
from router.policy.catalogue import build_policy
from wire.ids import Target, WorkerId

A, B, C = (Target(WorkerId(name), 0) for name in "abc")


def table(*totals_s):
    targets = (A, B, C)[: len(totals_s)]
    zeros = array("q", [0] * len(totals_s))
    return CostTable(targets, None, zeros, zeros, (), (), array("d", totals_s))


@pytest.mark.parametrize(
    ("totals_s", "added_s", "regret_s"),
    [((1.0, 2.0, 3.0), 0.5, 0.0), ((1.0, 2.0, 3.0), 1.5, 0.5), ((1.0, 2.0), -9.0, 0.0), ((1.0,), 9.0, 0.0)],
)
def test_regret_is_what_the_best_other_rank_would_have_saved(totals_s, added_s, regret_s):
    assert find_regret_s(table(*totals_s), A, added_s) == regret_s


def test_classes_sum_tokens_and_times():
    audit = Audit()
    audit.record_class(Accuracy.RACED, predicted_tokens=100, actual_tokens=60, predicted_ttft_s=1.0, actual_ttft_s=2.0)
    audit.record_class(Accuracy.RACED, predicted_tokens=10, actual_tokens=20, predicted_ttft_s=1.0, actual_ttft_s=None)
    sums = audit.classes[Accuracy.RACED]
    assert (sums.responses, sums.predicted_tokens, sums.actual_tokens, sums.error_tokens) == (2, 110, 80, 50)
    assert (sums.timed_responses, sums.predicted_ttft_s, sums.actual_ttft_s) == (1, 1.0, 2.0)


def test_the_predicted_time_to_first_token_is_work_ahead_and_own_prefill(world, ranks):
    world.report(ranks[0], waiting=1, waiting_tokens=100_000)
    held = {ranks[0]: 199_000}
    placed = world.arrive("r1", prompt_tokens=200_000, overlaps=held)
    assert placed.target == ranks[0]
    assert placed.decision.predicted_ttft_s == pytest.approx(2.0 + 0.015 + 1_000 * (2e-5 + 6.5e-10 * 199_500))
    world.first_token("r1", 4.0)
    assert sum(world.placer.decisions.audit.ttft_ratio.counts) == 1


@pytest.mark.parametrize("stall", [0.0, 2.0])
def test_a_rank_that_held_less_than_predicted_is_regretted(make_world, ranks, stall):
    """It is dearer by what it had to compute, and by what that held up, than the best other rank."""
    weights = PolicyWeights(stall=stall)
    world = make_world(weights=weights)
    world.fleet(ranks)
    world.report(ranks[0], running=1, waiting=1, waiting_tokens=50_000)
    placed = world.arrive("r1", prompt_tokens=100_000, overlaps={ranks[0]: 99_000})
    assert placed.target == ranks[0]
    world.first_token("r1", 1.0)
    world.end("r1", 2.0, cached_tokens=0)
    record = world.placer.decisions.find("r1")
    knowing = make_world(weights=weights)
    knowing.fleet(ranks)
    knowing.report(ranks[0], running=1, waiting=1, waiting_tokens=50_000)
    costs_s = [entry.total_s for entry in knowing.arrive("r1", prompt_tokens=100_000).decision.candidates]
    assert record.regret_s == pytest.approx(costs_s[0] - min(costs_s))
    assert record.regret_s >= 1.0
    assert world.placer.decisions.audit.regret_s.sum == record.regret_s


def test_a_prediction_that_holds_is_not_regretted(world, ranks):
    world.arrive("r1", prompt_tokens=100_000, overlaps={ranks[0]: 99_000})
    world.end("r1", 2.0, cached_tokens=99_000)
    assert world.placer.decisions.find("r1").regret_s == 0.0


def test_a_policy_without_costs_in_seconds_has_no_regret(make_world, ranks):
    world = make_world("round_robin")
    world.fleet(ranks)
    world.arrive("r1", prompt_tokens=100_000)
    world.end("r1", 2.0, cached_tokens=99_000)
    record = world.placer.decisions.find("r1")
    assert (record.regret_s, record.actual_cached_tokens) == (None, 99_000)


def test_a_second_policy_scores_and_changes_nothing(make_world, ranks):
    alone, watched = make_world(), make_world()
    watched.placer.change_policy(build_policy("cache_affinity"), shadow=build_policy("round_robin"))
    for world in (alone, watched):
        world.fleet(ranks)
    head = {ranks[1]: 9_000}
    for n in range(12):
        first = alone.arrive(f"r{n}", n * 0.1, session=f"s{n % 4}", prompt_tokens=10_000, overlaps=head)
        second = watched.arrive(f"r{n}", n * 0.1, session=f"s{n % 4}", prompt_tokens=10_000, overlaps=head)
        assert first.target == second.target
        assert first.decision.shadow is None
        opinion = second.decision.shadow
        assert opinion.policy == "round_robin"
        assert opinion.excess_s >= -1e-3
    shadow = watched.placer.decisions.audit.shadow
    assert shadow.agreed + shadow.differed == 12
    assert shadow.differed > 0
    assert sum(watched.placer.decisions.audit.shadow_excess_s.counts) == 12
    assert watched.placer.decisions.find("r3").to_json()["decision"]["shadow"]["policy"] == "round_robin"


def test_a_dry_run_takes_no_turn_of_a_policy_that_takes_turns(make_world, ranks):
    world = make_world("round_robin")
    world.fleet(ranks)
    asked = RequestArrived(now_s=0.0, request_id="dry", model="toy", prompt_tokens=10)
    assert {world.placer.explain(asked).target for _ in range(5)} == {ranks[0]}
    assert [world.arrive(f"r{n}").target for n in range(4)] == list(ranks)
    assert world.placer.explain(asked).predicted_ttft_s >= 0
