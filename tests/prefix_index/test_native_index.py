"""What the native index adds: payloads in one call, ready hashes, a cap, holes far above, threads."""

from random import Random
from threading import Thread

import msgspec
import pytest

from prefix_index import BlockChain, block_hashes
from prefix_index.hashing import native_available
from prefix_index.native import NativePrefixIndex
from wire.block_hash import namespace_seed
from wire.dialects import vllm
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from wire.ids import Target

pytestmark = pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")
A, B = Target("a", 0), Target("b", 0)


def make_index(**settings):
    index = NativePrefixIndex(**settings)
    index.attach(A, model="m")
    index.attach(B, model="m")
    return index


def run_of(first, last, *, base=0) -> BlockStored:
    """Blocks first..last of the chain whose tokens are counted from `base`."""
    return BlockStored(
        block_hashes=tuple(base + number for number in range(first, last + 1)),
        parent_block_hash=base + first - 1 if first > 1 else None,
        token_ids=tuple(base + number for number in range(2 * first, 2 * last + 2)),
        block_tokens=2,
    )


def prompt(last, *, base=0) -> BlockChain:
    tokens = [base + number for number in range(2, 2 * last + 2)]
    return BlockChain(2, tuple(block_hashes(tokens, 2, namespace_seed("m"))), len(tokens) + 1)


def encode(*events) -> bytes:
    return vllm.encode_batch(EventBatch(ts_s=1.0, events=events, dp_rank=0), "0.32")


def test_payloads_count_what_they_changed():
    index = make_index()
    payloads = [
        encode(run_of(1, 3)),
        encode(BlockRemoved(block_hashes=(3, 9)), run_of(7, 7)),
        encode(AllBlocksCleared()),
    ]
    outcome = index.apply_payloads(A, payloads, with_changes=True)
    assert (outcome.batches, outcome.stores, outcome.removals, outcome.clears) == (3, 2, 1, 1)
    assert (outcome.orphaned, outcome.unknown_removals) == (1, 1)
    assert outcome.stored == list(prompt(3).hashes)
    assert outcome.removed == [prompt(3).hashes[2]]


def test_a_damaged_payload_is_refused_for_the_reason_of_the_decoder_and_doubts_what_was_there():
    index = make_index()
    foreign = msgspec.msgpack.encode([1.0, [["SomethingNew", 1], {"type": "BlockStored"}], 0])
    outcome = index.apply_payloads(A, [encode(run_of(1, 2)), b"\xc1", foreign, encode(run_of(3, 3))])
    assert outcome.skipped == {"malformed batch": 1, "unknown_type": 1, "malformed": 1}
    assert (outcome.batches, outcome.losses) == (4, 2)
    # The block stored below proves those that were doubted.
    assert index.find_reuse(prompt(3)) == {A: 6}
    index.check_invariants()


def test_payloads_of_a_holder_that_is_not_attached_change_nothing():
    index = make_index()
    index.drop(A)
    assert index.apply_payloads(A, [encode(run_of(1, 2)), b"\xc1"]).batches == 0
    assert index.count().entries == 0


def test_above_the_cap_whole_old_chains_go_and_a_chain_that_grows_stays():
    index = make_index(max_blocks=2_000)
    index.apply(A, run_of(1, 10))
    for number in range(1, 400):
        index.apply(A, run_of(1, 20, base=10_000 * number))
        index.apply(A, run_of(10 + number, 10 + number))
    sizes = index.count()
    assert sizes.entries <= 2_000
    assert sizes.evicted_entries > 0
    assert index.find_reuse(prompt(409)) == {A: 818}
    assert index.find_reuse(prompt(20, base=10_000)) == {}
    index.check_invariants()


def test_a_root_removed_and_stored_above_many_descendants_is_exact_at_every_moment():
    index = make_index()
    index.apply_payloads(A, [encode(run_of(1, 1), run_of(2, 5_000))])
    index.apply_payloads(B, [encode(run_of(1, 5_000))])
    chain = prompt(5_000)
    for step in range(30):
        index.apply(A, BlockRemoved(block_hashes=(1,)))
        assert index.find_reuse(chain) == {B: 10_000}
        if step % 7 == 0:
            while index.count().unsettled_edges:
                index.find_reuse(prompt(1))
                index.check_invariants()
        index.apply(A, run_of(1, 1))
        assert index.find_reuse(chain) == {A: 10_000, B: 10_000}
    index.check_invariants()


def test_a_wide_root_is_settled_a_piece_at_a_time():
    index = make_index()
    index.apply(A, run_of(1, 1))
    for number in range(3_000):
        index.apply(
            A,
            BlockStored(
                block_hashes=(10_000 + number,), parent_block_hash=1, token_ids=(number, number), block_tokens=2
            ),
        )
    index.apply(A, BlockRemoved(block_hashes=(1,)))
    for number in range(0, 3_000, 3):
        index.apply(A, BlockRemoved(block_hashes=(10_000 + number,)))
    index.apply(A, run_of(1, 1))
    while index.count().unsettled_edges:
        index.find_reuse(prompt(1))
    index.check_invariants()
    assert index.drop(A) == 2_001
    assert index.count().nodes == 0


def test_threads_share_an_index():
    index = make_index()
    rng = Random(1)
    lists = [[encode(run_of(1, 50, base=100_000 * rng.randrange(20))) for _ in range(200)] for _ in range(2)]
    workers = [
        Thread(target=index.apply_payloads, args=(holder, payloads))
        for holder, payloads in zip((A, B), lists, strict=True)
    ]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        index.find_reuse(prompt(50))
    for worker in workers:
        worker.join()
    index.check_invariants()
    assert index.count().nodes <= 20 * 50


def test_a_chain_that_is_none_is_refused():
    index = make_index()
    for chain in ((0, (1, 2), 3), (2, [1, 2], 3)):
        with pytest.raises(ValueError, match="tuple of blocks"):
            index.core.find_reuse([chain], 6)
