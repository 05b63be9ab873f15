"""Each dialect tells the same blocks in the way its engine does."""

import pytest

from engine_shim.engine.publish import EventDialect
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch


def told(dialect, *events):
    return decode_batch(dialect.encoder()(EventBatch(ts_s=1.0, events=events, dp_rank=2))).events


def stored(**fields):
    return BlockStored(
        **({"block_hashes": (-5, 7), "parent_block_hash": -9, "token_ids": (1, 2), "block_tokens": 1} | fields)
    )


@pytest.mark.parametrize("dialect", list(EventDialect))
def test_tokens_parents_and_removals_come_through(dialect):
    first, removed, cleared = told(dialect, stored(), BlockRemoved(block_hashes=(-5,)), AllBlocksCleared())
    assert (first.token_ids, first.block_tokens) == ((1, 2), 1)
    assert removed.block_hashes == first.block_hashes[:1]
    assert cleared == AllBlocksCleared()


@pytest.mark.parametrize("dialect", [EventDialect.SGLANG_MAP, EventDialect.SGLANG_ARRAY])
def test_sglang_hashes_are_signed_and_the_salt_has_a_field(dialect):
    (event,) = told(dialect, stored(cache_salt="a"))
    assert (event.block_hashes, event.parent_block_hash, event.cache_salt) == ((-5, 7), -9, "a")


@pytest.mark.parametrize("dialect", [EventDialect.VLLM_MAP, EventDialect.VLLM_ARRAY])
def test_vllm_hashes_are_unsigned(dialect):
    event, removed = told(dialect, stored(), BlockRemoved(block_hashes=(-5, 7)))
    assert event.block_hashes == removed.block_hashes == (2**64 - 5, 7)
    assert event.parent_block_hash == 2**64 - 9


@pytest.mark.parametrize("dialect", [EventDialect.VLLM_MAP, EventDialect.VLLM_ARRAY])
def test_vllm_tells_a_salt_with_the_first_block_of_a_prompt(dialect):
    head, tail = told(dialect, stored(parent_block_hash=None, cache_salt="a"), stored(cache_salt="a"))
    assert head.extra_keys == (("a",), None)
    assert tail.extra_keys == (None, None)
