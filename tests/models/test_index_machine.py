"""Random lives of a fleet: the index against a brute-force model that keeps every copy as a token sequence."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.hashing import native_available
from prefix_index.native import NativePrefixIndex
from wire.block_hash import namespace_seed
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Medium
from wire.ids import Target

BLOCK = 2
HOLDERS = [Target(name, 0) for name in "abc"]
SALTS = [None, "s"]
#: A prompt is a salt and a path of blocks; each block is one of two, so that prompts share prefixes.
paths = st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple)
holders = st.sampled_from(HOLDERS)
media = st.sampled_from([Medium.DEVICE, Medium.DEVICE, Medium.HOST])


def tokens(path) -> tuple[int, ...]:
    return tuple(token for block in path for token in (block, block + 7))


class IndexMachine(RuleBasedStateMachine):
    """An engine names a block by salt and path; the model counts copies of those names."""

    kind = NaivePrefixIndex

    def __init__(self):
        super().__init__()
        self.index = self.kind()
        self.copies: dict[Target, Counter] = {}
        #: Holders of which events were lost since their cache was last known to be empty.
        self.doubted: set[Target] = set()
        for holder in HOLDERS:
            self.attach(holder)

    def name(self, holder: Target, salt, path) -> bytes:
        """The engine's own hash: opaque, different for each holder, unknown to the index."""
        return repr((holder.worker, salt, path)).encode()

    @rule(holder=holders)
    def attach(self, holder):
        self.index.attach(holder, model="m")
        self.copies[holder] = Counter()
        self.doubted.discard(holder)

    @precondition(lambda self: len(self.copies) > 1)
    @rule(data=st.data())
    def drop(self, data):
        holder = data.draw(st.sampled_from(sorted(self.copies)))
        held = self.index.block_count(holder)
        assert self.index.drop(holder) == held
        del self.copies[holder]

    @rule(holder=holders, salt=st.sampled_from(SALTS), path=paths, start=st.integers(0, 5), medium=media)
    def store(self, holder, salt, path, start, medium):
        """Blocks start.. of a path. Some parents are unknown, some blocks are second copies."""
        start = min(start, len(path) - 1)
        keys = [(salt, path[: depth + 1]) for depth in range(start, len(path))]
        event = BlockStored(
            block_hashes=tuple(self.name(holder, *key) for key in keys),
            parent_block_hash=self.name(holder, salt, path[:start]) if start else None,
            token_ids=tokens(path)[BLOCK * start :],
            block_tokens=BLOCK,
            medium=medium,
            cache_salt=salt,
        )
        self.index.apply(holder, event)
        copies = self.copies.get(holder)
        if copies is None:
            return
        told_again = start == 0 and len(keys) > 1 and all(copies[(medium, *key)] for key in keys)
        if not told_again:
            copies.update((medium, *key) for key in keys)

    @rule(holder=holders, salt=st.sampled_from(SALTS), path=paths, depth=st.integers(1, 6), medium=media)
    def remove(self, holder, salt, path, depth, medium):
        """Blocks from the end of a path up to a depth; some were never there."""
        keys = [(medium, salt, path[:length]) for length in range(len(path), min(depth, len(path)) - 1, -1)]
        names = tuple(self.name(holder, *key[1:]) for key in keys)
        change = self.index.apply(holder, BlockRemoved(block_hashes=names, medium=medium))
        copies = self.copies.get(holder)
        if copies is None:
            return
        assert holder in self.doubted or change.unknown_removals == sum(not copies[key] for key in keys)
        for key in keys:
            copies[key] = max(0, copies[key] - 1)

    @rule(holder=holders)
    def clear(self, holder):
        self.index.apply(holder, AllBlocksCleared())
        if holder in self.copies:
            self.copies[holder] = Counter()
            self.doubted.discard(holder)

    @rule(holder=holders)
    def doubt(self, holder):
        """Events were lost: from now on the index may know less than is there, never more."""
        held = self.index.block_count(holder)
        assert self.index.doubt(holder) == held
        assert self.index.block_count(holder) == 0
        self.doubted.add(holder)

    @rule(salt=st.sampled_from(SALTS), path=paths, rest=st.integers(0, BLOCK))
    def match(self, salt, path, rest):
        prompt = (*tokens(path), *range(rest))
        hashes = block_hashes(prompt, BLOCK, namespace_seed("m", cache_salt=salt))
        found = self.index.find_reuse(BlockChain(BLOCK, tuple(hashes), len(prompt)))
        limit = (len(prompt) - 1) // BLOCK
        for holder in HOLDERS:
            resident = self.copies.get(holder, Counter())
            depth = 0
            while depth < min(limit, len(path)) and resident[(Medium.DEVICE, salt, path[: depth + 1])]:
                depth += 1
            reused = found.get(holder, 0)
            assert reused <= BLOCK * depth
            if holder not in self.doubted and self.is_rooted(holder, salt, path[:depth]):
                assert reused == BLOCK * depth

    def is_rooted(self, holder, salt, path) -> bool:
        """True when every block up to the path's end was told in an unbroken order: the index must know its place."""
        return (holder, salt, path) in self.known_places()

    def known_places(self) -> set:
        return {
            (holder, salt, path)
            for holder, copies in self.copies.items()
            for (_, salt, path), count in copies.items()
            if count
            for path in [path]
            if all(any(copies[(medium, salt, path[:n])] for medium in Medium) for n in range(1, len(path) + 1))
        } | {(holder, salt, ()) for holder in HOLDERS for salt in SALTS}

    @invariant()
    def nothing_contradicts(self):
        self.index.check_invariants()
        if not any(any(copies.values()) for copies in self.copies.values()):
            assert not self.places()

    def places(self):
        return self.index.size().blocks


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class NativeIndexMachine(IndexMachine):
    """The same lives in C++."""

    kind = NativePrefixIndex


TestNativeIndexMachine = pytest.mark.skipif(not native_available(), reason="no native module")(
    NativeIndexMachine.TestCase
)
TestNativeIndexMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
