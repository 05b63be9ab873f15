"""The prefix tree: matching, splitting, locking and eviction."""

import pytest

from engine_shim.engine.cache.deltas import CacheDeltas
from engine_shim.engine.cache.radix_tree import RadixTree
from engine_shim.engine.cache.token_bytes import pack_tokens
from wire.events import BlockRemoved, BlockStored

PAGE_TOKENS = 2


class Rig:
    """A tree, its events, and page numbers that never repeat."""

    def __init__(self):
        self.deltas = CacheDeltas(PAGE_TOKENS)
        self.tree = RadixTree(PAGE_TOKENS, self.deltas)
        self.next_page = 0

    def put(self, token_ids, salt=None):
        """Insert a prompt and let go of it; returns the tree's pages."""
        packed = pack_tokens(token_ids)
        match = self.match(token_ids, salt)
        count = len(token_ids) // PAGE_TOKENS - len(match.pages)
        fresh = tuple(range(self.next_page, self.next_page + count))
        self.next_page += count
        inserted = self.tree.insert(self.tree.lock(match), packed, len(match.pages), fresh)
        self.tree.unlock(inserted.node)
        return match.pages + inserted.pages

    def match(self, token_ids, salt=None):
        return self.tree.match(pack_tokens(token_ids), salt, limit_pages=len(token_ids) // PAGE_TOKENS)

    def lock(self, token_ids, salt=None):
        return self.tree.lock(self.match(token_ids, salt))

    def shape(self):
        """Every node as (tokens, pages, hashes, locks, last use)."""
        return sorted(
            (bytes(node.token_bytes), tuple(node.pages), tuple(node.digests), node.lock_count, node.last_used)
            for node in self.tree.nodes()
        )


@pytest.fixture
def rig():
    made = Rig()
    yield made
    made.tree.check_invariants()


def test_the_longest_cached_prefix_of_whole_pages_is_found(rig):
    pages = rig.put([1, 2, 3, 4, 5, 6])
    assert rig.match([1, 2, 3, 4, 5, 6, 7, 8]).pages == pages
    assert rig.match([1, 2, 3, 4, 5]).pages == pages[:2]
    assert rig.match([1, 2, 3, 9]).pages == pages[:1]
    assert rig.match([9, 2, 3, 4]).pages == ()
    assert rig.match([]).pages == ()


@pytest.mark.parametrize("limit_pages", range(5))
def test_no_more_pages_are_matched_than_asked_for(rig, limit_pages):
    rig.put([1, 2, 3, 4])
    pages = rig.put([1, 2, 3, 4, 5, 6])
    packed = pack_tokens([1, 2, 3, 4, 5, 6, 7, 8])
    assert rig.tree.match(packed, None, limit_pages=limit_pages).pages == pages[:limit_pages]


@pytest.mark.parametrize("common", range(12))
def test_every_length_of_common_prefix_is_found_inside_one_node(rig, common):
    tokens = list(range(24))
    pages = rig.put(tokens)
    tokens[2 * common] = 99
    assert rig.match(tokens).pages == pages[:common]


def test_match_never_mutates(rig):
    rig.put([1, 2, 3, 4, 5, 6])
    before = rig.shape()
    rig.deltas.take()
    for tokens in ([1, 2], [1, 2, 3, 4, 9, 9], [7, 7], []):
        rig.match(tokens)
        rig.match(tokens, "another")
    assert rig.shape() == before
    assert rig.deltas.is_empty


def test_a_split_keeps_page_hashes_and_tells_no_event(rig):
    rig.put([1, 2, 3, 4, 5, 6])
    digests = [digest for node in rig.tree.nodes() for digest in node.digests]
    rig.deltas.take()
    rig.tree.unlock(rig.lock([1, 2, 3, 4]))
    nodes = list(rig.tree.nodes())
    assert [len(node.pages) for node in nodes] == [2, 1]
    assert [digest for node in nodes for digest in node.digests] == digests
    assert rig.deltas.is_empty


def test_a_branch_shares_the_pages_before_it(rig):
    left = rig.put([1, 2, 3, 4, 5, 6])
    right = rig.put([1, 2, 3, 4, 7, 8])
    assert left[:2] == right[:2]
    assert left[2] != right[2]
    assert rig.tree.total_pages == 4


def test_salts_are_namespaces_of_their_own(rig):
    plain, salted = rig.put([1, 2]), rig.put([1, 2], "s")
    assert plain != salted
    assert rig.match([1, 2], "s").pages == salted
    assert rig.match([1, 2], "t").pages == ()
    hashes = [event.block_hashes for event in rig.deltas.take()]
    assert hashes[0] != hashes[1]


def test_A13_pages_stored_before_are_duplicates_and_tell_no_event(rig):
    packed = pack_tokens([1, 2, 3, 4, 5, 6])
    first = rig.lock([1, 2, 3, 4, 5, 6])
    second = rig.lock([1, 2, 3, 4, 5, 6])
    one = rig.tree.insert(first, packed, 0, (10, 11))
    rig.deltas.take()
    two = rig.tree.insert(second, packed, 0, (20, 21, 22))
    assert one.pages == (10, 11)
    assert two.pages == (10, 11, 22)
    assert two.duplicates == (20, 21)
    (event,) = rig.deltas.take()
    assert event.token_ids == (5, 6)
    rig.tree.unlock(one.node)
    rig.tree.unlock(two.node)


def test_A23_the_parent_is_the_page_before_whoever_stored_it(rig):
    rig.put([1, 2, 3, 4])
    (before,) = rig.deltas.take()
    rig.put([1, 2, 3, 4, 5, 6])
    rig.put([1, 2, 7, 8])
    deeper, branch = rig.deltas.take()
    assert deeper.parent_block_hash == before.block_hashes[1]
    assert branch.parent_block_hash == before.block_hashes[0]
    assert isinstance(branch, BlockStored)


def test_the_longest_unused_leaf_goes_first_from_its_end(rig):
    old, young = rig.put([1, 2, 3, 4]), rig.put([5, 6, 7, 8])
    assert rig.tree.evict(1) == [old[1]]
    assert rig.tree.evict(2) == [old[0], young[1]]
    assert rig.match([5, 6, 7, 8]).pages == young[:1]
    assert rig.tree.evict(5) == [young[0]]
    assert rig.tree.evict(1) == []


def test_a_hit_makes_a_prefix_young_again(rig):
    first, second = rig.put([1, 2]), rig.put([5, 6])
    rig.tree.unlock(rig.lock([1, 2]))
    assert rig.tree.evict(2) == [*second, *first]


def test_a_removal_names_the_pages_from_the_root_down(rig):
    rig.put([1, 2, 3, 4, 5, 6])
    (stored,) = rig.deltas.take()
    rig.tree.evict(2)
    assert rig.deltas.take() == (BlockRemoved(block_hashes=stored.block_hashes[1:]),)


def test_a_held_prefix_is_never_evicted_and_its_tail_is(rig):
    pages = rig.put([1, 2, 3, 4, 5, 6])
    node = rig.lock([1, 2, 3, 4])
    assert rig.tree.unheld_pages == 1
    assert rig.tree.evict(3) == [pages[2]]
    rig.tree.unlock(node)
    assert rig.tree.evict(3) == [pages[0], pages[1]]


def test_a_parent_becomes_evictable_when_its_last_child_goes(rig):
    stem = rig.put([1, 2])
    left, right = rig.put([1, 2, 3, 4]), rig.put([1, 2, 5, 6])
    assert rig.tree.evict(3) == [left[1], right[1], stem[0]]


def test_one_request_that_grows_page_by_page_is_one_node(rig):
    packed = pack_tokens(range(200))
    node = rig.lock([])
    for page in range(100):
        node = rig.tree.insert(node, packed, page, (page,)).node
    assert len(list(rig.tree.nodes())) == 1
    rig.tree.unlock(node)


def test_a_node_that_two_hold_is_not_grown_under_the_other(rig):
    rig.put([1, 2])
    first, second = rig.lock([1, 2]), rig.lock([1, 2])
    grown = rig.tree.insert(first, pack_tokens([1, 2, 3, 4]), 1, (50,))
    assert len(second.pages) == 1
    rig.tree.unlock(grown.node)
    assert rig.tree.evict(9) == [50]
    rig.tree.unlock(second)


def test_a_childless_node_of_another_is_not_grown_either(rig):
    own = rig.lock([1, 2, 3, 4])
    other = rig.tree.insert(rig.lock([1, 2]), pack_tokens([1, 2]), 0, (7,)).node
    inserted = rig.tree.insert(own, pack_tokens([1, 2, 3, 4]), 0, (8, 9))
    assert inserted.pages == (7, 9)
    assert other.pages == [7]
    rig.tree.unlock(inserted.node)
    rig.tree.unlock(other)


def test_A16_after_many_chains_come_and_go_nothing_of_them_is_kept(rig):
    for number in range(300):
        rig.put([number % 7, 1, number, 2, 3, number], f"salt-{number % 5}")
        rig.tree.evict(2)
    rig.tree.evict(10_000)
    assert list(rig.tree.nodes()) == []
    assert rig.tree._roots == {}


def test_hits_without_eviction_keep_the_list_of_leaves_short(rig):
    rig.put([1, 2])
    for _ in range(500):
        rig.tree.unlock(rig.lock([1, 2]))
    assert len(rig.tree._evictable) <= 4 * rig.tree.total_pages + 64


def test_an_empty_namespace_is_kept_only_while_it_is_held(rig):
    node = rig.lock([1, 2], "s")
    assert list(rig.tree._roots) == ["s"]
    rig.tree.unlock(node)
    assert rig.tree._roots == {}


def break_count(rig):
    rig.tree.total_pages += 1


def break_hash(rig):
    next(rig.tree.nodes()).digests[0] = b"x" * 32


def break_key(rig):
    next(rig.tree.nodes()).token_bytes[0] ^= 1


def break_pages(rig):
    node = next(rig.tree.nodes())
    node.pages.append(77)
    rig.tree.total_pages += 1
    rig.tree.unheld_pages += 1


def break_parent(rig):
    next(rig.tree.nodes()).parent = None


def break_locks(rig):
    rig.put([1, 2, 5, 6])
    stem, *leaves = rig.tree.nodes()
    leaves[0].lock_count = stem.lock_count + 1
    rig.tree.unheld_pages -= len(leaves[0].pages)


def break_leaf_list(rig):
    rig.tree._evictable.clear()


def break_roots(rig):
    rig.tree._add_root("unused")


BREAKS = {
    "pages": break_count,
    "follow from its tokens": break_hash,
    "filed under": break_key,
    "3 pages, 2 hashes": break_pages,
    "without parent": break_parent,
    "lock below": break_locks,
    "never be evicted": break_leaf_list,
    "empty namespace": break_roots,
}


@pytest.mark.parametrize("story", BREAKS)
def test_the_check_sees_what_is_broken(story):
    rig = Rig()
    rig.put([1, 2, 3, 4])
    rig.tree.check_invariants()
    BREAKS[story](rig)
    with pytest.raises(RuntimeError, match=story):
        rig.tree.check_invariants()
