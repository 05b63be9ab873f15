"""Chains that come and go through a stream's bytes leave no memory behind, in either kind of index."""

import gc
import os
from pathlib import Path

import pytest

from engine_shim.engine.publish import EventDialect
from prefix_index import NaivePrefixIndex, make_index
from prefix_index.stream import RankStream
from wire.events import BlockRemoved, BlockStored, EventBatch
from wire.frames import encode_live
from wire.ids import Target, WorkerId

TARGET = Target(WorkerId("w"), 0)
STEM = tuple(range(50_000, 50_008))
ENCODE = EventDialect.VLLM_MAP.encoder()


def read_rss_bytes():
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        pytest.skip("needs /proc/self/statm to see the memory of the process")
    return pages * os.sysconf("SC_PAGE_SIZE")


def encode_round(number, chains):
    """Batches of chains below one stem, each stored and removed, the stem last."""
    stem = BlockStored(block_hashes=(1, 2), parent_block_hash=None, token_ids=STEM, block_tokens=4)
    yield ENCODE(EventBatch(ts_s=0.0, events=(stem,), dp_rank=0))
    start = number * chains
    for first in range(start, start + chains, 500):
        events = []
        for chain in range(first, first + 500):
            names = (3 + 2 * chain, 4 + 2 * chain)
            tokens = tuple(range(chain * 8, chain * 8 + 8))
            events.append(BlockStored(block_hashes=names, parent_block_hash=2, token_ids=tokens, block_tokens=4))
            events.append(BlockRemoved(block_hashes=names[::-1]))
        yield ENCODE(EventBatch(ts_s=0.0, events=(*events,), dp_rank=0))
    yield ENCODE(EventBatch(ts_s=0.0, events=(BlockRemoved(block_hashes=(2, 1)),), dp_rank=0))


@pytest.mark.parametrize(("kind", "chains"), [(NaivePrefixIndex, 3_000), (make_index, 20_000)])
def test_A16_memory_is_back_where_it_was_after_every_round_of_chains(kind, chains):
    index = kind()
    index.attach(TARGET, model="m")
    stream = RankStream(TARGET, index, replay_available=False)
    seq = 0
    after = []
    for number in range(6):
        for payload in encode_round(number, chains):
            stream.on_live(encode_live("", seq, payload), 0.0)
            seq += 1
        assert index.block_count(TARGET) == 0
        after.append(read_rss_bytes())
    assert stream.counters.skipped == {}
    assert index.size().blocks == index.size().parked_blocks == 0
    # The first rounds fill arenas that stay; a node of 100 bytes a chain that stayed would show in the others.
    assert after[-1] - after[1] < 4 * chains * 100
    index.check_invariants()
