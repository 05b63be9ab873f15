"""Random lives of hybrid ranks in a fleet: groups, windows, checkpoints, tiers, pools, snapshots, against brute force.

The model keeps what every engine has: copies by group, tier and path of blocks. It knows no hash and no event; what
may be reused it finds by trying every boundary.
"""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.base import Reach
from prefix_index.hashing import native_available
from prefix_index.native import NativePrefixIndex
from wire.block_hash import namespace_seed
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Medium
from wire.ids import Target
from wire.snapshot import to_records

BLOCK = 2
WINDOW = 4
FULL, SLIDING, STATE = 0, 1, 2
KINDS = {
    FULL: {"group_idx": FULL, "group_kind": "full_attention"},
    SLIDING: {"group_idx": SLIDING, "group_kind": "sliding_window", "window_tokens": WINDOW},
    STATE: {"group_idx": STATE, "group_kind": "mamba"},
}
#: Tokens a block in each group, in path elements.
STRIDE = {FULL: 1, SLIDING: 1, STATE: 2}
A, B, C = HOLDERS = [Target(name, 0) for name in "abc"]
TERMS = {A: {"host": "h", "pools": ("p",)}, B: {"host": "h", "pools": ("p",)}, C: {}}
REACHES = {
    Reach.DEVICE: (Medium.DEVICE,),
    Reach.HOST: (Medium.DEVICE, Medium.HOST),
    Reach.POOLS: (Medium.DEVICE, Medium.HOST, Medium.EXTERNAL),
}
DEPTH = 5
paths = st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=DEPTH).map(tuple)
LEAVES = [tuple(number >> bit & 1 for bit in range(DEPTH)) for number in range(1 << DEPTH)]
holders = st.sampled_from(HOLDERS)
groups = st.sampled_from([FULL, SLIDING, STATE])
models = st.sampled_from([(FULL,), (FULL, SLIDING), (FULL, SLIDING, STATE), (SLIDING, FULL), (FULL, SLIDING, STATE)])
media = st.sampled_from([Medium.DEVICE, Medium.DEVICE, Medium.DEVICE, Medium.HOST, Medium.EXTERNAL])


def tokens(path) -> tuple[int, ...]:
    return tuple(token for block in path for token in (block, block + 7))


def find_chain(path, rest=1) -> BlockChain:
    prompt = (*tokens(path), *range(rest))
    seed = namespace_seed("m")
    chains = [BlockChain(size, tuple(block_hashes(prompt, size, seed)), len(prompt)) for size in (BLOCK, 2 * BLOCK)]
    return replace(chains[0], others=(chains[1],))


class HybridIndexMachine(RuleBasedStateMachine):
    """A key of the model is (group, tier, path up to the block's end)."""

    kind = NaivePrefixIndex

    def __init__(self):
        super().__init__()
        self.index = self.kind()
        self.copies: dict[Target, Counter] = {}
        self.seen: dict[Target, set] = {}
        self.pool: set = set()
        self.pool_seen: set = set()
        self.doubted: set[Target] = set()
        for holder in HOLDERS:
            self.attach(holder)

    def is_pooled(self, holder, medium) -> bool:
        return medium is Medium.EXTERNAL and bool(TERMS[holder].get("pools"))

    def attach(self, holder):
        self.index.attach(holder, model="m", **TERMS[holder])
        self.copies[holder], self.seen[holder] = Counter(), set()
        self.doubted.discard(holder)

    @rule(holder=holders, path=paths, numbers=models, unlisted=st.integers(0, 3), medium=media)
    def prefill(self, *, holder, path, numbers, unlisted, medium):
        """One step of an engine: every group of its model stores what it keeps of a prompt."""
        for group in numbers:
            self.store(holder=holder, group=group, path=path, start=0, unlisted=unlisted, medium=medium)

    @rule(
        holder=holders,
        group=groups,
        path=paths,
        start=st.integers(0, DEPTH),
        unlisted=st.integers(0, DEPTH),
        medium=media,
    )
    def store(self, *, holder, group, path, start, unlisted, medium):
        """Blocks of a path from its start, or after a parent that some group has; the first few without a name."""
        stride = STRIDE[group]
        ends = range(stride, len(path) + 1, stride)
        parent = min(start, len(path)) // stride * stride
        names = [key[2] for key, count in self.copies[holder].items() if count and STRIDE[key[0]] == stride]
        parent = parent if path[:parent] in names else 0
        told = [path[:end] for end in ends if end > parent]
        if not told:
            return
        listed = told if group == FULL else told[unlisted:]
        event = BlockStored(
            block_hashes=tuple(self.name(holder, prefix) for prefix in listed),
            parent_block_hash=self.name(holder, path[:parent]) if parent else None,
            token_ids=tokens(path[parent : len(told[-1])]),
            block_tokens=BLOCK * stride,
            medium=medium,
            **KINDS[group],
        )
        self.index.apply(holder, event)
        self.note_store(holder, [(group, medium, prefix) for prefix in listed], has_parent=bool(parent), group=group)

    def note_store(self, holder, keys, *, has_parent, group):
        copies = self.copies[holder]
        self.seen[holder].add(group)
        if keys and self.is_pooled(holder, keys[0][1]):
            self.pool.update(keys)
            self.pool_seen.add(group)
            copies.update(dict.fromkeys((key for key in keys if not copies[key]), 1))
            return
        is_full_only = self.seen[holder] <= {FULL}
        told_again = not has_parent and len(keys) > 1 and is_full_only and all(copies[key] for key in keys)
        if not told_again:
            copies.update(keys)

    @rule(holder=holders, group=groups, path=paths, depth=st.integers(1, DEPTH), medium=media)
    def remove(self, *, holder, group, path, depth, medium):
        """Blocks from the end of a path up to a depth; some were never there."""
        stride = STRIDE[group]
        ends = [end for end in range(stride, len(path) + 1, stride) if end >= min(depth, len(path))]
        keys = [(group, medium, path[:end]) for end in reversed(ends)]
        names = tuple(self.name(holder, key[2]) for key in keys)
        change = self.index.apply(holder, BlockRemoved(block_hashes=names, medium=medium, group_idx=group))
        copies = self.copies[holder]
        assert holder in self.doubted or change.unknown_removals == sum(not copies[key] for key in keys)
        for key in keys:
            if copies[key] and self.is_pooled(holder, medium):
                self.pool.discard(key)
            copies[key] = max(0, copies[key] - 1)

    @precondition(lambda self: any(any(copies.values()) for copies in self.copies.values()))
    @rule(data=st.data(), count=st.integers(1, 3))
    def evict(self, data, count):
        """Copies that are there."""
        held = sorted((holder, key) for holder in HOLDERS for key, copies in self.copies[holder].items() if copies)
        for holder, (group, medium, path) in data.draw(st.lists(st.sampled_from(held), min_size=count, max_size=count)):
            self.remove(holder=holder, group=group, path=path, depth=len(path), medium=medium)

    @precondition(lambda self: any(any(copies.values()) for copies in self.copies.values()))
    @rule(data=st.data())
    def compute_again(self, data):
        """A second copy of a block that is there, as a full hit of an aligned prompt makes; then one of them goes."""
        held = sorted((holder, key) for holder in HOLDERS for key, copies in self.copies[holder].items() if copies)
        holder, (group, medium, path) = data.draw(st.sampled_from(held))
        start = len(path) - STRIDE[group]
        self.store(holder=holder, group=group, path=path, start=start, unlisted=0, medium=medium)
        self.remove(holder=holder, group=group, path=path, depth=len(path), medium=medium)

    @rule(holder=holders, how=st.sampled_from(["clear", "lose", "doubt", "attach"]))
    def suffer(self, holder, how):
        """One rule for what destroys, so that there is something to destroy."""
        getattr(self, how)(holder)

    def clear(self, holder):
        self.index.apply(holder, AllBlocksCleared())
        self.copies[holder] = Counter()
        self.doubted.discard(holder)

    def lose(self, holder):
        """The engine is gone; a new one of the same name starts with nothing, and what is in the pool stays."""
        held = self.index.block_count(holder)
        assert self.index.drop(holder) == held
        assert self.index.apply(holder, AllBlocksCleared()).cleared is False
        self.attach(holder)

    def doubt(self, holder):
        """Events were lost: from now on the index may know less than is there, never more."""
        self.index.doubt(holder)
        for key in [key for key in self.copies[holder] if self.is_pooled(holder, key[1]) and self.copies[holder][key]]:
            self.pool.discard(key)
            self.copies[holder][key] = 0
        self.doubted.add(holder)

    @precondition(lambda self: self.pool)
    @rule()
    def drop_pool(self):
        assert self.index.drop_pool("p") == len(self.pool)
        for holder in HOLDERS:
            for key in [key for key in self.copies[holder] if self.is_pooled(holder, key[1])]:
                self.copies[holder][key] = min(1, self.copies[holder][key])
        self.pool, self.pool_seen = set(), set()

    @precondition(lambda self: self.pool == self.pool_of_ranks())
    @rule()
    def start_anew_from_a_dump(self):
        """Another index that loads what this one dumps gives the same answers, then and ever after."""
        fresh = self.kind()
        for holder in HOLDERS:
            fresh.attach(holder, model="m", **TERMS[holder])
        for holder in HOLDERS:
            runs = list(self.index.dump(holder))
            records = [record for run in runs for record in to_records(run)]
            assert fresh.load(holder, runs) == sum(record.copies > 0 for record in records)
            again = [record for run in fresh.dump(holder) for record in to_records(run)]
            assert sorted(again, key=repr) == sorted(records, key=repr)
            assert fresh.block_count(holder) == self.index.block_count(holder)
            for run in runs:
                positions = [record.position for record in to_records(run)]
                assert positions == sorted(positions)
        for path in LEAVES:
            assert fresh.find_reuse(find_chain(path)) == self.index.find_reuse(find_chain(path))
        self.pool_seen = {key[0] for key in self.pool}
        # What a dropped pool held is in no dump: a removal of it is one of something unknown from now on.
        for holder in HOLDERS:
            for key in self.copies[holder]:
                if self.is_pooled(holder, key[1]) and key not in self.pool:
                    self.copies[holder][key] = 0
        self.index = fresh

    def pool_of_ranks(self) -> set:
        """What the pool would have if only the ranks that are there had stored in it."""
        return {
            key
            for holder in HOLDERS
            for key, count in self.copies[holder].items()
            if count and self.is_pooled(holder, key[1]) and key in self.pool
        }

    @rule(path=paths, rest=st.integers(0, BLOCK))
    def match(self, path, rest):
        """A prompt of any length."""
        chain = find_chain(path, rest)
        found = self.index.find_reuse(chain)
        for holder in HOLDERS:
            expected = self.find_reuse(holder, path, chain.token_count, Reach.DEVICE)
            assert found.get(holder, 0) <= expected
            if holder not in self.doubted:
                assert found.get(holder, 0) == expected

    @rule(path=paths, holder=holders)
    def find_alternatives(self, path, holder):
        chain = find_chain(path)
        found = self.index.find_alternatives(chain, holder)
        best = 0
        is_sure = self.doubted.isdisjoint(HOLDERS[:2] if holder is not C else [C])
        for reach in Reach:
            best = max(best, self.find_reuse(holder, path, chain.token_count, reach))
            direct = [each for each in found if not each.recompute_tokens and self.is_within(each.reach, reach)]
            reused = max((each.reuse_tokens for each in direct), default=0)
            assert reused == best if is_sure else reused <= best
        assert all(0 <= each.recompute_tokens < each.reuse_tokens <= len(tokens(path)) for each in found)

    def is_within(self, inner, outer) -> bool:
        return set(REACHES[inner]) <= set(REACHES[outer])

    def find_reuse(self, holder, path, token_count, reach) -> int:
        """Largest boundary of every group at which every group has what it needs, by trial."""
        known = self.find_known(holder, reach)
        if known != set(range(len(known))) or not known:
            return 0
        for end in range(len(path), 0, -1):
            if end * BLOCK < token_count and all(self.is_open(holder, group, path, end, reach) for group in known):
                return end * BLOCK
        return 0

    def find_known(self, holder, reach) -> set:
        known = set(self.seen[holder])
        if reach is not Reach.DEVICE and holder is not C:
            known |= self.seen[A] | self.seen[B]
        if reach is Reach.POOLS and holder is not C:
            known |= self.pool_seen
        return known

    def is_open(self, holder, group, path, end, reach) -> bool:
        stride = STRIDE[group]
        if end % stride:
            return False
        first = {FULL: 0, SLIDING: max(0, end - WINDOW // BLOCK), STATE: end - stride}[group]
        return all(self.has(holder, group, path[:stop], reach) for stop in range(first + stride, end + 1, stride))

    def has(self, holder, group, prefix, reach) -> bool:
        for medium in REACHES[reach]:
            key = (group, medium, prefix)
            if self.is_pooled(holder, medium):
                found = key in self.pool
            elif medium is Medium.HOST and holder is not C:
                found = self.copies[A][key] or self.copies[B][key]
            else:
                found = self.copies[holder][key]
            if found:
                return True
        return False

    def name(self, holder: Target, path) -> bytes:
        """The engine's own hash: one for all groups whose blocks end there, whatever their size."""
        return repr((holder.worker, path)).encode()

    @invariant()
    def nothing_contradicts(self):
        self.index.check_invariants()
        for path in LEAVES:
            self.match(path, 1)


TestHybridIndexMachine = HybridIndexMachine.TestCase
TestHybridIndexMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class NativeHybridIndexMachine(HybridIndexMachine):
    """The same lives in C++."""

    kind = NativePrefixIndex


TestNativeHybridIndexMachine = pytest.mark.skipif(not native_available(), reason="no native module")(
    NativeHybridIndexMachine.TestCase
)
TestNativeHybridIndexMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
