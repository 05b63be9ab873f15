"""Live messages taken in runs: all is as if each had come alone, whatever stands among them."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.hashing import native_available
from prefix_index.native import NativePrefixIndex
from prefix_index.trust import Trust
from router.events.rank import FedRank, Wish
from router.fleet.source import RankSource
from wire import frames
from wire.block_hash import namespace_seed
from wire.dialects import vllm
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, Medium
from wire.ids import Target, WorkerId
from wire.source_note import SourceNote, write_topic

IDS = list(range(100, 133))  # 8 blocks of 4 and one token
TARGET = Target(WorkerId("w"), 0)
built = pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")
KINDS = [NaivePrefixIndex, pytest.param(NativePrefixIndex, marks=built)]
each_index = pytest.mark.parametrize("make", KINDS, ids=["naive", "native"])


def stored(first, last, **fields):
    return BlockStored(
        block_hashes=tuple(range(first, last + 1)), parent_block_hash=first - 1 if first > 1 else None,
        token_ids=tuple(IDS[4 * (first - 1) : 4 * last]), block_tokens=4, **fields,
    )  # fmt: skip


def payload(*events, dp_rank=0, ts_s=1.0):
    return vllm.encode_batch(EventBatch(ts_s=ts_s, events=events, dp_rank=dp_rank), "0.32")


WINDOW = {"group_idx": 1, "group_kind": "sliding_window", "window_tokens": 8}
#: What a batch can be, in words.
PAYLOADS = {
    "store": lambda at: payload(stored(1 + at % 4, 2 + at % 4), ts_s=at),
    "remove": lambda at: payload(BlockRemoved(block_hashes=(1 + at % 5,)), ts_s=at),
    "several": lambda at: payload(stored(1, 3), BlockRemoved(block_hashes=(3,)), stored(3, 4 + at % 3), ts_s=at),
    "clear": lambda at: payload(AllBlocksCleared(), ts_s=at),
    "nothing": lambda at: payload(ts_s=at),
    "host": lambda at: payload(stored(1, 1 + at % 3, medium=Medium.HOST), ts_s=at),
    "window": lambda _at: payload(stored(1, 2, group_idx=0, group_kind="full_attention"), stored(1, 3, **WINDOW)),
    "window lost": lambda at: payload(BlockRemoved(block_hashes=(1 + at % 3,), group_idx=1), ts_s=at),
    "no rank": lambda at: payload(stored(1, 1 + at % 4), dp_rank=None, ts_s=at),
    "other rank": lambda at: payload(AllBlocksCleared(), dp_rank=3, ts_s=at),
    "damaged": lambda at: msgspec.msgpack.encode([float(at), [["BlockRemoved"], ["AllBlocksCleared"]], 0]),
    "unknown": lambda at: msgspec.msgpack.encode([float(at), [["BlockMoved", 1], ["AllBlocksCleared"]], 0]),
    "garbage": lambda _at: b"\xc1garbage",
    "wide text": lambda at: payload(stored(1, 2, lora_name="äö"), ts_s=at),
}
TOPICS = {
    "plain": "kv",
    "life a": write_topic("kv", SourceNote("a", "exact", 0)),
    "a lost": write_topic("kv", SourceNote("a", "partial", 1)),
    "life b": write_topic("kv", SourceNote("b", "exact", 0)),
}


def make_rank(make, **source):
    fields = {"endpoint": "tcp://h:1", "replay_endpoint": "tcp://h:2"} | source
    rank = FedRank(
        RankSource(target=TARGET, model="m", **fields), index := make(), replay_limit_s=5.0, retry_pause_s=30.0
    )
    return rank, index


def take_alone(rank, messages):
    return [wish for wish in (rank.on_live(message, 1.0) for message in messages) if wish is not None]


def take_in_runs(rank, messages, sizes=None):
    wishes = []
    while messages:
        size = len(messages) if sizes is None else sizes(len(messages))
        taken, wish = rank.on_live_run(messages[:size], 1.0)
        assert 1 <= taken <= size
        wishes += [] if wish is None else [wish]
        messages = messages[taken:]
    return wishes


def describe(rank, index):
    evidence = rank.changes.find_since(0, 1.0)
    chain = BlockChain(4, tuple(block_hashes(IDS, 4, namespace_seed("m"))), len(IDS))
    return {
        "view": rank.to_view(1.0),
        "evidence": [set(part) for part in (evidence.stored, evidence.removed, evidence.gained, evidence.lost)],
        "cleared": evidence.cleared,
        "counters": rank.counters,
        "tiered": rank.is_tiered,
        "reuse": index.find_reuse(chain),
        "ways": index.find_alternatives(chain, TARGET),
        "size": index.size(),
        "deadline": rank.deadline_s,
        "credit": rank.credit_ratio(2.0),
    }


numbers = st.sampled_from(["next"] * 12 + ["skipped", "repeated", "first", "again"])
live = st.tuples(
    st.just("live"), numbers, st.sampled_from(["store"] * 8 + list(PAYLOADS)), st.sampled_from(["plain"] * 6)
)
noted = st.tuples(st.just("live"), numbers, st.sampled_from(list(PAYLOADS)), st.sampled_from(list(TOPICS)))
odd = st.sampled_from([("frame",), ("replay",), ("replay",), ("end",), ("end",), ("fail",), ("connected",), ("lost",)])


class Publisher:
    """Turns words into messages, numbers and all."""

    def __init__(self):
        self.made, self.seq, self.last, self.kept, self.asked = 0, 0, None, {}, 0

    def publish(self, number, words, topic):
        self.made += 1
        if number == "repeated" and self.last is not None:
            return self.last
        self.seq = {"first": 0, "skipped": self.seq + 1, "again": max(0, self.seq - 1)}.get(number, self.seq)
        data = PAYLOADS[words](self.made)
        if number == "first":
            self.kept.clear()
        self.kept[self.seq] = data
        self.last = frames.encode_live(TOPICS[topic], self.seq, data)
        self.seq += 1
        return self.last

    def replay(self):
        """The next message of a replay of all that is kept, one after the other."""
        self.asked += 1
        seqs = sorted(self.kept)
        seq = seqs[self.asked % len(seqs)] if seqs else 0
        return frames.encode_replay(seq, self.kept.get(seq, payload()))


def play(rank, take, steps):
    """Runs of live messages are taken by `take`; all else comes alone."""
    publisher, waiting, wishes = Publisher(), [], []

    def settle():
        wishes.extend(take(rank, waiting[:]))
        waiting.clear()

    for step in steps:
        if step[0] == "live":
            waiting.append(publisher.publish(*step[1:]))
        elif step[0] == "frame":
            waiting.append([b"kv", b"short", b""])
        else:
            settle()
            verbs = {
                "replay": lambda: rank.on_replay(publisher.replay(), 1.0),
                "end": lambda: rank.on_replay(frames.encode_replay_end(), 1.0),
                "fail": lambda: rank.on_replay_failed(1.0),
                "connected": lambda: rank.on_connected(1.0),
                "lost": lambda: rank.on_lost(1.0),
            }
            wishes.append(verbs[step[0]]())
    settle()
    return wishes


@each_index
@given(steps=st.lists(st.one_of(live, live, live, noted, odd), max_size=40), has_replay=st.booleans(), data=st.data())
@settings(max_examples=250, deadline=None)
def test_runs_and_single_messages_end_alike_for_any_mix(make, steps, has_replay, data):
    source = {} if has_replay else {"replay_endpoint": None}
    (alone, alone_index), (runs, runs_index) = make_rank(make, **source), make_rank(make, **source)
    wishes = play(alone, take_alone, steps)
    drawn = play(
        runs, lambda rank, messages: take_in_runs(rank, messages, lambda most: data.draw(st.integers(1, most))), steps
    )
    assert drawn == wishes
    assert describe(runs, runs_index) == describe(alone, alone_index)
    runs_index.check_invariants()


def live_messages(*words, first=0, topic="kv"):
    return [frames.encode_live(topic, first + at, PAYLOADS[word](at)) for at, word in enumerate(words)]


@each_index
def test_messages_in_order_are_one_run(make):
    rank, _ = make_rank(make)
    take_alone(rank, live_messages("store"))
    assert rank.on_live_run(live_messages(*["store"] * 30, first=1), 1.0) == (30, None)
    assert (rank.trust, rank.to_view(1.0).last_seq, rank.counters.batches) == (Trust.EXACT, 30, 31)


@each_index
def test_a_gap_in_the_middle_of_a_run_ends_it_and_is_asked_for(make):
    rank, _ = make_rank(make)
    messages = live_messages("nothing", "store", "store", "store", "store")
    del messages[2]
    assert take_in_runs(rank, messages) == [Wish(replay_from=2)]
    assert (rank.to_view(1.0).last_seq, rank.counters.gaps, rank.trust) == (1, 1, Trust.PARTIAL)
    for message in live_messages("nothing", "store", "store", "store", "store")[2:]:
        rank.on_replay([b"", *message[1:]], 1.0)
    rank.on_replay(frames.encode_replay_end(), 1.0)
    assert (rank.to_view(1.0).last_seq, rank.counters.batches, rank.trust) == (4, 5, Trust.EXACT)


@each_index
def test_A10_a_damaged_batch_in_the_middle_of_a_run_is_asked_for_before_it_counts(make):
    rank, _ = make_rank(make)
    assert take_in_runs(rank, live_messages("store", "store", "damaged", "store")) == [Wish(replay_from=2)]
    assert (rank.to_view(1.0).last_seq, rank.counters.losses, rank.counters.skipped) == (1, 0, {})


@each_index
def test_A26_batches_of_another_rank_in_the_middle_of_a_run_change_nothing(make):
    rank, index = make_rank(make)
    messages = live_messages("store", "store", "other rank", "store")
    messages[3] = frames.encode_live("kv", 2, PAYLOADS["store"](3))
    take_in_runs(rank, messages)
    assert (rank.counters.skipped, rank.counters.batches, rank.trust) == ({"other rank": 1}, 3, Trust.EXACT)
    assert index.block_count(TARGET) > 0


@each_index
def test_A03_a_restart_in_the_middle_of_a_run_forgets_what_came_before(make):
    rank, index = make_rank(make, replay_endpoint=None)
    messages = [*live_messages("several", "several"), frames.encode_live("kv", 0, PAYLOADS["nothing"](7))]
    take_in_runs(rank, messages)
    assert (rank.counters.resets, index.block_count(TARGET), rank.to_view(1.0).last_seq) == (1, 0, 0)


@each_index
def test_losses_that_a_mirror_tells_of_within_a_run_doubt_what_it_told_before(make):
    rank, index = make_rank(make)
    topics = [TOPICS["life a"]] * 3 + [TOPICS["a lost"]] * 2
    words = ["several", "several", "nothing", "nothing", "nothing"]
    messages = [
        frames.encode_live(topic, seq, PAYLOADS[word](seq))
        for seq, (topic, word) in enumerate(zip(topics, words, strict=True))
    ]
    take_in_runs(rank, messages)
    assert (rank.counters.losses, index.block_count(TARGET), rank.trust) == (1, 0, Trust.PARTIAL)


@each_index
def test_what_windows_and_other_tiers_gain_and_lose_in_a_run_is_evidence(make):
    rank, _ = make_rank(make)
    take_in_runs(rank, live_messages("nothing", "host", "window", "window lost"))
    evidence = rank.changes.find_since(0, 1.0)
    assert evidence.gained
    assert len(evidence.lost) == 1
    assert rank.is_tiered


@each_index
def test_a_clear_within_a_run_makes_a_partial_rank_exact_again(make):
    rank, _ = make_rank(make, replay_endpoint=None)
    take_in_runs(rank, live_messages("nothing", "store", first=7))
    assert rank.trust is Trust.PARTIAL
    assert rank.on_live_run(live_messages("store", "clear", first=9), 1.0) == (2, None)
    assert rank.trust is Trust.EXACT


@each_index
def test_a_store_within_a_run_ends_the_wait_for_blocks_that_are_due(make):
    rank, _ = make_rank(make)
    take_in_runs(rank, live_messages("nothing"))
    rank.on_served(5, rank.changes.position, 0.0)
    rank.find_retry(20.0)
    assert rank.trust is Trust.STALE
    take_in_runs(rank, live_messages("nothing", "store", first=1))
    assert rank.trust is Trust.EXACT


def test_messages_that_no_run_can_take_are_not_read_over_and_over():
    rank, _ = make_rank(NaivePrefixIndex)
    take_alone(rank, live_messages("nothing"))
    read = []

    class Message(list):
        def __len__(self):
            read.append(self)
            return super().__len__()

    messages = [Message(message) for message in live_messages(*["unknown"] * 200, first=1)]
    take_in_runs(rank, messages)
    assert rank.counters.skipped == {"unknown_type": 200}
    assert len(read) < 6 * len(messages)
