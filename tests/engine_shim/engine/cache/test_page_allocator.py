"""The allocator hands every page to one owner at a time."""

import pytest

from engine_shim.engine.cache.pages import PageAllocator


def test_pages_are_taken_once_until_given_back():
    allocator = PageAllocator(4)
    first, second = allocator.take(3), allocator.take(1)
    assert sorted(first + second) == [0, 1, 2, 3]
    assert allocator.free_pages == 0
    allocator.give_back(first)
    assert [allocator.is_free(page) for page in range(4)] == [page in first for page in range(4)]
    allocator.check_invariants()


def test_F17_a_page_given_back_twice_is_refused():
    allocator = PageAllocator(2)
    (page,) = allocator.take(1)
    allocator.give_back([page])
    with pytest.raises(ValueError, match=f"page {page} is free already"):
        allocator.give_back([page])
    assert allocator.free_pages == 2
    allocator.check_invariants()


def test_F17_a_page_named_twice_in_one_call_is_refused_and_none_is_freed():
    allocator = PageAllocator(2)
    first, second = allocator.take(2)
    with pytest.raises(ValueError, match="a page twice among 3"):
        allocator.give_back([first, second, first])
    assert allocator.free_pages == 0
    allocator.check_invariants()


def test_more_pages_than_are_free_are_refused_and_none_is_taken():
    allocator = PageAllocator(2)
    with pytest.raises(ValueError, match="3 pages asked for, 2 are free"):
        allocator.take(3)
    assert allocator.free_pages == 2


def test_the_check_sees_a_page_listed_twice():
    allocator = PageAllocator(2)
    allocator._free.append(0)
    with pytest.raises(RuntimeError, match="3 free pages listed, 2 marked"):
        allocator.check_invariants()


def test_the_check_sees_a_page_listed_and_not_marked():
    allocator = PageAllocator(2)
    (page,) = allocator.take(1)
    allocator._marked.symmetric_difference_update((page, 1 - page))
    with pytest.raises(RuntimeError, match="1 free pages listed, 1 marked, and not the same"):
        allocator.check_invariants()
