"""The index of two kinds: holders start in the native one and move when their events ask for more."""

import pytest
from msgspec.structs import replace

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes, make_index
from prefix_index.adaptive import TRIAL_EVENTS, AdaptivePrefixIndex
from prefix_index.hashing import native_available
from wire.block_hash import namespace_seed
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored
from wire.ids import Target

pytestmark = pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")
A, B = Target("a", 0), Target("b", 0)
PROMPT = tuple(range(33))
CHAIN = BlockChain(4, tuple(block_hashes(PROMPT, 4, namespace_seed("m"))), len(PROMPT))


@pytest.fixture
def index():
    made = AdaptivePrefixIndex()
    for holder in (A, B):
        made.attach(holder, model="m")
    yield made
    made.check_invariants()


def blocks(first, last, **fields) -> BlockStored:
    return BlockStored(
        block_hashes=tuple(range(first, last + 1)),
        parent_block_hash=first - 1 or None,
        token_ids=PROMPT[4 * first - 4 : 4 * last],
        block_tokens=4,
        **fields,
    )


WINDOW = blocks(7, 8, group_idx=1, group_kind="sliding_window", window_tokens=8)
FULL = {"group_idx": 0, "group_kind": "full_attention"}


def test_plain_holders_stay_native(index):
    index.apply(A, blocks(1, 8, **FULL))
    index.apply(B, blocks(1, 2))
    assert index.native.find_reuse(CHAIN) == index.find_reuse(CHAIN) == {A: 32, B: 8}


def test_a_holder_that_turns_out_hybrid_moves_with_its_first_events(index):
    index.apply(A, blocks(1, 8, **FULL))
    index.apply(B, blocks(1, 2))
    index.apply(A, WINDOW)
    assert index.find_reuse(CHAIN) == {A: 32, B: 8}
    assert index.native.find_reuse(CHAIN) == {B: 8}
    assert index.apply(A, BlockRemoved(block_hashes=(8,), group_idx=1)).touched
    assert index.find_reuse(CHAIN) == {B: 8}


def test_a_holder_that_turns_out_hybrid_late_counts_for_less_until_it_is_cleared(index):
    for _ in range(TRIAL_EVENTS + 1):
        index.apply(A, blocks(1, 8, **FULL))
    index.apply(A, WINDOW)
    assert index.find_reuse(CHAIN) == {}
    index.apply(A, AllBlocksCleared())
    index.apply(A, blocks(1, 8, **FULL))
    index.apply(A, WINDOW)
    assert index.find_reuse(CHAIN) == {A: 32}


def test_a_clear_begins_the_first_events_anew(index):
    for _ in range(TRIAL_EVENTS + 1):
        index.apply(A, blocks(1, 8, **FULL))
    index.clear(A)
    index.apply(A, blocks(1, 8, **FULL))
    index.apply(A, WINDOW)
    assert index.find_reuse(CHAIN) == {A: 32}


def test_what_was_doubted_is_not_told_again(index):
    index.apply(A, blocks(1, 8, **FULL))
    index.doubt(A)
    index.apply(A, WINDOW)
    assert index.find_reuse(CHAIN) == {}


def test_events_of_an_earlier_registration_change_nothing(index):
    generation = index.attach(A, model="m")
    index.attach(A, model="m")
    assert index.apply(A, blocks(1, 8), generation=generation).stored == ()
    assert index.find_reuse(CHAIN) == {}


def test_chains_in_several_sizes_find_native_holders_of_each(index):
    index.apply(A, blocks(1, 8))
    wide = block_hashes(PROMPT, 8, namespace_seed("m"))
    index.apply(B, BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=PROMPT[:8], block_tokens=8))
    chain = replace(CHAIN, others=(BlockChain(8, tuple(wide), len(PROMPT)),))
    assert index.find_reuse(chain) == {A: 32, B: 8}
    assert index.size().blocks == 9


def test_it_is_what_an_install_with_the_native_module_gets(monkeypatch):
    assert isinstance(make_index(), AdaptivePrefixIndex)
    monkeypatch.setattr("prefix_index.choose.native_available", lambda: False)
    assert isinstance(make_index(), NaivePrefixIndex)
