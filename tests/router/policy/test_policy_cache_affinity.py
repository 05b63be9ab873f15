"""The cost policy: weights, terms and the shape of the whole."""

import math
from array import array

import pytest

from router.config.policy import Coefficients, PolicyWeights
from router.policy.base import PlacementQuery, RankView
from router.policy.cache_affinity import CacheAffinity, neutralise
from wire.ids import RequestId, SessionId, Target, WorkerId

A, B, C = (Target(WorkerId(name), 0) for name in "abc")


def choose(ranks, *, weights=None, **changes):
    policy = CacheAffinity(weights or PolicyWeights(), Coefficients())
    query = PlacementQuery(request_id=RequestId("r1"), **{"prompt_tokens": 100_000, **changes})
    return policy.choose(query, ranks, 0)


def test_every_candidate_carries_every_term_and_their_sum():
    choice = choose([RankView(target=A, own_wait_s=1.0), RankView(target=B)])
    for entry in choice.candidates:
        assert list(entry.terms) == [
            "wait", "admission", "reuse", "stall", "decode", "returns", "balance", "settle", "spread",
        ]  # fmt: skip
        assert entry.total_s == pytest.approx(sum(entry.terms.values()))
    assert choice.target == B


def test_a_weight_scales_its_term_and_zero_leaves_it_out():
    ranks = [RankView(target=A, own_wait_s=1.0, overlap_tokens=99_000), RankView(target=B)]
    others = dict.fromkeys(PolicyWeights.model_fields, 0.0)
    weights = PolicyWeights(**{**others, "wait": 10.0, "reuse": 1.0})
    choice = choose(ranks, weights=weights)
    assert list(choice.candidates[0].terms) == ["wait", "reuse"]
    assert choice.candidates[0].terms["wait"] == 10.0
    assert choice.target == B


def test_without_any_weight_all_are_tied():
    weights = PolicyWeights(**dict.fromkeys(PolicyWeights.model_fields, 0.0))
    choice = choose([RankView(target=A, own_wait_s=9.0), RankView(target=B)], weights=weights)
    assert choice.tied_count == 2
    assert choice.candidates[0].terms == {}


@pytest.mark.parametrize(("wait_s", "target"), [(0.0, A), (4.0, A), (6.0, B), (60.0, B)])
def test_the_holder_is_chosen_until_its_wait_exceeds_the_prefill(wait_s, target):
    ranks = [RankView(target=A, overlap_tokens=99_000, own_wait_s=wait_s), RankView(target=B)]
    assert choose(ranks, session=SessionId("s"), home=A).target == target


def test_with_nothing_cached_the_shortest_queue_wins():
    ranks = [RankView(target=A, foreign_wait_s=2.0), RankView(target=B, own_wait_s=1.0), RankView(target=C)]
    assert choose(ranks).target == C


def test_a_cost_that_is_no_number_counts_as_the_dearest_and_is_told():
    ranks = [
        RankView(target=A, own_wait_s=math.nan),
        RankView(target=B, own_wait_s=3.0),
        RankView(target=C, own_wait_s=math.inf),
    ]
    choice = choose(ranks)
    assert [entry.terms["wait"] for entry in choice.candidates] == [3.0, 3.0, 3.0]
    assert choice.notes == (
        "wait of a@0 was nan; counted as 3.000 s",
        "wait of c@0 was inf; counted as 3.000 s",
    )


def test_a_term_without_any_number_counts_nothing():
    column = array("d", [math.nan])
    assert neutralise("wait", column, [RankView(target=A)]) == ["wait of a@0 was nan; counted as 0.000 s"]
    assert column.tolist() == [0.0]
