"""One rank of the engine, mirrored: its events in, the same events under the mirror's own numbers out. Pure.

The mirror's numbers go on over restarts of the engine; whatever the mirror forgot, or no longer believes, is said to
its subscribers: a restart as `AllBlocksCleared`, trust and losses in each batch's topic. A snapshot is the mirror's
index at the number of its last batch.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from engine_shim.sidecar.journal import Entry, Journal
from prefix_index.base import PrefixIndex
from prefix_index.stream import RankStream, StreamReport
from wire.block_hash import namespace_seed
from wire.dialects import sglang
from wire.events import AllBlocksCleared, BlockStored, Event, EventBatch
from wire.ids import Target, WorkerId
from wire.snapshot import BlockRun, SnapshotHeader
from wire.source_note import SourceNote, write_topic

#: What every rank of a mirrored engine is called in the mirror's index.
ENGINE = WorkerId("engine")
_MAX_GROUPS = 64


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What all mirrors of a process share."""

    #: Namespace of the blocks: the base model's name.
    model: str
    #: Life of the numbering, another one after each start of the process.
    incarnation: str
    topic: str = "kv"
    #: The engine keys its cache by pairs of tokens.
    is_bigram: bool = False
    #: Bounds of what is kept for replay, a rank.
    buffer_batches: int = 10_000
    buffer_bytes: int = 64 << 20


class GroupSeen(msgspec.Struct, frozen=True):
    """A cache group that the engine told of."""

    group_idx: int | None
    kind: str | None
    window_tokens: int | None
    block_tokens: int


class Clock(Protocol):
    """Seconds since the epoch."""

    def __call__(self) -> float:
        """Now."""


class Outcome(msgspec.Struct, frozen=True):
    """What a stimulus led to."""

    #: Batches to publish, in order.
    entries: tuple[Entry, ...] = ()
    #: First number to ask the engine for.
    ask_replay_from: int | None = None


class RankMirror:
    """Mirror of one rank. All calls come from one thread, or under one lock."""

    def __init__(
        self, dp_rank: int, index: PrefixIndex, settings: Settings, *, replay_available: bool, wall_clock: Clock
    ) -> None:
        self.dp_rank = dp_rank
        self.holder = Target(ENGINE, dp_rank)
        self._index = index
        self._settings = settings
        self._wall_clock = wall_clock
        index.attach(self.holder, model=settings.model, bigram=settings.is_bigram)
        self.stream = RankStream(self.holder, index, replay_available=replay_available)
        self.journal = Journal(max_batches=settings.buffer_batches, max_bytes=settings.buffer_bytes)
        #: Lives of the engine seen so far, lost connections counted as their end.
        self.engine_lives = 0
        self._losses = 0
        self._said = self._note
        #: Groups that the engine told of, in order of their first block.
        self.groups: dict[GroupSeen, None] = {}

    def on_live(self, frames: Sequence[bytes], now_s: float) -> Outcome:
        """A message of the engine's live socket."""
        return self._pass_on(self.stream.on_live(frames, now_s))

    def on_replay(self, frames: Sequence[bytes], now_s: float) -> Outcome:
        """A message of the engine's replay socket."""
        return self._pass_on(self.stream.on_replay(frames, now_s))

    def on_replay_failed(self, now_s: float) -> Outcome:
        """The engine did not answer a replay in time."""
        return self._pass_on(self.stream.on_replay_failed(now_s))

    def on_connected(self, now_s: float) -> Outcome:
        """The connection to the engine stands."""
        return self._pass_on(self.stream.on_connected(now_s))

    def on_lost(self, now_s: float) -> Outcome:
        """The connection to the engine, or the engine, is gone."""
        return Outcome() if self.stream.is_fresh else self._pass_on(self.stream.on_lost(now_s))

    def describe_snapshot(self) -> SnapshotHeader:
        """Header of a snapshot taken now."""
        note = self._note
        return SnapshotHeader(
            incarnation=note.incarnation,
            watermark=self.journal.next_seq - 1,
            trust=note.trust,
            losses=note.losses,
            dp_rank=self.dp_rank,
            model=self._settings.model,
            seed=namespace_seed(self._settings.model, bigram=self._settings.is_bigram),
        )

    def dump(self) -> Iterator[BlockRun]:
        """Records of a snapshot; to be taken whole before the next stimulus."""
        return self._index.dump(self.holder)

    @property
    def block_count(self) -> int:
        """Blocks of the rank's device cache."""
        return self._index.block_count(self.holder)

    @property
    def _note(self) -> SourceNote:
        return SourceNote(self._settings.incarnation, self.stream.trust.value, self._losses)

    def _pass_on(self, report: StreamReport) -> Outcome:
        entries: list[Entry] = []
        if report.reset_reason is not None:
            self.engine_lives += 1
            entries.append(self._publish((AllBlocksCleared(),), self._wall_clock()))
        if report.doubted_first:
            self._losses += 1
            entries.append(self._publish((), self._wall_clock()))
        for batch in report.applied:
            self._watch_groups(batch)
            entries.append(self._publish(batch.events, batch.ts_s))
        if report.doubted_later:
            self._losses += 1
        if self._note != self._said:
            entries.append(self._publish((), self._wall_clock()))
        return Outcome(tuple(entries), report.ask_replay_from)

    def _publish(self, events: tuple[Event, ...], ts_s: float) -> Entry:
        payload = sglang.encode_batch(EventBatch(ts_s=ts_s, events=events, dp_rank=self.dp_rank), sglang.Generation.MAP)
        self._said = self._note
        return self.journal.append(write_topic(self._settings.topic, self._said), payload)

    def _watch_groups(self, batch: EventBatch) -> None:
        for event in batch.events:
            if isinstance(event, BlockStored) and len(self.groups) < _MAX_GROUPS:
                seen = GroupSeen(event.group_idx, event.group_kind, event.window_tokens, event.block_tokens)
                self.groups.setdefault(seen)
