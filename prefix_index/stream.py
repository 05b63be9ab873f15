"""One rank's event stream: frames and snapshots in, index changes and wishes for more out.

The path decode -> sequence -> index of one (worker, data-parallel rank). No socket and no clock:
the edge reads frames, calls one verb, and carries out what the report says.
"""

from collections.abc import Iterable, Sequence

import msgspec

from prefix_index.base import Change, PrefixIndex
from prefix_index.counters import StreamCounters
from prefix_index.due_blocks import DueBlocks
from prefix_index.lives import Lives
from prefix_index.runs import RunOutcome, find_runs
from prefix_index.sequence import Sequencer, Step
from prefix_index.silence import Silence
from prefix_index.trust import Trust, find_worst, read_trust
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared, BlockStored, Event, EventBatch
from wire.frames import LiveFrame, ReplayEnd, parse_live, parse_replay
from wire.ids import Target
from wire.malformed import Malformed
from wire.snapshot import BlockRun, SnapshotHeader
from wire.source_note import SourceNote, read_note

#: Events that have waited here for so long are late: requests were judged without them.
LATE_S = 0.5


class StreamReport(msgspec.Struct, frozen=True):
    """What one stimulus changed, and what the edge must do."""

    changes: tuple[Change, ...] = ()
    #: Ask the publisher for everything from this number on; give up any replay that still runs.
    ask_replay_from: int | None = None
    #: Ask the source for a snapshot, and give this ticket with all that comes of it.
    ask_snapshot: int | None = None
    #: Everything the rank held was forgotten, and why; give up any replay that still runs.
    reset_reason: str | None = None
    #: Events were lost for good: what the rank held before counts only as far as later events show it again.
    doubted: bool = False
    #: Of these losses, one came before the batches of `applied`; the others within or after them.
    doubted_first: bool = False
    doubted_later: bool = False
    #: Batches that were applied, in order.
    applied: tuple[EventBatch, ...] = ()


class _Item(msgspec.Struct, frozen=True):
    """A batch on its way through the numbering."""

    batch: EventBatch | Malformed
    note: SourceNote | None

    @property
    def is_damaged(self) -> bool:
        """Whether events of a known type in it, or all, cannot be read."""
        return isinstance(self.batch, Malformed) or "malformed" in self.batch.skipped


class RankStream:
    """Stream of one rank into one index. `holder` must be attached to the index by its owner."""

    def __init__(
        self,
        holder: Target,
        index: PrefixIndex,
        *,
        replay_available: bool,
        snapshot_available: bool = False,
        max_held: int = 4_096,
        due_limit_s: float = 10.0,
        due_half_life_s: float = 30.0,
    ) -> None:
        self.holder = holder
        self.counters = StreamCounters()
        #: When the last batch was applied, in the caller's clock; None before the first.
        self.last_batch_s: float | None = None
        self._trust = Trust.LOST
        #: What the source, where it is a mirror, last said of itself.
        self._note: SourceNote | None = None
        self._lives = Lives(holder.dp_rank)
        self._index = index
        self._runs = find_runs(index)
        #: Header of the snapshot whose records are coming in.
        self._loading: SnapshotHeader | None = None
        #: The carrier of the events is gone; events are here and were not read yet.
        self._silence = Silence(half_life_s=due_half_life_s)
        self._lag = Silence(half_life_s=due_half_life_s, grace_s=LATE_S)
        self._due = DueBlocks(limit_s=due_limit_s, half_life_s=due_half_life_s)
        self._sequencer: Sequencer[_Item] = Sequencer(
            replay_available=replay_available, snapshot_available=snapshot_available, max_held=max_held
        )

    @property
    def trust(self) -> Trust:
        """How far this rank's credit can be believed; LOST until the first batch, never EXACT while catching up."""
        if self._loading is not None:
            return Trust.LOST
        levels = [self._trust]
        levels += [Trust.PARTIAL] if self.is_recovering else []
        levels += [Trust.STALE] if self._due.is_overdue or self._silence.counts or self._lag.counts else []
        levels += [read_trust(self._note.trust)] if self._note is not None else []
        return find_worst(levels)

    @property
    def is_fresh(self) -> bool:
        """True when nothing is known of the rank, so that losing it changes nothing."""
        return self.last_seq is None and self._trust is Trust.LOST and not self.is_recovering

    @property
    def is_stuck(self) -> bool:
        """True when nothing is under way that would mend what the stream knows is missing."""
        return self._trust is Trust.STALE and not self.is_recovering

    @property
    def last_seq(self) -> int | None:
        """Number of the last batch applied or covered by a snapshot; None before the first."""
        applied = self._sequencer.applied
        return None if applied is None or applied < 0 else applied

    @property
    def is_replaying(self) -> bool:
        """True while live batches are held back for a replay."""
        return self._sequencer.is_replaying

    @property
    def is_recovering(self) -> bool:
        """True while live batches are held back, for a replay or a snapshot."""
        return self._sequencer.is_recovering

    def credit_ratio(self, now_s: float) -> float:
        """Share of the index's credit that may be given: all where it is believed, less the longer a rank is silent."""
        own = find_worst([self._trust, *([read_trust(self._note.trust)] if self._note is not None else [])])
        if self._loading is not None or own in (Trust.STALE, Trust.LOST):
            return 0.0
        return min(each.credit_ratio(now_s) for each in (self._due, self._silence, self._lag))

    def lag_s(self, now_s: float) -> float:
        """How long messages of the rank have been waiting to be read; 0 where none waits."""
        return self._lag.age_s(now_s)

    def wants_snapshot(self, ticket: int) -> bool:
        """Whether the snapshot of this ticket is still awaited."""
        return self._sequencer.ticket == ticket

    def on_connected(self, now_s: float) -> StreamReport:
        """The connection stands: what was published before is asked for, where nothing is known yet."""
        return self._carry_out(self._sequencer.on_connected(), now_s)

    def on_live(self, frames: Sequence[bytes], now_s: float) -> StreamReport:
        """A message of the live socket, as it came."""
        frame = parse_live(frames)
        if isinstance(frame, Malformed):
            self.counters.skip([f"frame {frame.reason}"])
            return StreamReport()
        item = _Item(decode_batch(frame.payload), read_note(frame.topic))
        if self._is_foreign(item):
            return StreamReport()
        is_same_life = item.note is not None and self._lives.knows(item.note)
        is_new_life = self._meet(item.note)
        mark = hash(frame.payload)
        step = self._sequencer.on_live(
            frame.seq, item, is_damaged=item.is_damaged, mark=mark, is_same_life=is_same_life
        )
        if is_new_life:
            step.reset_reason = "new incarnation"
        return self._carry_out(step, now_s)

    def on_live_run(self, messages: Sequence[Sequence[bytes]], now_s: float) -> RunOutcome:
        """Take in those first messages of the live socket that simply follow what was applied, in one go.

        The outcome says how many: the one after them, or the first where none was taken, is for `on_live`. After it
        all is as if each had come to `on_live`.
        """
        payloads = self._find_run(messages)
        if not payloads:
            return RunOutcome()
        run = self._runs.apply_run(self.holder, payloads, self._lives.named_rank)
        if run.payloads:
            self._sequencer.on_live_run([hash(payload) for payload in payloads[: run.payloads]])
            self.counters.record_run(run)
            self.last_batch_s = now_s
            if self._trust is Trust.LOST or run.clears:
                self._trust = Trust.EXACT
            if run.stores:
                self._due.arrive()
        return run

    def _find_run(self, messages: Sequence[Sequence[bytes]]) -> list[bytes]:
        """Payloads of the first messages, as long as number and topic promise nothing but more of the same."""
        read: list[LiveFrame] = []
        for frames in messages:
            frame = parse_live(frames)
            if isinstance(frame, Malformed) or (read and frame.topic != read[0].topic):
                break
            read.append(frame)
        note = read_note(read[0].topic) if read else None
        if note is not None and (note != self._note or not self._lives.knows(note)):
            return []
        count = self._sequencer.count_in_order([frame.seq for frame in read])
        return [frame.payload for frame in read[:count]]

    def on_replay(self, frames: Sequence[bytes], now_s: float) -> StreamReport:
        """A message of the replay asked for last, its end included."""
        frame = parse_replay(frames)
        if isinstance(frame, Malformed):
            self.counters.skip([f"frame {frame.reason}"])
            self._sequencer.on_replay_garbled()
            return StreamReport()
        if isinstance(frame, ReplayEnd):
            return self._carry_out(self._sequencer.on_replay_end(), now_s)
        item = _Item(decode_batch(frame.payload), None if frame.topic is None else read_note(frame.topic))
        if not self.is_replaying or (item.note is not None and self._lives.has_ended(item.note.incarnation)):
            self._sequencer.on_replay_garbled()
            return StreamReport()
        if self._meet(item.note):
            step = self._sequencer.on_connected()
            step.reset_reason = "new incarnation"
            return self._carry_out(step, now_s)
        step = self._sequencer.on_replay(frame.seq, item, is_damaged=item.is_damaged, mark=hash(frame.payload))
        return self._carry_out(step, now_s)

    def on_replay_failed(self, now_s: float) -> StreamReport:
        """The replay did not answer in time, or its socket failed."""
        if self._sequencer.is_replaying:
            self.counters.failed_replays += 1
        report = self._carry_out(self._sequencer.on_replay_failed(), now_s)
        if report.doubted and self._trust is Trust.PARTIAL:
            self._trust = Trust.STALE
        return report

    def on_snapshot_started(self, header: SnapshotHeader, ticket: int, now_s: float) -> StreamReport:
        """The snapshot of `ticket` begins; what the rank held makes room for it, but where it is of no use.

        A ticket that is still wanted was drawn after the last life began: whoever answers it lives, even where a late
        batch of another life had ended that one.
        """
        if not self.wants_snapshot(ticket) or self._loading is not None:
            return StreamReport()
        applied = self._sequencer.applied
        is_known_life = header.incarnation == self._lives.current
        is_old = is_known_life and applied is not None and header.watermark < applied
        if is_old:
            return self.on_snapshot_failed(ticket, now_s)
        if not is_known_life and self._lives.begin(header.incarnation):
            self._sequencer.forget_held()
        self._loading = header
        self._index.clear(self.holder)
        return StreamReport()

    def on_snapshot_records(self, runs: Sequence[BlockRun], ticket: int) -> None:
        """More records of the snapshot under way; parents come before their children."""
        if self._loading is not None and self.wants_snapshot(ticket):
            self._index.load(self.holder, runs)

    def on_snapshot_ended(self, ticket: int, now_s: float) -> StreamReport:
        """The snapshot under way is complete: its watermark counts, and what was held above it follows."""
        header = self._loading
        if header is None or not self.wants_snapshot(ticket):
            return StreamReport()
        self._loading = None
        self._trust = Trust.EXACT
        self._note = SourceNote(header.incarnation, header.trust, header.losses)
        self._due.arrive()
        self.last_batch_s = now_s
        self.counters.snapshots_loaded += 1
        return self._carry_out(self._sequencer.on_snapshot(header.watermark, ticket), now_s)

    def on_snapshot_failed(self, ticket: int, now_s: float) -> StreamReport:
        """The snapshot cannot be had, or broke off: life goes on without what it would have brought."""
        if not self.wants_snapshot(ticket):
            return StreamReport()
        self.counters.snapshots_failed += 1
        if self._loading is not None:
            self._loading = None
            self._index.clear(self.holder)
            self._trust = Trust.LOST
        return self._carry_out(self._sequencer.on_snapshot_failed(ticket), now_s)

    def on_due_blocks(self, count: int, now_s: float) -> None:
        """The rank computed so many full blocks that it did not have: it must tell of them soon."""
        self._due.expect(count, now_s)

    def on_tick(self, now_s: float) -> None:
        """Time has passed: blocks may have become overdue."""
        if not self.is_recovering and self._due.check(now_s):
            self.counters.overdue += 1

    def on_silence(self, now_s: float, *, is_silent: bool) -> None:
        """The carrier of the events is gone, or back: what is known stays, and is believed less the longer it lasts."""
        self._silence.see(now_s, is_silent=is_silent)

    def on_lag(self, now_s: float, *, is_behind: bool) -> None:
        """More messages of the rank were there than are read in one go, or all were read."""
        self._lag.see(now_s, is_silent=is_behind)

    def on_lost(self, now_s: float) -> StreamReport:
        """The worker is gone or was replaced: forget its blocks; a next batch starts anew."""
        self._sequencer.on_lost()
        self._lives.named_rank = None
        return self._carry_out(Step(reset_reason="worker lost"), now_s)

    def _is_foreign(self, item: _Item) -> bool:
        """Whether a batch is none of this rank's life: counted and left out."""
        if item.note is not None and self._lives.has_ended(item.note.incarnation):
            self.counters.skip(["retired incarnation"])
            return True
        if isinstance(item.batch, EventBatch) and self._lives.is_of_another_rank(item.batch.dp_rank):
            self.counters.skip(["other rank"])
            return True
        return False

    def _meet(self, note: SourceNote | None) -> bool:
        """Look at whose batch it is; True when a new life begins, which ends all that was known."""
        if note is None or self._lives.knows(note) or not self._lives.begin(note.incarnation):
            return False
        self._sequencer.on_lost()
        return True

    def _carry_out(self, step: Step[_Item], now_s: float) -> StreamReport:
        if step.reset_reason is not None:
            self._reset()
        self.counters.gaps += step.gap
        # What is read at the start, because a connection stands, repairs nothing.
        is_repair = step.gap or self.last_seq is not None
        self.counters.replays += step.ask_replay_from is not None and is_repair
        self.counters.snapshots_asked += step.ask_snapshot is not None
        losses = self.counters.losses
        self._judge(step)
        losses_first = self.counters.losses - losses
        changes = tuple(self._apply_all(step.apply))
        if step.apply:
            self.last_batch_s = now_s
        return StreamReport(
            changes=changes,
            ask_replay_from=step.ask_replay_from,
            ask_snapshot=step.ask_snapshot,
            reset_reason=step.reset_reason,
            doubted=self.counters.losses > losses,
            doubted_first=losses_first > 0,
            doubted_later=self.counters.losses > losses + losses_first,
            applied=tuple(item.batch for item in step.apply if isinstance(item.batch, EventBatch)),
        )

    def _reset(self) -> None:
        self._index.clear(self.holder)
        self.counters.resets += 1
        self._trust = Trust.LOST
        self._note = self._loading = None
        self._due.arrive()

    def _judge(self, step: Step[_Item]) -> None:
        """Trust after the sequence's news, before the batches are applied."""
        if step.missing == "before":
            self._trust = Trust.PARTIAL
        elif step.missing is not None:
            self._doubt()
        elif self._trust is Trust.LOST and (step.apply or step.is_empty):
            self._trust = Trust.EXACT

    def _doubt(self) -> None:
        """Events were lost for good; among them may have been removals."""
        self._index.doubt(self.holder)
        self.counters.losses += 1
        self._trust = Trust.PARTIAL

    def _apply_all(self, items: Iterable[_Item]) -> Iterable[Change]:
        for item in items:
            self.counters.batches += 1
            if isinstance(item.batch, Malformed):
                self.counters.skip(["malformed batch"])
                self._doubt()
                continue
            self.counters.skip(item.batch.skipped)
            for event in item.batch.events:
                yield self._apply(event)
            # Where among the others the damaged event stood is not known: all before the batch's end are doubted.
            if item.is_damaged:
                self._doubt()
            self._heed(item.note)

    def _heed(self, note: SourceNote | None) -> None:
        """Take in what a mirror says of itself: where it lost events, so did we."""
        if note is None:
            return
        if self._note is not None and note.losses != self._note.losses:
            self._index.doubt(self.holder)
            self.counters.losses += 1
        self._note = note

    def _apply(self, event: Event) -> Change:
        change = self._index.apply(self.holder, event)
        self.counters.record(event, change)
        if isinstance(event, AllBlocksCleared):
            self._trust = Trust.EXACT
        elif isinstance(event, BlockStored):
            self._due.arrive()
        return change
