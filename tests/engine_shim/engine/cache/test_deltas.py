"""Changes become events in order, joined with the one before where they continue it."""

from engine_shim.engine.cache.deltas import CacheDeltas
from engine_shim.engine.cache.page_hash import chain_digests, event_hash
from engine_shim.engine.cache.token_bytes import pack_tokens
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored

TOKENS = pack_tokens(range(8))
DIGESTS = chain_digests(b"", TOKENS, 2)
HASHES = tuple(event_hash(digest) for digest in DIGESTS)


def stored(deltas, start, end, *, parent=None, salt=None):
    deltas.stored(DIGESTS[start:end], TOKENS[start * 8 : end * 8], parent=parent, cache_salt=salt)


def stored_event(start, end, *, parent=None, salt=None):
    return BlockStored(
        block_hashes=HASHES[start:end],
        parent_block_hash=parent,
        token_ids=tuple(range(start * 2, end * 2)),
        block_tokens=2,
        cache_salt=salt,
    )


def test_pages_that_continue_the_last_event_join_it():
    deltas = CacheDeltas(2)
    stored(deltas, 0, 1)
    stored(deltas, 1, 4, parent=DIGESTS[0])
    assert deltas.take() == (stored_event(0, 4),)


def test_pages_after_another_parent_or_salt_are_an_event_of_their_own():
    deltas = CacheDeltas(2)
    stored(deltas, 0, 2)
    stored(deltas, 1, 2, parent=DIGESTS[0])
    stored(deltas, 2, 3, parent=DIGESTS[1], salt="s")
    expected = (
        stored_event(0, 2),
        stored_event(1, 2, parent=HASHES[0]),
        stored_event(2, 3, parent=HASHES[1], salt="s"),
    )
    assert deltas.take() == expected


def test_removals_join_and_order_is_kept_between_kinds():
    deltas = CacheDeltas(2)
    deltas.removed(DIGESTS[2:3])
    deltas.removed(DIGESTS[0:2])
    stored(deltas, 0, 1)
    deltas.removed(DIGESTS[0:1])
    deltas.cleared()
    stored(deltas, 0, 1)
    assert deltas.take() == (
        BlockRemoved(block_hashes=(HASHES[2], HASHES[0], HASHES[1])),
        stored_event(0, 1),
        BlockRemoved(block_hashes=HASHES[0:1]),
        AllBlocksCleared(),
        stored_event(0, 1),
    )


def test_changes_are_handed_over_once():
    deltas = CacheDeltas(2)
    assert deltas.is_empty
    stored(deltas, 0, 1)
    assert not deltas.is_empty
    assert len(deltas.take()) == 1
    assert deltas.is_empty
    assert deltas.take() == ()
