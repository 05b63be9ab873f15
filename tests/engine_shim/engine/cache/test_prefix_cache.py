"""Leases: what a request holds, shares, publishes and gives back."""

import pytest

from engine_shim.engine.cache.pages import PageCounts
from engine_shim.engine.cache.prefix_cache import PrefixCache
from engine_shim.engine.cache.token_bytes import pack_tokens
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored

PAGE_TOKENS = 4


def make_cache(pool_pages=8):
    made = PrefixCache(page_tokens=PAGE_TOKENS, pool_pages=pool_pages)
    made.take_events()
    return made


@pytest.fixture
def cache():
    made = make_cache()
    yield made
    made.check_invariants()


def take(cache, token_ids, salt=None):
    """A lease on the cached prefix, with pages for all tokens."""
    lease = cache.lease(cache.match(pack_tokens(token_ids), salt))
    assert cache.grow(lease, -(-len(token_ids) // PAGE_TOKENS))
    return lease


def fill(cache, token_ids, salt=None):
    lease = take(cache, token_ids, salt)
    cache.publish(lease, pack_tokens(token_ids), len(token_ids))
    cache.release(lease)


def test_the_first_event_says_that_everything_before_is_gone():
    cache = PrefixCache(page_tokens=4, pool_pages=2)
    assert cache.has_events
    assert cache.take_events() == (AllBlocksCleared(),)
    assert not cache.has_events


def test_the_last_token_of_a_prompt_is_never_matched(cache):
    fill(cache, range(8))
    assert len(cache.match(pack_tokens(range(8)), None).pages) == 1
    assert len(cache.match(pack_tokens(range(9)), None).pages) == 2
    assert cache.match(b"", None).pages == ()


def test_only_full_pages_are_published_and_the_rest_becomes_free(cache):
    fill(cache, range(11))
    assert cache.count_pages() == PageCounts(free=6, cached=2, leased=0, total=8)
    (event,) = cache.take_events()
    assert event.token_ids == tuple(range(8))


def test_publishing_again_with_no_new_full_page_changes_nothing(cache):
    lease = take(cache, range(7))
    cache.publish(lease, pack_tokens(range(7)), 4)
    cache.take_events()
    cache.publish(lease, pack_tokens(range(7)), 7)
    assert not cache.has_events
    cache.release(lease)


def test_pages_shared_by_two_are_leased_until_both_let_go(cache):
    fill(cache, range(9))
    one, two = take(cache, range(9)), take(cache, range(9))
    assert one.pages[:2] == two.pages[:2]
    assert cache.count_pages() == PageCounts(free=4, cached=0, leased=4, total=8)
    cache.release(one)
    assert cache.count_pages() == PageCounts(free=5, cached=0, leased=3, total=8)
    cache.release(two)
    assert cache.count_pages() == PageCounts(free=6, cached=2, leased=0, total=8)


def test_two_that_computed_the_same_prefix_end_up_on_the_same_pages(cache):
    one, two = take(cache, range(9)), take(cache, range(9))
    cache.publish(one, pack_tokens(range(9)), 9)
    cache.publish(two, pack_tokens(range(9)), 9)
    assert one.pages[:2] == two.pages[:2]
    assert one.pages[2] != two.pages[2]
    assert cache.count_pages().free == 4
    assert len(cache.take_events()) == 1
    cache.release(one)
    cache.release(two)


def test_F15_a_lease_ended_after_any_chunk_leaves_its_published_pages_to_the_tree(cache):
    for computed in range(1, 13):
        lease = take(cache, range(12))
        cache.publish(lease, pack_tokens(range(12)), computed)
        cache.release(lease)
        cache.check_invariants()
        assert len(cache.match(pack_tokens(range(13)), None).pages) == computed // PAGE_TOKENS


def test_room_is_made_from_the_longest_unused_and_told(cache):
    fill(cache, range(16))
    fill(cache, range(100, 116))
    cache.take_events()
    lease = take(cache, range(200, 208))
    (event,) = cache.take_events()
    assert isinstance(event, BlockRemoved)
    assert len(event.block_hashes) == cache.evicted_pages == 2
    assert len(cache.match(pack_tokens(range(17)), None).pages) == 2
    assert len(cache.match(pack_tokens(range(100, 117)), None).pages) == 4
    cache.release(lease)


def test_where_there_is_no_room_nothing_is_evicted_and_nothing_taken(cache):
    fill(cache, range(16))
    held = take(cache, range(100, 112))
    before = cache.count_pages()
    lease = cache.lease(cache.match(pack_tokens(range(200, 230)), None))
    assert not cache.grow(lease, 6)
    assert lease.pages == []
    assert cache.count_pages() == before
    assert cache.grow(lease, 5)
    cache.release(lease)
    cache.release(held)


def test_a_flush_is_refused_while_a_lease_is_held(cache):
    fill(cache, range(9))
    cache.take_events()
    lease = take(cache, range(9))
    assert not cache.flush()
    cache.release(lease)
    assert cache.flush()
    assert cache.count_pages() == PageCounts(free=8, cached=0, leased=0, total=8)
    assert cache.take_events() == (AllBlocksCleared(),)
    fill(cache, range(9))
    (event,) = cache.take_events()
    assert isinstance(event, BlockStored)


def test_A17_a_salt_shares_nothing_with_another(cache):
    fill(cache, range(9), "a")
    assert cache.match(pack_tokens(range(9)), "b").pages == ()
    assert cache.match(pack_tokens(range(9)), None).pages == ()
    (event,) = cache.take_events()
    assert event.cache_salt == "a"


def own_twice(cache, lease):
    lease.pages.append(lease.pages[-1])


def lose_a_page(cache, lease):
    lease.pages.pop()


def free_an_owned_page(cache, lease):
    cache._allocator.give_back([lease.pages[-1]])
    cache._allocator.take(1)
    lease.pages[-1] = next(page for page in range(8) if cache._allocator.is_free(page))


def read_a_page_that_left(cache, lease):
    lease.pages[0] = 99


BREAKS = {
    "two owners": own_twice,
    "are not the pool": lose_a_page,
    "owned page is free": free_an_owned_page,
    "left the tree": read_a_page_that_left,
}


@pytest.mark.parametrize("story", BREAKS)
def test_the_check_sees_a_page_in_no_place_or_in_two(story):
    cache = make_cache()
    fill(cache, range(5))
    lease = take(cache, range(9))
    BREAKS[story](cache, lease)
    with pytest.raises(RuntimeError, match=story):
        cache.check_invariants()
