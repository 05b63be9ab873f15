"""One rank's event stream: frames in, index changes and replay requests out.

The path decode -> sequence -> index of one (worker, data-parallel rank). No socket and no clock:
the edge reads frames, calls one verb, and carries out what the report says.
"""

from collections.abc import Iterable, Sequence

import msgspec

from prefix_index.base import Change, PrefixIndex
from prefix_index.sequence import Sequencer, Step
from prefix_index.trust import Trust
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared, Event, EventBatch
from wire.frames import ReplayEnd, parse_live, parse_replay
from wire.ids import Target
from wire.malformed import Malformed


class StreamCounters(msgspec.Struct):
    """What a stream has seen since it began; only grows."""

    #: Batches applied, and the events in them.
    batches: int = 0
    events: int = 0
    #: Events by type name, among those applied.
    kinds: dict[str, int] = msgspec.field(default_factory=dict)
    #: What was left out, by reason: `unknown_type`, `malformed`, `malformed batch`, `other rank`, `frame ...`.
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    #: Breaks in the numbering, replays asked for, failed replays, resets of the rank's part of the index.
    gaps: int = 0
    replays: int = 0
    failed_replays: int = 0
    resets: int = 0
    #: Times that events were lost for good.
    losses: int = 0
    #: Blocks parked because their parent was unknown, and removals of unknown blocks.
    orphans: int = 0
    unknown_removals: int = 0


class StreamReport(msgspec.Struct, frozen=True):
    """What one stimulus changed, and what the edge must do."""

    changes: tuple[Change, ...] = ()
    #: Ask the publisher for everything from this number on; give up any replay that still runs.
    ask_replay_from: int | None = None
    #: Everything the rank held was forgotten, and why; give up any replay that still runs.
    reset_reason: str | None = None
    #: Events were lost for good: what the rank held before counts only as far as later events show it again.
    doubted: bool = False


class RankStream:
    """Stream of one rank into one index. `holder` must be attached to the index by its owner."""

    def __init__(self, holder: Target, index: PrefixIndex, *, replay_available: bool, max_held: int = 4_096) -> None:
        self.holder = holder
        self.counters = StreamCounters()
        self._trust = Trust.LOST
        #: When the last batch was applied, in the caller's clock; None before the first.
        self.last_batch_s: float | None = None
        self._index = index
        #: Number by which the engine calls this rank; need not be ours where each engine is one of a larger group.
        self._named_rank: int | None = None
        self._sequencer: Sequencer[EventBatch | Malformed] = Sequencer(
            replay_available=replay_available, max_held=max_held
        )

    @property
    def trust(self) -> Trust:
        """How far this rank's credit can be believed; LOST until the first batch, never EXACT while catching up."""
        if self.is_replaying and self._trust is Trust.EXACT:
            return Trust.PARTIAL
        return self._trust

    @property
    def last_seq(self) -> int | None:
        """Number of the last batch applied; None before the first."""
        return self._sequencer.applied

    @property
    def is_replaying(self) -> bool:
        """True while live batches are held back for a replay."""
        return self._sequencer.is_replaying

    def on_live(self, frames: Sequence[bytes], now_s: float) -> StreamReport:
        """A message of the live socket, as it came."""
        frame = parse_live(frames)
        if isinstance(frame, Malformed):
            self._skip(f"frame {frame.reason}")
            return StreamReport()
        batch = decode_batch(frame.payload)
        if self._is_of_another_rank(batch):
            self._skip("other rank")
            return StreamReport()
        return self._carry_out(self._sequencer.on_live(frame.seq, batch, is_damaged=_is_damaged(batch)), now_s)

    def on_replay(self, frames: Sequence[bytes], now_s: float) -> StreamReport:
        """A message of the replay asked for last, its end included."""
        frame = parse_replay(frames)
        if isinstance(frame, Malformed):
            self._skip(f"frame {frame.reason}")
            return StreamReport()
        if isinstance(frame, ReplayEnd):
            return self._carry_out(self._sequencer.on_replay_end(), now_s)
        batch = decode_batch(frame.payload)
        return self._carry_out(self._sequencer.on_replay(frame.seq, batch, is_damaged=_is_damaged(batch)), now_s)

    def on_replay_failed(self, now_s: float) -> StreamReport:
        """The replay did not answer in time, or its socket failed."""
        if self._sequencer.is_replaying:
            self.counters.failed_replays += 1
        report = self._carry_out(self._sequencer.on_replay_failed(), now_s)
        if report.doubted and self._trust is Trust.PARTIAL:
            self._trust = Trust.STALE
        return report

    def on_lost(self, now_s: float) -> StreamReport:
        """The worker is gone or was replaced: forget its blocks; a next batch starts anew."""
        self._sequencer.on_lost()
        self._named_rank = None
        return self._carry_out(Step(reset_reason="worker lost"), now_s)

    def _is_of_another_rank(self, batch: EventBatch | Malformed) -> bool:
        """Whether a batch names another rank than the ones before: two ranks publish at one address."""
        if isinstance(batch, Malformed) or batch.dp_rank is None or batch.dp_rank == self._named_rank:
            return False
        if self._named_rank is None or batch.dp_rank == self.holder.dp_rank:
            self._named_rank = batch.dp_rank
            return False
        return True

    def _carry_out(self, step: Step[EventBatch | Malformed], now_s: float) -> StreamReport:
        if step.reset_reason is not None:
            self._index.clear(self.holder)
            self.counters.resets += 1
            self._trust = Trust.LOST
        self.counters.gaps += step.gap
        self.counters.replays += step.ask_replay_from is not None
        losses = self.counters.losses
        self._judge(step)
        changes = tuple(self._apply_all(step.apply))
        if step.apply:
            self.last_batch_s = now_s
        return StreamReport(changes, step.ask_replay_from, step.reset_reason, self.counters.losses > losses)

    def _judge(self, step: Step[EventBatch | Malformed]) -> None:
        """Trust after the sequence's news, before the batches are applied."""
        if step.missing == "before":
            self._trust = Trust.PARTIAL
        elif step.missing is not None:
            self._doubt()
        elif self._trust is Trust.LOST and step.apply:
            self._trust = Trust.EXACT

    def _doubt(self) -> None:
        """Events were lost for good; among them may have been removals."""
        self._index.doubt(self.holder)
        self.counters.losses += 1
        self._trust = Trust.PARTIAL

    def _apply_all(self, batches: Iterable[EventBatch | Malformed]) -> Iterable[Change]:
        for batch in batches:
            self.counters.batches += 1
            if isinstance(batch, Malformed):
                self._skip("malformed batch")
                self._doubt()
                continue
            for reason in batch.skipped:
                self._skip(reason)
            for event in batch.events:
                yield self._apply(event)
            # Where among the others the damaged event stood is not known: all before the batch's end are doubted.
            if _is_damaged(batch):
                self._doubt()

    def _apply(self, event: Event) -> Change:
        change = self._index.apply(self.holder, event)
        kind = type(event).__name__
        self.counters.events += 1
        self.counters.kinds[kind] = self.counters.kinds.get(kind, 0) + 1
        self.counters.orphans += change.orphaned
        self.counters.unknown_removals += change.unknown_removals
        if isinstance(event, AllBlocksCleared):
            self._trust = Trust.EXACT
        return change

    def _skip(self, reason: str) -> None:
        self.counters.skipped[reason] = self.counters.skipped.get(reason, 0) + 1


def _is_damaged(batch: EventBatch | Malformed) -> bool:
    """Whether events of a known type in it, or all, cannot be read."""
    return isinstance(batch, Malformed) or "malformed" in batch.skipped
