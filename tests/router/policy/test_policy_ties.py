"""Costs too close to tell apart are decided by home and hash, never by the order of a list."""

from collections import Counter

import pytest

from router.policy.base import PlacementQuery
from router.policy.ties import break_tie, find_tied, pick_by_hash
from wire.ids import RequestId, Target, WorkerId

A, B, C = (Target(WorkerId(name), 0) for name in "abc")


def query(name="r1", home=None):
    return PlacementQuery(request_id=RequestId(name), prompt_tokens=10, home=home)


@pytest.mark.parametrize(
    ("costs", "tied"),
    [
        ((0.0, 0.001, 0.0011), [0, 1]),
        ((1.0, 1.02, 1.021), [0, 1]),
        ((5.0, 4.0, 4.05), [1, 2]),
        ((0.01, 0.0109, 0.02), [0, 1]),
    ],
)
def test_costs_within_a_millisecond_or_two_percent_are_tied(costs, tied):
    assert find_tied(costs) == tied


def test_the_home_wins_a_tie_and_only_a_tie():
    for n in range(20):
        assert break_tie([A, B], query(f"r{n}", home=B), 0) == B
        assert break_tie([A, B], query(f"r{n}", home=C), 0) != C


def test_a_tie_does_not_depend_on_the_order_of_the_list():
    for n in range(50):
        assert break_tie([A, B, C], query(f"r{n}"), 0) == break_tie([C, B, A], query(f"r{n}"), 0)


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
