"""Baselines after public descriptions: what each looks at, and in which order."""

from router.config.policy import Coefficients
from router.policy.base import PlacementQuery, RankView
from router.policy.power_of_two import PowerOfTwo
from router.policy.prefix_threshold import PrefixThreshold, PrefixThresholdSettings
from router.policy.weighted_scores import WeightedScores, WeightedScoresSettings
from wire.ids import Target

A, B, C = (Target(name, 0) for name in "abc")


def choose(policy, *ranks, seed=0, request_id="r"):
    return policy.choose(PlacementQuery(request_id=request_id, prompt_tokens=1_000), ranks, seed)


def test_two_choices_never_take_the_most_loaded_of_three():
    ranks = [RankView(target=A, open_requests=9), RankView(target=B, open_requests=1), RankView(target=C)]
    policy = PowerOfTwo(Coefficients())
    chosen = {choose(policy, *ranks).target for _ in range(50)}
    assert chosen == {B, C}


def test_two_choices_draw_every_pair():
    ranks = [RankView(target=A), RankView(target=B), RankView(target=C)]
    policy = PowerOfTwo(Coefficients())
    assert {choose(policy, *ranks).target for _ in range(50)} == {A, B, C}


def test_a_long_prefix_wins_while_the_fleet_is_in_balance():
    holder = RankView(target=A, overlap_tokens=400, open_requests=60)
    choice = choose(PrefixThreshold(Coefficients()), holder, RankView(target=B))
    assert (choice.target, choice.reason) == (A, "longest held prefix: 400 tokens")


def test_a_short_prefix_goes_to_the_rank_that_holds_least():
    ranks = RankView(target=A, overlap_tokens=300, resident_tokens=9), RankView(target=B, resident_tokens=5)
    assert choose(PrefixThreshold(Coefficients()), *ranks).target == B


def test_a_fleet_out_of_balance_looks_at_requests_alone():
    holder = RankView(target=A, overlap_tokens=999, open_requests=65)
    choice = choose(PrefixThreshold(Coefficients()), holder, RankView(target=B))
    assert (choice.target, choice.reason) == (B, "out of balance: fewest requests there: 0")
    calm = PrefixThresholdSettings(balance_abs_threshold=100)
    assert choose(PrefixThreshold(Coefficients(), calm), holder, RankView(target=B)).target == A


def test_scores_are_weighed_and_the_highest_sum_wins():
    full = RankView(target=A, overlap_tokens=500, open_requests=3, context_tokens=900, capacity_tokens=1_000)
    idle = RankView(target=B, capacity_tokens=1_000)
    choice = choose(WeightedScores(Coefficients()), full, idle)
    assert choice.target == B
    assert [round(entry.total_s, 6) for entry in choice.candidates] == [7 - (1.5 + 0 + 0.2), 7 - (0 + 2 + 2)]
    prefix_only = WeightedScoresSettings(queue=0.0, kv_utilization=0.0)
    assert choose(WeightedScores(Coefficients(), prefix_only), full, idle).target == A
