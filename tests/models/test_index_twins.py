"""The native index and the one in Python live the same lives: every change, match, alternative and dump is equal.

Groups of several rules and block sizes, tiers, host domains and pools, layouts and corrections, copies, images and
salts; parents that are unknown, names that change their place or share one; clears, lost events, ranks that come and
go, and dumps of either index loaded into the other.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from prefix_index import BlockChain, Change, NaivePrefixIndex, block_hashes
from prefix_index.base import CopyRule
from prefix_index.components import STANDARD, Recovery
from prefix_index.hashing import native_available
from prefix_index.layout import GroupLayout, Layout
from prefix_index.native import NativePrefixIndex
from wire.block_hash import namespace_seed
from wire.dialects import vllm
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, Medium
from wire.ids import Target
from wire.snapshot import to_records

#: Blocks of two tokens, of four in the group of states; a prompt is a salt and a path of blocks, each one of two.
SIZES = (2, 4)
DEPTH = 6
HOLDERS = [Target(name, 0) for name in "abc"]


class Chunked:
    """A rule that the core does not have: everything since the chunk's start."""

    name = "chunked"
    recovery = Recovery.REBUILD

    def find_start(self, end_tokens: int) -> int:
        return (end_tokens - 1) // 4 * 4


REGISTRY = STANDARD.with_kind("chunked", lambda _: Chunked())
GROUPS = {
    "plain": {},
    "full": {"group_idx": 0, "group_kind": "full_attention"},
    "window": {"group_idx": 1, "group_kind": "sliding_window", "window_tokens": 3},
    "state": {"group_idx": 2, "group_kind": "mamba"},
    "more": {"group_idx": 3, "group_kind": "mla_attention"},
    "chunked": {"group_idx": 1, "group_kind": "chunked"},
    "odd": {"group_idx": 4, "group_kind": "nobody_knows"},
}
#: What the engines of a life are made of; the last ones are rare.
MODELS = [
    ("plain",), ("full",), ("full", "window"), ("full", "window", "state"), ("window", "full"), ("window",),
    ("full", "chunked"), ("full", "window", "state", "more"), tuple(GROUPS),
]  # fmt: skip
LAYOUTS = [
    None,
    Layout((GroupLayout(kind="full"), GroupLayout(kind="state"))),
    Layout(
        (
            GroupLayout(kind="full", bytes_per_token=3),
            GroupLayout(kind="state", checkpoint_tokens=4, checkpoint_bytes=9),
        )
    ),
    Layout((GroupLayout(kind="swa", window_tokens=3, is_offloaded=True), GroupLayout(kind="full"))),
]
MEDIA = [*[Medium.DEVICE] * 5, Medium.HOST, Medium.HOST, Medium.DISK, Medium.EXTERNAL, "MOON"]
paths = st.lists(st.sampled_from([0, 0, 1]), min_size=1, max_size=DEPTH).map(tuple)
salts = st.sampled_from([None, None, None, "s"])
holders = st.sampled_from(HOLDERS)
media = st.sampled_from(MEDIA)
PROMPTS = [tuple(number >> bit & 1 for bit in range(DEPTH)) for number in range(1 << DEPTH)]


def name(salt, path, dialect) -> int | bytes:
    """An engine's name for a block, of every form that engines use.

    Dialect 1 leaves the salt out, so that a name may change its place; dialect 2 has a second name for some places.
    """
    number = int("1" + "".join(map(str, path)), 2) + (1_000 if salt and dialect != 1 else 0)
    number += 5_000 if dialect == 2 else 0
    return [number, -number, 2**64 - number, number.to_bytes(32, "big")][number % 4]


def store(model, drawn) -> BlockStored:
    """Blocks of a path from `start` on; some first ones of a window group without a name."""
    pick, salt, path, start, unlisted, medium, dialect, size = drawn
    group = model[pick % len(model)]
    stride = 2 if group == "state" or size else 1
    depths = range(stride, len(path) + 1, stride)
    if not depths:
        return store(model, (pick, salt, (0, *path), start, unlisted, medium, dialect, size))
    first = depths[min(start, len(depths) - 1)] - stride
    told = [path[:depth] for depth in depths if depth > first]
    listed = told[min(unlisted, len(told)) if group in ("window", "chunked", "state") else 0 :]
    keys = [("image", 3) if len(block) == 2 and block[1] else None for block in listed]
    if salt and not first and listed and listed[0] == told[0]:
        keys[0] = (*(keys[0] or ()), salt)
    tokens = [token for block in path[first : len(told[-1])] for token in (block, 7)]
    return BlockStored(
        block_hashes=tuple(name(salt, block, dialect) for block in listed),
        parent_block_hash=name(salt, path[:first], dialect) if first else None,
        token_ids=tuple(tokens),
        block_tokens=2 * stride,
        medium=medium,
        extra_keys=tuple(keys) if any(keys) else None,
        **GROUPS[group],
    )


def remove(model, drawn) -> BlockRemoved:
    pick, salt, path, first, medium, dialect = drawn
    depths = range(len(path), min(first, len(path) - 1), -1)
    group_idx = GROUPS[model[pick % len(model)]].get("group_idx")
    return BlockRemoved(
        block_hashes=tuple(name(salt, path[:depth], dialect) for depth in depths), medium=medium, group_idx=group_idx
    )


small = st.integers(0, 3)
dialects = st.sampled_from([0, 0, 0, 0, 1, 2])
stores = st.tuples(small, salts, paths, st.integers(0, DEPTH), small, media, dialects, st.sampled_from([0, 0, 0, 1]))
removals = st.tuples(small, salts, paths, st.integers(0, DEPTH), media, dialects)


def make_chain(salt, path, rest) -> BlockChain:
    """The chain as a router makes it; of prompts without an image it is the plain one."""
    tokens = [token for block in path for token in (block, 7)] + [0] * rest
    seed = namespace_seed("m", cache_salt=salt)
    chains = [BlockChain(size, tuple(block_hashes(tokens, size, seed)), len(tokens)) for size in SIZES]
    return replace(chains[0], others=(chains[1],))


def in_order(change: Change) -> Change:
    return replace(
        change,
        stored=tuple(sorted(change.stored)),
        removed=tuple(sorted(change.removed)),
        touched=tuple(sorted(change.touched)),
    )


class TwinMachine(RuleBasedStateMachine):
    """Every event goes to both; to the native one sometimes as bytes."""

    def __init__(self):
        super().__init__()
        self.naive = NaivePrefixIndex(max_orphans=6, registry=REGISTRY)
        self.native = NativePrefixIndex(max_orphans=6, registry=REGISTRY)
        self.terms = {}
        self.models = {}
        for number, holder in enumerate(HOLDERS):
            self.attach(holder, number, 0, CopyRule.REFRESHED if number == 2 else CopyRule.COUNTED, shared=True)

    @rule(
        holder=holders,
        model=st.integers(0, len(MODELS) - 1),
        layout=st.integers(0, 7),
        rule=st.sampled_from(CopyRule),
        shared=st.booleans(),
    )
    def attach(self, holder, model, layout, rule, shared):
        terms = {
            "rule": rule,
            "host": "h" if shared else None,
            "pools": ("p", "q")[: 2 - (layout % 2)] if shared else (),
        }
        self.models[holder] = MODELS[model]
        # Layouts are of use where only full attention is told.
        chosen = LAYOUTS[layout] if MODELS[model] == ("plain",) and layout < len(LAYOUTS) else None
        self.terms[holder] = terms | {"layout": chosen}
        for index in (self.naive, self.native):
            index.attach(holder, model="m", **self.terms[holder])

    @rule(holder=holders)
    def drop(self, holder):
        assert self.naive.drop(holder) == self.native.drop(holder)

    @rule(holder=holders)
    def clear(self, holder):
        assert self.naive.clear(holder) == self.native.clear(holder)

    def apply(self, holder, event):
        assert in_order(self.native.apply(holder, event)) == in_order(self.naive.apply(holder, event))

    @rule(holder=holders, drawn=stores)
    def store(self, holder, drawn):
        self.apply(holder, store(self.models[holder], drawn))

    @rule(holder=holders, path=paths, medium=media, unlisted=small)
    def prefill(self, holder, path, medium, unlisted):
        """One step of an engine: every group of its model stores what it keeps of a prompt."""
        for pick in range(len(self.models[holder])):
            self.apply(holder, store(self.models[holder], (pick, None, path, 0, unlisted, medium, 0, 0)))

    @rule(holder=holders, drawn=removals)
    def remove(self, holder, drawn):
        self.apply(holder, remove(self.models[holder], drawn))

    @rule(holder=holders)
    def clear_by_event(self, holder):
        self.apply(holder, AllBlocksCleared())

    @rule(holder=holders, drawn=stores | removals)
    def apply_bytes(self, holder, drawn):
        make = store if len(drawn) == 8 else remove
        event = make(self.models[holder], drawn)
        payload = vllm.encode_batch(EventBatch(ts_s=1.0, events=(event,)), "0.32")
        told = in_order(self.naive.apply(holder, event))
        outcome = self.native.apply_payloads(holder, [payload], with_changes=True)
        assert outcome.skipped == {}
        assert (outcome.orphaned, outcome.unknown_removals) == (told.orphaned, told.unknown_removals)
        assert outcome.refused == told.refused
        assert (sorted(outcome.stored), sorted(outcome.removed)) == (list(told.stored), list(told.removed))

    @rule(holder=holders)
    def doubt(self, holder):
        assert self.native.doubt(holder) == self.naive.doubt(holder)

    @rule()
    def drop_pool(self):
        assert self.native.drop_pool("p") == self.naive.drop_pool("p")

    @rule(holder=holders, path=paths, blocks=st.integers(0, DEPTH), rest=small)
    def correct(self, holder, path, blocks, rest):
        chain = make_chain(None, path, rest)
        assert self.native.correct(holder, chain, 2 * blocks) == self.naive.correct(holder, chain, 2 * blocks)

    @rule(holder=holders, salt=salts, path=paths, rest=small)
    def match(self, holder, salt, path, rest):
        chain = make_chain(salt, path, rest)
        assert self.native.find_reuse(chain) == self.naive.find_reuse(chain)
        assert self.native.find_alternatives(chain, holder) == self.naive.find_alternatives(chain, holder)

    @rule(is_crossed=st.booleans())
    def start_anew_from_dumps(self, is_crossed):
        """Both load what either dumps; pools hold nothing but what the ranks tell of."""
        naive = NaivePrefixIndex(max_orphans=6, registry=REGISTRY)
        native = NativePrefixIndex(max_orphans=6, registry=REGISTRY)
        for holder in HOLDERS:
            for fresh in (naive, native):
                fresh.attach(holder, model="m", **self.terms[holder])
            one, other = list(self.naive.dump(holder)), list(self.native.dump(holder))
            assert self.records(one) == self.records(other)
            taken = naive.load(holder, other if is_crossed else one), native.load(holder, one if is_crossed else other)
            assert taken[0] == taken[1]
        self.naive, self.native = naive, native

    def records(self, runs):
        return sorted((record for run in runs for record in to_records(run)), key=repr)

    @invariant()
    def nothing_differs(self):
        self.native.check_invariants()
        self.naive.check_invariants()
        assert self.native.size() == self.naive.size()
        assert self.native.block_sizes() == self.naive.block_sizes()
        for holder in HOLDERS:
            assert self.native.block_count(holder) == self.naive.block_count(holder)
            assert self.native.is_modelled(holder) == self.naive.is_modelled(holder)

    def teardown(self):
        for path in PROMPTS:
            chain = make_chain(None, path, 1)
            assert self.native.find_reuse(chain) == self.naive.find_reuse(chain)
            for holder in HOLDERS:
                assert self.native.find_alternatives(chain, holder) == self.naive.find_alternatives(chain, holder)
        for holder in HOLDERS:
            assert self.records(self.naive.dump(holder)) == self.records(self.native.dump(holder))
            assert self.naive.drop(holder) == self.native.drop(holder)
        for pool in ("p", "q"):
            assert self.naive.drop_pool(pool) == self.native.drop_pool(pool)
        self.native.check_invariants()
        assert self.native.count().nodes == 0


TestTwinMachine = pytest.mark.skipif(not native_available(), reason="no native module")(TwinMachine.TestCase)
TestTwinMachine.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
