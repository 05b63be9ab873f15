"""Absurd events from one rank: refused one by one, counted, seen in its trust, and without effect on any other rank.

What an engine would send goes in as bytes, through frames, decoder and sequence into either kind of index.
"""

from importlib import import_module

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes, make_index
from prefix_index.hashing import native_available
from prefix_index.stream import RankStream
from prefix_index.trust import Trust
from wire.block_hash import namespace_seed
from wire.frames import encode_live
from wire.ids import Target, WorkerId

HOSTILE, OTHER = Target(WorkerId("hostile"), 0), Target(WorkerId("other"), 0)
PROMPT = tuple(range(100, 133))
CHAIN = BlockChain(4, tuple(block_hashes(PROMPT, 4, namespace_seed("m"))), len(PROMPT))
KINDS = pytest.mark.parametrize("kind", [NaivePrefixIndex, make_index])


def good(first, last):
    """Blocks of the prompt, named 1, 2, 3, ..."""
    return {
        "type": "BlockStored",
        "block_hashes": list(range(first, last + 1)),
        "parent_block_hash": first - 1 or None,
        "token_ids": list(PROMPT[4 * (first - 1) : 4 * last]),
        "block_size": 4,
        "medium": "GPU",
    }


#: Fields that make a whole event unusable, by what is wrong with it.
REFUSED = {
    "more hashes than 65,536": {"block_hashes": [7] * 65_537},
    "more tokens than a million": {"token_ids": [1] * 1_048_577},
    "a negative block size": {"block_size": -16},
    "a block size of nothing": {"block_size": 0},
    "a block size beyond all": {"block_size": 2**40},
    "a block size that is no number": {"block_size": "16"},
    "a token below zero": {"token_ids": [1, -1, 2, 3]},
    "a token above all": {"token_ids": [2**32] * 4},
    "a token that is no number": {"token_ids": [1.5] * 4},
    "no tokens at all": {"token_ids": None},
    "a hash of a kilobyte": {"block_hashes": [b"h" * 1_024]},
    "hash bytes of odd length": {"block_hashes": [b"x" * 31]},
    "a parent's hash of odd length": {"parent_block_hash": b"x" * 33},
    "a hash of no bytes": {"block_hashes": [b""]},
    "a hash of two bytes": {"block_hashes": [b"ab"]},
    "a hash of text": {"block_hashes": ["abc"]},
    "a hash within a hash": {"block_hashes": [[1]]},
    "a parent that is a list": {"parent_block_hash": [1]},
    "keys that are no lists": {"extra_keys": [5]},
    "a group that is text": {"group_idx": "x"},
    "a medium that is a number": {"medium": 3},
}
#: Events that can be read and still say something absurd; they cost at most themselves.
ABSURD = {
    "more names than blocks": {"block_hashes": list(range(500, 600)), "token_ids": [1, 2, 3, 4]},
    "fewer tokens than a block": {"block_hashes": [501], "token_ids": [1]},
    "a block as its own parent": {"block_hashes": [502], "parent_block_hash": 502},
    "one name twice": {"block_hashes": [503, 503], "token_ids": list(range(8))},
    "another block size": {"block_hashes": [504], "token_ids": list(range(7)), "block_size": 7},
    "a group beyond all": {"block_hashes": [505], "group_idx": 2**63},
    "a window below zero": {"block_hashes": [506], "group_kind": "sliding_window", "kv_cache_spec_sliding_window": -1},
    "another tier": {"block_hashes": [507], "medium": "TAPE"},
    "an adapter of text and number": {"block_hashes": [508], "lora_id": -(2**63), "lora_name": "\x00"},
}


class Pair:
    """A hostile rank and one beside it that holds the prompt, on one index."""

    def __init__(self, kind):
        self.index = kind()
        self.streams = {}
        for target in (HOSTILE, OTHER):
            self.index.attach(target, model="m")
            self.streams[target] = RankStream(target, self.index, replay_available=False)
        self.seqs = dict.fromkeys(self.streams, 0)
        for target in self.streams:
            self.tell(target, good(1, 4))

    def tell(self, target, *events):
        self.tell_bytes(target, msgspec.msgpack.encode([1.0, list(events), 0]))

    def tell_bytes(self, target, payload):
        self.streams[target].on_live(encode_live("kv", self.seqs[target], payload), 0.0)
        self.seqs[target] += 1

    @property
    def hostile(self):
        return self.streams[HOSTILE]

    def check_other(self):
        """The rank beside it is as it was, and goes on as if it were alone."""
        assert self.streams[OTHER].trust is Trust.EXACT
        assert self.streams[OTHER].counters.skipped == {}
        assert self.index.block_count(OTHER) == 4
        assert self.index.find_reuse(CHAIN).get(OTHER) == 16
        self.tell(OTHER, good(5, 6))
        assert self.index.find_reuse(CHAIN).get(OTHER) == 24
        self.index.check_invariants()


@KINDS
@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED)
def test_an_event_that_cannot_be_believed_is_refused_and_its_neighbours_apply(kind, fields):
    pair = Pair(kind)
    pair.tell(HOSTILE, good(5, 5), good(1, 1) | fields, good(6, 6))
    assert pair.hostile.counters.skipped == {"malformed": 1}
    assert pair.hostile.counters.kinds == {"BlockStored": 3}
    assert pair.hostile.trust is Trust.PARTIAL
    # What was told after the loss proves what came before it.
    pair.tell(HOSTILE, good(7, 7))
    assert pair.index.find_reuse(CHAIN).get(HOSTILE) == 28
    pair.check_other()


@pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")
@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED)
def test_the_native_decoder_leaves_what_cannot_be_believed(fields):
    decode = import_module("prefix_index._core").decode
    assert decode(msgspec.msgpack.encode([1.0, [good(1, 1)], 0])) is not None
    assert decode(msgspec.msgpack.encode([1.0, [good(1, 1), good(1, 1) | fields], 0])) is None


@KINDS
def test_a_prompt_of_one_block_told_again_is_a_copy_with_a_removal_of_its_own(kind):
    pair = Pair(kind)
    pair.tell(HOSTILE, good(1, 1))
    pair.tell(HOSTILE, {"type": "BlockRemoved", "block_hashes": [1]})
    assert pair.index.find_reuse(CHAIN).get(HOSTILE) == 16
    pair.tell(HOSTILE, {"type": "BlockRemoved", "block_hashes": [1]})
    assert HOSTILE not in pair.index.find_reuse(CHAIN)
    pair.check_other()


@KINDS
@pytest.mark.parametrize("fields", ABSURD.values(), ids=ABSURD)
def test_an_event_that_says_something_absurd_costs_at_most_itself(kind, fields):
    pair = Pair(kind)
    pair.tell(HOSTILE, good(1, 1) | {"parent_block_hash": 4} | fields)
    assert pair.index.find_reuse(CHAIN).get(HOSTILE, 0) in (0, 16)
    assert sum(pair.hostile.counters.skipped.values()) <= 1
    pair.check_other()


@KINDS
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x28\xb5\x2f\xfd" + bytes(60),  # zstd
        b"\x1f\x8b\x08" + bytes(60),  # gzip
        b"\x04\x22\x4d\x18" + bytes(60),  # lz4
        b"{}",
        msgspec.msgpack.encode({"ts": 1.0, "events": []}),
        msgspec.msgpack.encode([1.0, [], "rank"]),
        msgspec.msgpack.encode([1.0, {"type": "AllBlocksCleared"}, 0]),
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\x93\xcb" + bytes(8) + b"\xdd\xff\xff\xff\xff\xc0",
    ],
    ids=["empty", "unused", "zstd", "gzip", "lz4", "json", "map", "rank", "events", "nested", "huge", "huge events"],
)
def test_a_payload_in_an_unknown_form_is_counted_once_and_shows_in_the_trust(kind, payload):
    pair = Pair(kind)
    pair.tell_bytes(HOSTILE, payload)
    assert pair.hostile.counters.skipped == {"malformed batch": 1}
    assert pair.hostile.trust is Trust.PARTIAL
    assert HOSTILE not in pair.index.find_reuse(CHAIN)
    pair.check_other()


EVENTS = st.builds(
    lambda fields, base: base | fields,
    st.sampled_from([*REFUSED.values(), *ABSURD.values()]) | st.just({}),
    st.sampled_from([good(1, 1), good(2, 3), good(5, 8), {"type": "BlockRemoved", "block_hashes": [3, 2**64, 3]}])
    | st.sampled_from([{"type": "BlockRemoved", "block_hashes": [1, b"x"]}, {"type": "AllBlocksCleared"}, {"type": 1}]),
)
PAYLOADS = st.one_of(
    st.lists(EVENTS, max_size=4).map(lambda events: msgspec.msgpack.encode([1.0, encodable(events), 0])),
    st.binary(max_size=80),
)


def encodable(events):
    """Integers that msgpack has no form for become bytes of their digits."""
    return [
        {name: b"9" * 20 if name == "block_hashes" and 2**64 in value else value for name, value in event.items()}
        if isinstance(event.get("block_hashes"), list)
        else event
        for event in events
    ]


@KINDS
@given(payloads=st.lists(PAYLOADS, max_size=8), damage=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255))))
@settings(max_examples=60)
def test_whatever_a_rank_sends_no_other_rank_is_touched(kind, payloads, damage):
    pair = Pair(kind)
    for place, payload in enumerate(payloads):
        damaged = bytearray(payload)
        for at, byte in damage[place::2]:
            if at < len(damaged):
                damaged[at] = byte
        pair.tell_bytes(HOSTILE, bytes(damaged))
    pair.tell(HOSTILE, {"type": "AllBlocksCleared"})
    assert pair.hostile.trust is Trust.EXACT
    assert pair.index.block_count(HOSTILE) == 0
    pair.check_other()


BASES = st.sampled_from([good(1, 1), good(2, 3), good(5, 8), good(1, 8)])
PARENTS = st.sampled_from([{}, {}, *({"parent_block_hash": name} for name in (4, 502, 503))])
# A window where full attention was told before makes a rank's model unknown, which each kind says in its own way.
SOUND = st.lists(
    st.builds(
        lambda *parts: parts[0] | parts[1] | parts[2],
        BASES,
        PARENTS,
        st.just({}) | st.sampled_from([fields for name, fields in ABSURD.items() if name != "a window below zero"]),
    ),
    max_size=6,
)
REMOVED = st.lists(st.sampled_from([1, 2, 3, 502, 503, 504, 505]), min_size=1, max_size=3)


@given(batches=st.lists(st.tuples(SOUND, REMOVED), max_size=5))
def test_both_kinds_of_index_agree_on_what_absurd_events_leave(batches):
    naive, fast = Pair(NaivePrefixIndex), Pair(make_index)
    for events, names in batches:
        for pair in (naive, fast):
            pair.tell(HOSTILE, *events, {"type": "BlockRemoved", "block_hashes": names})
        assert fast.index.find_reuse(CHAIN) == naive.index.find_reuse(CHAIN)
        assert fast.index.block_count(HOSTILE) == naive.index.block_count(HOSTILE)
    naive.check_other()
    fast.check_other()
