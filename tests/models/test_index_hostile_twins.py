"""Events that no honest engine sends: the native index and the one in Python still say the same of each.

A few names for everything, so that blocks are their own parents, change their place and wait in circles; group
numbers that are negative or beyond any; kinds that contradict each other with and without a number; windows of
nothing and of more than any prompt; tokens that fill no block; dumps loaded out of order into another rank.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from prefix_index import BlockChain, Change, NaivePrefixIndex, block_hashes
from prefix_index.base import CopyRule
from prefix_index.hashing import native_available
from prefix_index.layout import GroupLayout, Layout
from prefix_index.native import NativePrefixIndex
from wire.block_hash import namespace_seed
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Medium
from wire.ids import Target
from wire.snapshot import to_records

pytestmark = pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")
HOLDERS = A, B = Target("a", 0), Target("b", 0)
UNGROUPED_WINDOW = {"group_kind": "sliding_window", "window_tokens": 3}
GROUPS = [
    {},
    {"group_kind": "full_attention"},
    UNGROUPED_WINDOW,
    {"group_kind": "mamba"},
    {"group_idx": 0},
    {"group_idx": 0, "group_kind": "full_attention"},
    {"group_idx": -1, "group_kind": "full"},
    {"group_idx": 2, "group_kind": "mamba"},
    {"group_idx": 3, "group_kind": "nobody_knows"},
    {"group_idx": 1 << 63, "group_kind": "full"},
    {"group_idx": (1 << 64) - 1},
    *(
        {"group_idx": 1, "group_kind": "sliding_window", "window_tokens": window}
        for window in (None, 0, 1, 5, 1 << 41, (1 << 64) - 1)
    ),
]
LAYOUTS = [
    None,
    Layout((GroupLayout(kind="full"), GroupLayout(kind="state", checkpoint_tokens=4))),
    Layout((GroupLayout(kind="swa", window_tokens=3, is_offloaded=True), GroupLayout(kind="full"))),
]
MEDIA = [Medium.DEVICE, Medium.DEVICE, Medium.HOST, Medium.DISK, Medium.EXTERNAL, "MOON"]
names = st.sampled_from([1, 2, 3, 4, -1, (1 << 64) - 1, b"abcd"])
tokens = st.lists(st.sampled_from([1, 2]), max_size=8).map(tuple)
texts = st.sampled_from([None, None, None, "s"])
keys = st.none() | st.lists(st.sampled_from([None, ("i", 3), ("s",), (b"x", "q")]), max_size=3).map(tuple)
groups = st.sampled_from(GROUPS)
holders = st.sampled_from(HOLDERS)


@st.composite
def stores(draw) -> BlockStored:
    size = draw(st.sampled_from([1, 2, 2, 2, 4]))
    told = tuple(draw(st.lists(names, max_size=3)))
    count = max(0, len(told) * size + draw(st.sampled_from([0, 0, 0, 0, size, 1, -1])))
    return BlockStored(
        block_hashes=told,
        parent_block_hash=draw(st.none() | names),
        token_ids=tuple(draw(st.lists(st.sampled_from([1, 2]), min_size=count, max_size=count))),
        block_tokens=size,
        medium=draw(st.sampled_from(MEDIA)),
        lora_name=draw(texts),
        cache_salt=draw(texts),
        extra_keys=draw(keys),
        **draw(groups),
    )


@st.composite
def removals(draw) -> BlockRemoved:
    told = tuple(draw(st.lists(names, min_size=1, max_size=3)))
    number = draw(groups).get("group_idx")
    return BlockRemoved(block_hashes=told, medium=draw(st.sampled_from(MEDIA)), group_idx=number)


terms = st.fixed_dictionaries(
    {
        "rule": st.sampled_from(CopyRule),
        "host": st.sampled_from([None, "h"]),
        "pools": st.sampled_from([(), ("p",), ("p", "q"), ("p", "p")]),
        "layout": st.sampled_from(LAYOUTS),
    }
)
strokes = st.sampled_from(["clear", "doubt", "drop", "drop_pool"])
acts = st.tuples(
    holders,
    stores()
    | stores()
    | stores()
    | removals()
    | strokes
    | terms
    | st.sampled_from(["load", AllBlocksCleared()])
    | tokens,
)


class Twins:
    """Both indexes, told the same."""

    def __init__(self, max_orphans: int) -> None:
        self.both = NaivePrefixIndex(max_orphans=max_orphans), NativePrefixIndex(max_orphans=max_orphans)

    def say(self, act):
        one, other = (in_order(act(index)) for index in self.both)
        assert one == other
        return one

    def match(self, holder, prompt):
        for salt in (None, "s"):
            chain = make_chain(prompt, salt)
            self.say(lambda index, of=chain: index.find_reuse(of))
            self.say(lambda index, of=chain: index.find_alternatives(of, holder))
        self.say(lambda index: index.correct(holder, make_chain(prompt, None), len(prompt) // 2))

    def load(self, holder):
        """What the other rank has, last runs first."""
        dumps = [list(index.dump(B if holder == A else A)) for index in self.both]
        records = [sorted((each for run in dump for each in to_records(run)), key=repr) for dump in dumps]
        assert records[0] == records[1]
        self.say(lambda index: index.clear(holder))
        self.say(lambda index: index.load(holder, reversed(dumps[0])))

    def check(self):
        for index in self.both:
            index.check_invariants()
        self.say(lambda index: index.size())
        self.say(lambda index: index.block_sizes())
        for holder in HOLDERS:
            self.say(lambda index, of=holder: (index.block_count(of), index.is_modelled(of)))


def in_order(told):
    if not isinstance(told, Change):
        return told
    return replace(told, **{name: tuple(sorted(getattr(told, name))) for name in ("stored", "removed", "touched")})


def make_chain(prompt, salt) -> BlockChain:
    seed = namespace_seed("m", cache_salt=salt)
    chains = [BlockChain(size, tuple(block_hashes(prompt, size, seed)), len(prompt)) for size in (1, 2, 4)]
    return replace(chains[0], others=tuple(chains[1:]))


def carry_out(twins, holder, act):
    match act:
        case BlockStored() | BlockRemoved() | AllBlocksCleared():
            twins.say(lambda index: index.apply(holder, act))
        case "load":
            twins.load(holder)
        case "drop_pool":
            twins.say(lambda index: index.drop_pool("p"))
        case str():
            twins.say(lambda index: getattr(index, act)(holder))
        case dict():
            for index in twins.both:
                index.attach(holder, model="m", **act)
        case _:
            twins.match(holder, act)


@settings(max_examples=300, deadline=None)
@given(told=st.lists(acts, max_size=40), max_orphans=st.sampled_from([0, 1, 3, 50]))
def test_of_hostile_events_both_indexes_say_the_same(told, max_orphans):
    twins = Twins(max_orphans)
    for holder in HOLDERS:
        carry_out(twins, holder, {"pools": ("p",)})
    for holder, act in told:
        carry_out(twins, holder, act)
        twins.check()
    for holder in HOLDERS:
        twins.match(holder, (1, 2, 1, 2, 1, 1, 2, 2))
        twins.say(lambda index, of=holder: index.drop(of))
    for pool in "pq":
        twins.say(lambda index, of=pool: index.drop_pool(of))
    assert twins.both[1].count().nodes == 0


def test_a_window_without_a_group_number_is_refused_of_a_rank_that_told_full_blocks_without_one():
    twins = Twins(0)
    full = BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=(1, 2), block_tokens=2)
    for holder in HOLDERS:
        carry_out(twins, holder, {})
    carry_out(twins, A, full)
    assert twins.say(lambda index: index.apply(A, replace(full, block_hashes=(2,), **UNGROUPED_WINDOW))).refused == 1
    # The other way round it is the full blocks that contradict.
    carry_out(twins, B, replace(full, **UNGROUPED_WINDOW))
    assert twins.say(lambda index: index.apply(B, full)).refused == 1
    chain = make_chain((1, 2, 1), None)
    assert twins.say(lambda index: index.find_reuse(chain)) == {A: 2, B: 2}
    twins.check()


def test_groups_of_which_one_has_a_negative_number_are_not_all_that_there_are():
    twins = Twins(0)
    carry_out(twins, A, {})
    for told in ({"group_idx": -1, "group_kind": "full"}, {"group_idx": 1, "group_kind": "full"}):
        block = BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=(1, 2), block_tokens=2, **told)
        carry_out(twins, A, block)
    carry_out(twins, A, replace(block, group_idx=4, group_kind="sliding_window", window_tokens=3))
    assert twins.say(lambda index: index.find_reuse(make_chain((1, 2, 1), None))) == {}


def test_what_is_believed_of_a_neighbour_is_no_report_of_its_groups():
    twins = Twins(0)
    told = BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=(1, 2), block_tokens=2)
    carry_out(twins, A, {"host": "h", "layout": LAYOUTS[2]})
    carry_out(twins, A, replace(told, medium=Medium.HOST))
    carry_out(twins, B, {"host": "h"})
    # B's group 0 is not known; A's layout has one, which nobody reported.
    carry_out(twins, B, replace(told, group_idx=1, group_kind="full"))
    chain = make_chain((1, 2, 1), None)
    assert twins.say(lambda index: index.find_alternatives(chain, B)) == ()
