"""Dynamo's rule: blocks to prefill and blocks kept active, heads counted once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.policy import Coefficients
from router.policy.active_blocks import ActiveBlocks, count_shared
from router.policy.base import PlacementQuery, RankView
from router.policy.overlap_linear import OverlapLinear, OverlapLinearSettings
from wire.ids import Target

A, B = Target("a", 0), Target("b", 0)


def choose(policy, **overlaps):
    ranks = [RankView(target=target, overlap_tokens=overlaps.get(target.worker, 0)) for target in (A, B)]
    return policy.choose(PlacementQuery(request_id="new", prompt_tokens=100), ranks, 0)


def test_the_longer_prefix_wins_where_nothing_runs():
    choice = choose(OverlapLinear(Coefficients()), a=10, b=60)
    assert choice.target == B
    assert [entry.total_s for entry in choice.candidates] == [90 + 100, 40 + 100]


def test_active_blocks_outweigh_a_short_prefix_and_a_larger_scale_turns_it_round():
    for scale, expected in ((1.0, A), (4.0, B)):
        policy = OverlapLinear(Coefficients(), OverlapLinearSettings(prefill_load_scale=scale))
        policy.active.arrive("old", range(10), 10)
        policy.active.place("old", B, 0)
        policy.active.arrive("new", range(100, 110), 10)
        assert choose(policy, b=60).target == expected


def test_a_waiting_prompt_counts_until_its_first_token():
    active = ActiveBlocks()
    active.arrive("one", (1, 2, 3), 10)
    active.place("one", A, 25)
    active.place("one", B, 25)
    active.arrive("two", (1, 2, 9, 9), 10)
    assert (active.find(A, "two").waiting, active.find(A, "two").open, active.find(A, "two").shared) == (25, 30, 20)
    active.start_decode("one")
    active.start_decode("one")
    assert active.find(A, "two").waiting == 0
    active.end("one")
    assert active.find(A, "two").open == 0


def chain(path):
    """Each hash stands for all before it."""
    return tuple(hash(path[: end + 1]) for end in range(len(path)))


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple))))
def test_open_blocks_are_those_of_the_different_prefixes(steps):
    active, open_paths = ActiveBlocks(), {}
    for name, path in steps:
        if open_paths.pop(name, None) is None:
            active.arrive(name, chain(path), 1)
            active.place(name, A, len(path))
            open_paths[name] = path
        else:
            active.end(name)
        different = {path[: end + 1] for path in open_paths.values() for end in range(len(path))}
        assert active.find(A, "none").open == len(different)
        assert active.find(A, "none").waiting == sum(map(len, open_paths.values()))
    for name in open_paths:
        active.end(name)
    assert not len(active)


@pytest.mark.parametrize(("right", "shared"), [((), 0), ((1,), 1), ((1, 2, 3, 4), 3), ((2, 2), 0)])
def test_shared_blocks_are_counted_from_the_start(right, shared):
    assert count_shared((1, 2, 3), right) == shared
