"""Rooms say the prefill rank, and no two of them are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.legs.rooms import MAX_RANKS, Rooms

sizes = st.integers(1, MAX_RANKS)


@given(router=st.integers(0, 1 << 20), first=st.integers(0, 1 << 45), dp=st.lists(sizes, min_size=1, max_size=20))
def test_a_room_is_of_its_rank_fits_into_63_bits_and_is_never_none(router, first, dp):
    rooms = Rooms(router, first)
    minted = [(rooms.mint(size - 1, size), size) for size in dp]
    for room, size in minted:
        assert room % size == size - 1
        assert 0 < room < 1 << 63
    assert len({room for room, _ in minted}) == len(minted)


def test_rooms_of_two_routers_differ_and_a_count_that_wraps_skips_none():
    one, other = Rooms(1, 7), Rooms(2, 7)
    assert {one.mint(0, 2) for _ in range(50)}.isdisjoint({other.mint(0, 2) for _ in range(50)})
    last = Rooms(0, (1 << 38) - 2)
    assert len({last.mint(0, 8) for _ in range(4)}) == 4
    assert 0 not in {Rooms(0, first).mint(0, 8) for first in range((1 << 38) - 3, (1 << 38) + 3)}


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0), (0, MAX_RANKS + 1)])
def test_a_rank_that_is_none_has_no_room(rank, size):
    with pytest.raises(ValueError, match=f"rank {rank} of {size}"):
        Rooms(1, 1).mint(rank, size)
