"""Costs too close to tell apart are decided by home and hash, never by the order of a list."""

from collections import Counter

import pytest

from router.policy.base import CandidateCost, PlacementQuery
from router.policy.ties import break_tie, find_tied, pick_by_hash
from wire.ids import RequestId, Target, WorkerId

A, B, C = (Target(WorkerId(name), 0) for name in "abc")


def candidate(target, total_s, *, is_home=False):
    return CandidateCost(target, 0, {}, total_s, is_home)


def query(name="r1"):
    return PlacementQuery(request_id=RequestId(name), prompt_tokens=10)


@pytest.mark.parametrize(
    ("costs", "tied"),
    [
        ((0.0, 0.001, 0.0011), [A, B]),
        ((1.0, 1.02, 1.021), [A, B]),
        ((5.0, 4.0, 4.05), [B, C]),
        ((0.01, 0.0109, 0.02), [A, B]),
    ],
)
def test_costs_within_a_millisecond_or_two_percent_are_tied(costs, tied):
    found = find_tied([candidate(target, cost) for target, cost in zip((A, B, C), costs, strict=True)])
    assert [entry.target for entry in found] == tied


def test_the_home_wins_a_tie():
    assert break_tie([candidate(A, 0.0), candidate(B, 0.0, is_home=True)], query(), 0) == B


def test_a_tie_does_not_depend_on_the_order_of_the_list():
    entries = [candidate(target, 0.0) for target in (A, B, C)]
    for n in range(50):
        assert break_tie(entries, query(f"r{n}"), 0) == break_tie(entries[::-1], query(f"r{n}"), 0)


def test_ties_spread_over_all_and_the_seed_changes_them():
    first = [pick_by_hash(f"r{n}", [A, B, C], 1) for n in range(600)]
    second = [pick_by_hash(f"r{n}", [A, B, C], -2) for n in range(600)]
    assert min(Counter(first).values()) > 150
    assert first != second


def test_only_what_the_lost_target_had_moves():
    for n in range(200):
        before = pick_by_hash(f"s{n}", [A, B, C], 0)
        after = pick_by_hash(f"s{n}", [A, C], 0)
        assert before in (after, B)
