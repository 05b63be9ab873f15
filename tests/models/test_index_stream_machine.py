"""Any network between a source and a stream: in EXACT trust the index is what the source held at that number.

Messages are lost, doubled and overtaken; replays are slow, torn and cut off; snapshots come in pieces in between;
sources restart, seen or not. A mirror loses events itself.
"""

from collections import Counter
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from prefix_index import NaivePrefixIndex
from prefix_index.stream import RankStream
from prefix_index.trust import Trust
from wire import frames
from wire.block_hash import namespace_seed
from wire.dialects import sglang
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from wire.ids import Target, WorkerId
from wire.snapshot import SnapshotHeader, to_records, to_runs
from wire.source_note import SourceNote, write_topic

BUFFER = 5
BLOCKS = 4
HOLDER = Target(WorkerId("w"), 0)
BYTES = count()


class Source:
    """One life of a publisher: what it holds after each batch, and its last batches for replay."""

    def __init__(self, life, *, is_mirror):
        self.life, self.is_mirror = life, is_mirror
        self.index = NaivePrefixIndex()
        self.index.attach(HOLDER, model="m")
        self.buffer = []
        self.states = []
        self.trust, self.losses = "exact", 0

    def stored(self, block):
        tokens = tuple(self.life * 100 + block * 10 + place for place in range(4))
        return BlockStored(block_hashes=(self.name(block),), parent_block_hash=None, token_ids=tokens, block_tokens=4)

    def name(self, block):
        return self.life * 100 + block

    @property
    def topic(self):
        note = SourceNote(f"life-{self.life}", self.trust, self.losses)
        return write_topic("kv", note) if self.is_mirror else "kv"

    def publish(self, *events):
        for event in events:
            self.index.apply(HOLDER, event)
        batch = EventBatch(ts_s=float(next(BYTES)), events=events, dp_rank=0)
        message = (self.life, len(self.states), self.topic, sglang.encode_batch(batch, sglang.Generation.MAP))
        self.states.append(held(self.index) if self.trust == "exact" else None)
        self.buffer = [*self.buffer, message][-BUFFER:]
        return message

    def header(self):
        return SnapshotHeader(
            incarnation=f"life-{self.life}", watermark=len(self.states) - 1, trust=self.trust, losses=self.losses,
            dp_rank=0, model="m", seed=namespace_seed("m"),
        )  # fmt: skip


def held(index):
    runs = [run for run in index.dump(HOLDER) if not run.is_doubted]
    return Counter({record.engine_hash: record.copies for run in runs for record in to_records(run) if record.copies})


class StreamMachine(RuleBasedStateMachine):
    """The network, the source's lives, and the stream under test."""

    is_mirror = False

    @initialize()
    def start(self):
        self.index = NaivePrefixIndex()
        self.index.attach(HOLDER, model="m")
        self.stream = RankStream(
            HOLDER, self.index, replay_available=True, snapshot_available=self.is_mirror, max_held=6
        )
        self.now_s = 0.0
        self.lives = [Source(0, is_mirror=self.is_mirror)]
        self.wire = []
        #: First number of a replay that nobody has served yet, and messages of the one that is being sent.
        self.request = None
        self.replay = None
        #: Ticket of the snapshot that was asked for, and the parts of the one that is being sent.
        self.wanted = None
        self.parts = None

    @property
    def source(self):
        return self.lives[-1]

    def take(self, report):
        self.now_s += 1
        if report.ask_replay_from is not None:
            self.request, self.replay = report.ask_replay_from, None
        if report.ask_snapshot is not None:
            self.wanted, self.parts = report.ask_snapshot, None

    def send_live(self, message):
        _, seq, topic, payload = message
        self.take(self.stream.on_live(frames.encode_live(topic, seq, payload), self.now_s))

    @rule(block=st.integers(0, BLOCKS - 1), stores=st.booleans())
    def publish(self, block, stores):
        source = self.source
        event = source.stored(block) if stores else BlockRemoved(block_hashes=(source.name(block),))
        self.wire.append(source.publish(event))

    @rule()
    def clear(self):
        self.source.trust = "exact"
        self.wire.append(self.source.publish(AllBlocksCleared()))

    @rule(fate=st.sampled_from(["arrive", "arrive", "arrive", "arrive", "lost", "doubled", "overtaken"]))
    @precondition(lambda self: self.wire)
    def deliver(self, fate):
        first = self.wire[0]
        # The first batch of a life that nothing else tells of arrives, and first.
        is_first = first[1] == 0 and first[0] > 0 and not self.is_mirror
        follows = len(self.wire) > 1 and not (self.wire[1][1] == 0 or (is_first and self.wire[1][0] == first[0]))
        if fate == "overtaken" and follows:
            self.send_live(self.wire.pop(1))
            return
        if fate != "lost" or is_first:
            self.send_live(first)
        if fate != "doubled":
            self.wire.pop(0)

    @rule()
    def restart(self):
        """A new process; only its batches tell."""
        self.lives.append(Source(len(self.lives), is_mirror=self.is_mirror))
        self.wire.append(self.source.publish())
        self.parts = None if self.parts is None else [*self.parts[:1], None]

    @rule(new_life=st.booleans())
    def lose_connection(self, new_life):
        """What was under way is gone; the process may be another one when the connection stands again."""
        self.wire = []
        self.request = self.replay = self.wanted = self.parts = None
        if new_life:
            self.lives.append(Source(len(self.lives), is_mirror=self.is_mirror))
        self.take(self.stream.on_lost(self.now_s))
        self.take(self.stream.on_connected(self.now_s))

    @precondition(lambda self: self.request is not None)
    @rule()
    def serve_replay(self):
        self.replay = [message for message in self.source.buffer if message[1] >= self.request]
        self.request = None

    @precondition(lambda self: self.replay)
    @rule(lost=st.sampled_from([False, False, False, True]))
    def answer(self, lost):
        _, seq, topic, payload = self.replay.pop(0)
        if not lost:
            frame = frames.encode_replay(seq, payload, topic=topic if self.is_mirror else None)
            self.take(self.stream.on_replay(frame, self.now_s))

    @precondition(lambda self: self.replay == [])
    @rule()
    def end_replay(self):
        self.replay = None
        self.take(self.stream.on_replay(frames.encode_replay_end(), self.now_s))

    @precondition(lambda self: self.stream.is_replaying)
    @rule()
    def fail_replay(self):
        self.request = self.replay = None
        self.take(self.stream.on_replay_failed(self.now_s))

    @invariant()
    def exact_is_exact(self):
        if not hasattr(self, "stream") or self.stream.trust is not Trust.EXACT:
            return
        seq = self.stream.last_seq
        states = [life.states[seq] for life in self.lives if seq is not None and seq < len(life.states)]
        assert held(self.index) in [*states, *([Counter()] if seq is None else [])]

    def teardown(self):
        if hasattr(self, "index"):
            self.index.check_invariants()


class MirrorMachine(StreamMachine):
    """A source with notes and snapshots, which may lose events of its own."""

    is_mirror = True

    @rule()
    def lose_events(self):
        self.source.trust = "partial"
        self.source.losses += 1
        self.wire.append(self.source.publish())

    @precondition(lambda self: self.wanted is not None)
    @rule()
    def take_snapshot(self):
        runs = tuple(self.source.index.dump(HOLDER))
        records = [record for run in runs for record in to_records(run)]
        self.parts = [self.source.header(), tuple(to_runs(records[:2])), tuple(to_runs(records[2:])), "end"]

    @precondition(lambda self: self.parts)
    @rule()
    def send_part(self):
        part, ticket = self.parts.pop(0), self.wanted
        if isinstance(part, SnapshotHeader):
            self.take(self.stream.on_snapshot_started(part, ticket, self.now_s))
        elif isinstance(part, tuple):
            self.stream.on_snapshot_records(part, ticket)
        elif part == "end":
            self.wanted = self.parts = None
            self.take(self.stream.on_snapshot_ended(ticket, self.now_s))
        else:
            self.fail_snapshot()

    @precondition(lambda self: self.wanted is not None)
    @rule()
    def fail_snapshot(self):
        ticket, self.wanted, self.parts = self.wanted, None, None
        self.take(self.stream.on_snapshot_failed(ticket, self.now_s))

    def teardown(self):
        """A network that works again, and a source that knows itself, make the stream exact."""
        if hasattr(self, "stream"):
            self.source.trust = "exact"
            self.lose_connection(new_life=False)
            self.settle()
            self.wire.append(self.source.publish(self.source.stored(0)))
            self.settle()
            assert self.stream.trust is Trust.EXACT
            assert held(self.index) == held(self.source.index)
        super().teardown()

    def settle(self):
        for _ in range(200):
            if self.parts:
                self.send_part()
            elif self.wanted is not None:
                self.take_snapshot()
            elif self.request is not None:
                self.serve_replay()
            elif self.replay:
                self.answer(lost=False)
            elif self.replay == []:
                self.end_replay()
            elif self.wire:
                self.deliver("arrive")
            else:
                return
        pytest.fail("asks without end")


# In exact trust the index is what the source held, be the source an engine or a sidecar.
TestStreamMachine = StreamMachine.TestCase
TestMirrorMachine = MirrorMachine.TestCase
TestStreamMachine.settings = TestMirrorMachine.settings = settings(max_examples=200, stateful_step_count=40)
