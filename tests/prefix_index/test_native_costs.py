"""What the native index looks at grows with what comes in, not with what it holds: counted in steps, never timed."""

import pytest

from prefix_index import BlockChain, block_hashes
from prefix_index.hashing import native_available
from prefix_index.layout import GroupLayout, Layout
from prefix_index.native import NativePrefixIndex
from wire.block_hash import namespace_seed
from wire.dialects import vllm
from wire.events import BlockRemoved, BlockStored, EventBatch
from wire.ids import Target

pytestmark = pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")
A = Target("a", 0)
FULL = {"group_idx": 0, "group_kind": "full_attention"}
LAYOUT = Layout((GroupLayout(kind="full"), GroupLayout(kind="state")))


def run_of(first, last, **told) -> BlockStored:
    """Blocks of one token, named by their number, after the one before."""
    return BlockStored(
        block_hashes=tuple(range(first, last + 1)),
        parent_block_hash=first - 1 if first > 1 else None,
        token_ids=tuple(range(first, last + 1)),
        block_tokens=1,
        **told,
    )


def one_by_one(count) -> list[bytes]:
    return [encode(run_of(number, number)) for number in range(1, count + 1)]


def encode(*events) -> bytes:
    return vllm.encode_batch(EventBatch(ts_s=1.0, events=events, dp_rank=0), "0.32")


def prompt(last) -> BlockChain:
    tokens = list(range(1, last + 1))
    return BlockChain(1, tuple(block_hashes(tokens, 1, namespace_seed("m"))), last + 1)


def count_steps(index, act) -> int:
    before = index.count().steps
    act()
    return index.count().steps - before


@pytest.mark.parametrize("blocks", [500, 4_000])
def test_a_chain_of_a_declared_layout_that_grows_block_by_block_costs_what_it_grows_by(blocks):
    index = NativePrefixIndex()
    index.attach(A, model="m", layout=LAYOUT)
    assert count_steps(index, lambda: index.apply_payloads(A, one_by_one(blocks))) <= 2 * blocks
    assert index.find_reuse(prompt(blocks)) == {A: blocks}
    index.check_invariants()


def test_positions_that_are_remembered_end_with_their_blocks():
    layout = Layout((GroupLayout(kind="full"), GroupLayout(kind="state", checkpoint_tokens=3)))
    index = NativePrefixIndex()
    index.attach(A, model="m", layout=layout)
    for last in (2, 3, 4, 6, 7):
        index.clear(A)
        index.apply_payloads(A, one_by_one(last))
        assert index.find_reuse(prompt(last)) == ({A: last // 3 * 3} if last >= 3 else {})


@pytest.mark.parametrize("blocks", [400, 3_200])
def test_a_wide_window_below_states_without_checkpoints_is_looked_at_once(blocks):
    index = NativePrefixIndex()
    index.attach(A, model="m")
    window = {"group_idx": 1, "group_kind": "sliding_window", "window_tokens": blocks // 4}
    state = {"group_idx": 2, "group_kind": "mamba"}
    told = run_of(1, blocks, **FULL), run_of(1, blocks, **window), run_of(1, 1, **state)
    index.apply_payloads(A, [encode(*told)])
    assert count_steps(index, lambda: index.find_reuse(prompt(blocks))) <= 3 * blocks
    assert index.find_reuse(prompt(blocks)) == {A: 1}


@pytest.mark.parametrize("cap", [2_000, 8_000])
def test_one_chain_beyond_the_cap_of_a_holder_is_not_looked_over_at_every_event(cap):
    index = NativePrefixIndex(max_holder_blocks=cap)
    index.attach(A, model="m")
    assert count_steps(index, lambda: index.apply_payloads(A, one_by_one(3 * cap))) <= 200 * 3 * cap
    assert cap * 14 // 16 <= index.count().entries <= cap
    index.check_invariants()


@pytest.mark.parametrize("cap", [2_000, 8_000])
def test_one_chain_beyond_the_cap_of_all_is_not_looked_over_at_every_event(cap):
    index = NativePrefixIndex(max_blocks=cap)
    index.attach(A, model="m")
    assert count_steps(index, lambda: index.apply_payloads(A, one_by_one(3 * cap))) <= 300 * 3 * cap
    assert cap * 14 // 16 <= index.count().entries <= cap
    index.check_invariants()


def test_an_event_larger_than_the_caps_leaves_no_more_than_they_allow():
    for settings in ({"max_blocks": 5}, {"max_holder_blocks": 5}, {"max_blocks": 5, "max_holder_blocks": 20}):
        index = NativePrefixIndex(**settings)
        index.attach(A, model="m")
        index.apply(A, run_of(1, 400))
        index.check_invariants()
        assert 0 < index.count().entries <= 5


def test_names_are_spread_by_a_key_and_mean_the_same_with_any():
    #: Multiples of a prime that a standard map has so many buckets as.
    names = [(number + 2) * 85_229 * 43 for number in range(300)]
    event = BlockStored(block_hashes=tuple(names), parent_block_hash=1, token_ids=tuple(range(300)), block_tokens=1)
    dumps = []
    for key in (0, 1 << 63, 12_345):
        index = NativePrefixIndex(name_key=key)
        index.attach(A, model="m")
        assert index.apply(A, event).orphaned == 300
        index.apply(A, BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=(9,), block_tokens=1))
        index.check_invariants()
        assert index.count().parked_entries == 0
        dumps.append(list(index.dump(A)))
    assert dumps[0] == dumps[1] == dumps[2]


def test_a_huge_batch_does_not_keep_its_memory():
    index = NativePrefixIndex()
    index.attach(A, model="m")
    index.apply_payloads(A, [encode(run_of(1, 1))])
    before_bytes = index.count().size_bytes
    removal = BlockRemoved(block_hashes=(7,) * 60_000)
    assert index.apply_payloads(A, [encode(*[removal] * 40)]).unknown_removals == 40 * 60_000
    assert index.count().size_bytes > before_bytes + 40 * 60_000 * 8
    index.apply_payloads(A, [encode(run_of(2, 2))])
    assert index.count().size_bytes < before_bytes + 100_000
