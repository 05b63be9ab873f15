"""The native index and the one in Python live the same lives: every change, match and count is equal.

Parents may be unknown, copies and tiers come and go, blocks hold images. Only what both declare to support is
drawn: one full-attention group of one block size.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.hashing import native_available
from prefix_index.native import NativePrefixIndex
from prefix_index.residency import CopyRule
from wire.block_hash import namespace_seed
from wire.dialects import vllm
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, Medium
from wire.ids import Target

HOLDERS = [Target(name, 0) for name in "abc"]
MEDIA = [Medium.DEVICE, Medium.DEVICE, Medium.DEVICE, Medium.HOST]
#: A prompt is a salt and a path of blocks, each one of two; a second block of kind 1 holds an image.
paths = st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple)
salts = st.sampled_from([None, None, "s"])


def name(salt, path) -> int | bytes | None:
    """An engine's name for a block: always the same for the same place, of every form that engines use."""
    if not path:
        return None
    number = int("1" + "".join(map(str, path)), 2) + (1_000 if salt else 0)
    return [number, -number, 2**64 - number, number.to_bytes(32, "big")][number % 4]


def store(salt, path, start, medium) -> BlockStored:
    start = min(start, len(path) - 1)
    keys = [("image", 3) if depth == 1 and path[1] else None for depth in range(start, len(path))]
    if salt and not start:
        keys[0] = (*(keys[0] or ()), salt)
    return BlockStored(
        block_hashes=tuple(name(salt, path[: depth + 1]) for depth in range(start, len(path))),
        parent_block_hash=name(salt, path[:start]),
        token_ids=tuple(token for block in path[start:] for token in (block, 7)),
        block_tokens=2,
        medium=medium,
        extra_keys=tuple(keys),
    )


stores = st.builds(store, salts, paths, st.integers(0, 5), st.sampled_from(MEDIA))
removals = st.builds(
    lambda salt, path, first, medium: BlockRemoved(
        block_hashes=tuple(name(salt, path[:depth]) for depth in range(len(path), min(first, len(path) - 1), -1)),
        medium=medium,
    ),
    salts,
    paths,
    st.integers(0, 5),
    st.sampled_from(MEDIA),
)
events = stores | stores | stores | removals | removals | st.just(AllBlocksCleared())


class TwinMachine(RuleBasedStateMachine):
    """Every event goes to both; to the native one sometimes as bytes."""

    def __init__(self):
        super().__init__()
        self.naive = NaivePrefixIndex(max_orphans=6)
        self.native = NativePrefixIndex(max_orphans=6)
        #: Holders that told of host copies, and those of which events were lost. The two are kept apart: which copies
        #: of a block in several tiers are doubted is the dialects' business, not the core's.
        self.tiered: set[Target] = set()
        self.doubted: set[Target] = set()
        for number, holder in enumerate(HOLDERS):
            self.attach(holder, CopyRule.REFRESHED if number == 2 else CopyRule.COUNTED)

    @rule(holder=st.sampled_from(HOLDERS), rule=st.sampled_from(CopyRule))
    def attach(self, holder, rule):
        self.forget(holder)
        for index in (self.naive, self.native):
            index.attach(holder, model="m", rule=rule)

    def forget(self, holder):
        self.tiered.discard(holder)
        self.doubted.discard(holder)

    def is_apart(self, holder, event) -> bool:
        """Whether the event is one of host copies for a holder that is doubted; takes note of it if not."""
        if isinstance(event, AllBlocksCleared):
            self.forget(holder)
        elif event.medium is Medium.HOST:
            self.tiered.add(holder)
            return holder in self.doubted
        return False

    @rule(holder=st.sampled_from(HOLDERS))
    def drop(self, holder):
        self.forget(holder)
        assert self.naive.drop(holder) == self.native.drop(holder)

    @rule(holder=st.sampled_from(HOLDERS), event=events)
    def apply(self, holder, event):
        if self.is_apart(holder, event):
            return
        told, ours = self.naive.apply(holder, event), self.native.apply(holder, event)
        assert (ours.cleared, ours.orphaned, ours.unknown_removals) == (
            told.cleared,
            told.orphaned,
            told.unknown_removals,
        )
        assert (sorted(ours.stored), sorted(ours.removed)) == (sorted(told.stored), sorted(told.removed))

    @rule(holder=st.sampled_from(HOLDERS), event=events)
    def apply_bytes(self, holder, event):
        if self.is_apart(holder, event):
            return
        payload = vllm.encode_batch(EventBatch(ts_s=1.0, events=(event,)), "0.32")
        told = self.naive.apply(holder, event)
        outcome = self.native.apply_payloads(holder, [payload], with_changes=True)
        assert outcome.skipped == {}
        assert (outcome.orphaned, outcome.unknown_removals) == (told.orphaned, told.unknown_removals)
        assert (sorted(outcome.stored), sorted(outcome.removed)) == (sorted(told.stored), sorted(told.removed))

    @rule(salt=salts, path=paths, rest=st.integers(0, 2))
    def match(self, salt, path, rest):
        """The chain as a router makes it; of prompts without an image it is the plain one."""
        tokens = [token for block in path for token in (block, 7)] + [0] * rest
        hashes = block_hashes(tokens, 2, namespace_seed("m", cache_salt=salt))
        chain = BlockChain(2, tuple(hashes), len(tokens))
        assert self.native.find_reuse(chain) == self.naive.find_reuse(chain)

    @rule(holder=st.sampled_from(HOLDERS))
    def doubt(self, holder):
        if holder in self.tiered:
            return
        self.doubted.add(holder)
        assert self.native.doubt(holder) == self.naive.doubt(holder)

    @invariant()
    def nothing_differs(self):
        self.native.check_invariants()
        for holder in HOLDERS:
            assert self.native.block_count(holder) == self.naive.block_count(holder)
            assert self.native.is_modelled(holder) == self.naive.is_modelled(holder)
        # Sizes from before a clear may be remembered.
        assert self.native.block_sizes() <= self.naive.block_sizes()


TestTwinMachine = pytest.mark.skipif(not native_available(), reason="no native module")(TwinMachine.TestCase)
TestTwinMachine.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
