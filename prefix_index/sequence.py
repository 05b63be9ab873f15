"""The numbers of one rank's batches: in order, gap, replay, snapshot, restart.

Numbered batches come in from the live socket and from replays; out goes what to apply now, exactly
once and in order, and whether to ask for a replay or a snapshot. Knows no socket, no clock and no event.

Life of a sequence. `applied` is the last number applied, `live` the last seen on the live socket;
a replay moves only the first. Live numbers rise by one. A number that does not rise above `live`
is a new publisher, unless it is known to be of the same one or repeats a batch byte by byte: everything is
forgotten, and a replay then shows whether that was right. A number above `applied` + 1 (or above 0 at the
start) is a gap: it is held back and the missing ones are asked for. While a replay runs, live batches are
held back, bounded; replayed ones are applied as they come; at its end the held ones follow.

A replay is believed only where it agrees with the live socket: a batch that differs from one already seen
under its number is of a new publisher, and one that ends before what was held is asked for once more.

A replay from 0 that ends at once, before anything came live, shows that nothing was published yet.

What no replay has, a snapshot brings, where the source takes any: the state after the batch of its watermark.
The numbering goes on there; batches up to the watermark are covered, those held above it follow. A source
with snapshots is asked for one at the start, instead of its whole history.

A live batch that came damaged is asked for once more like a missing one; where the replay has no better
copy the damaged one is applied, so that numbering goes on.
"""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

Batch = TypeVar("Batch")
#: Batches whose mark is remembered.
MAX_MARKS = 256
#: Snapshots asked for one after the other while none of them lets the live batches go on.
MAX_SNAPSHOTS = 3


class Step(msgspec.Struct, Generic[Batch]):
    """What to do after one stimulus, in the order of the fields."""

    #: Forget what the rank held, and why; None where nothing is forgotten.
    reset_reason: str | None = None
    #: Batches to apply now, in order.
    apply: list[Batch] = msgspec.field(default_factory=list)
    #: First number to ask the publisher for; a replay that still runs is replaced.
    ask_replay_from: int | None = None
    #: Ask the source for a snapshot, under this ticket; an earlier one is no longer wanted.
    ask_snapshot: int | None = None
    #: A gap was found (asked for or not).
    gap: bool = False
    #: The publisher's whole buffer was read and nothing was ever published: its cache is empty.
    is_empty: bool = False
    #: Batches are missing: `before` the first one seen; or between two of them, `unanswered` where the publisher
    #: may still have them, else `gone`.
    missing: str | None = None


class Sequencer(Generic[Batch]):
    """Order of one publisher's batches."""

    def __init__(self, *, replay_available: bool, snapshot_available: bool = False, max_held: int = 4_096) -> None:
        self._replay_available = replay_available
        self._snapshot_available = snapshot_available
        self._max_held = max_held
        self._held: dict[int, Batch] = {}
        #: Numbers of held batches that came damaged.
        self._damaged: set[int] = set()
        #: Number -> mark of batches seen lately, the oldest first; damaged ones have none.
        self._marks: dict[int, int] = {}
        #: Last number applied, or covered by a snapshot; None before the first.
        self.applied: int | None = None
        self._live: int | None = None
        #: First number of the running replay; None when none runs.
        self._asked: int | None = None
        #: The running replay skipped a number, or began after what is held: its later batches wait for the next one.
        self._torn = False
        #: Something in the running replay could not be taken for a batch, so that its end proves nothing.
        self._is_garbled = False
        #: Batches were held when the running replay was asked for, so that it must have one of them.
        self._needs_proof = False
        #: Ticket of the snapshot that is awaited; None when none is.
        self.ticket: int | None = None
        self._tickets = 0
        #: Snapshots asked for since live batches last went on in order.
        self._snapshots = 0

    @property
    def is_replaying(self) -> bool:
        """True while live batches are held back for a replay."""
        return self._asked is not None

    @property
    def is_recovering(self) -> bool:
        """True while live batches are held back, for a replay or a snapshot."""
        return self._asked is not None or self.ticket is not None

    @property
    def held_count(self) -> int:
        """Live batches held back."""
        return len(self._held)

    def on_connected(self) -> Step[Batch]:
        """The connection stands: what was published before is asked for, where nothing is known yet."""
        step: Step[Batch] = Step()
        if self.applied is None and not self.is_recovering:
            self._begin(step)
        return step

    def on_live(
        self, seq: int, batch: Batch, *, is_damaged: bool = False, mark: int | None = None, is_same_life: bool = False
    ) -> Step[Batch]:
        """A batch from the live socket; of a damaged one a better copy is asked for.

        Args:
            seq: Its number.
            batch: What to apply.
            is_damaged: Part of it could not be read.
            mark: Equal for equal bytes; None where batches are not to be compared.
            is_same_life: The source says that its publisher is the one from before.
        """
        step: Step[Batch] = Step()
        mark = None if is_damaged else mark
        is_repeated = mark is not None and self._marks.get(seq) == mark
        is_behind = self._live is not None and seq <= self._live
        if is_behind and (is_same_life or is_repeated):
            self._take_late(seq, batch, mark)
            return step
        if is_behind or self._contradicts(seq, mark):
            self._restart()
            step.reset_reason = "sequence went backwards"
        self._live = seq
        self._remember(seq, mark)
        if self.applied is not None and seq <= self.applied:
            return step
        if is_damaged and self._replay_available:
            self._damaged.add(seq)
        if self.is_recovering:
            self._hold(seq, batch, step)
        elif seq == self._next and seq not in self._damaged:
            self._snapshots = 0
            self._apply(seq, batch, step)
            if step.reset_reason is not None and self._replay_available:
                self._ask(seq + 1, step)
        else:
            self._open_gap(seq, batch, step)
        return step

    def count_in_order(self, seqs: Sequence[int]) -> int:
        """How many of the first of these live numbers just go on from the last one applied: one for `on_live_run`.

        None where anything is held back or awaited, or where the next number was seen already.
        """
        start = self._next
        if self.is_recovering or (self._live is not None and start <= self._live):
            return 0
        for count, seq in enumerate(seqs):
            if seq != start + count:
                return count
        return len(seqs)

    def on_live_run(self, marks: Sequence[int]) -> None:
        """As many whole batches as there are marks, found by `count_in_order`, were applied by the caller."""
        start = self._next
        self._live = self.applied = start + len(marks) - 1
        self._snapshots = 0
        for at in range(max(0, len(marks) - MAX_MARKS), len(marks)):
            self._remember(start + at, marks[at])

    def on_replay(self, seq: int, batch: Batch, *, is_damaged: bool = False, mark: int | None = None) -> Step[Batch]:
        """A batch out of the replay that was asked for last; the live copy of a damaged one counts if it is whole."""
        step: Step[Batch] = Step()
        mark = None if is_damaged else mark
        if not self.is_replaying:
            return step
        if self._contradicts(seq, mark):
            self._restart()
            step.reset_reason = "the replay is a new publisher's"
            self._begin(step)
            return step
        if self._torn or seq < self._next:
            return step
        if seq > self._next and not self._find_start(seq, batch, mark, step):
            return step
        if mark is not None and seq in self._held and self._marks.get(seq) == mark:
            self._needs_proof = False
        self._remember(seq, mark)
        live = self._held.pop(seq, batch)
        self._apply(seq, batch if seq in self._damaged or not is_damaged else live, step)
        return step

    def on_replay_garbled(self) -> None:
        """Something came out of the replay that is no batch of this publisher."""
        self._is_garbled = True

    def on_replay_end(self) -> Step[Batch]:
        """The replay is complete: what was held back follows."""
        step: Step[Batch] = Step()
        if not self.is_replaying:
            return step
        step.is_empty = not (self._asked or self._held or self._is_garbled) and self.applied is None
        has_progress = self._next != self._asked
        self._asked, self._torn = None, False
        first_held = min(self._held, default=self._next)
        is_incomplete = first_held > self._next or self._needs_proof
        if is_incomplete and has_progress:
            self._ask(self._next, step)
        elif is_incomplete:
            self._find_no_replay("gone", step)
        else:
            self._release(step)
        return step

    def on_replay_failed(self) -> Step[Batch]:
        """No answer: go on without the missing batches."""
        step: Step[Batch] = Step()
        if self.is_replaying:
            self._give_up(step)
        return step

    def on_snapshot(self, watermark: int, ticket: int) -> Step[Batch]:
        """The state after batch `watermark` (-1: before any) was taken over; what is held above it follows."""
        step: Step[Batch] = Step()
        if ticket == self.ticket:
            self.ticket = None
            self.applied = watermark
            self._release(step)
        return step

    def on_snapshot_failed(self, ticket: int) -> Step[Batch]:
        """There is no snapshot: a replay from the start is tried where nothing was, else life goes on without."""
        step: Step[Batch] = Step()
        if ticket != self.ticket:
            return step
        self.ticket = None
        self._snapshots = MAX_SNAPSHOTS
        if self.applied is None and self._replay_available:
            self._ask(0, step)
        else:
            self._give_up(step)
        return step

    def on_lost(self) -> None:
        """The publisher is gone: the next live batch is the first of a new one."""
        self._restart()

    def forget_held(self) -> None:
        """The snapshot under way is of a new publisher: what is held is not."""
        ticket = self.ticket
        self._restart()
        self.ticket = ticket

    @property
    def _next(self) -> int:
        return 0 if self.applied is None else self.applied + 1

    def _restart(self) -> None:
        self.applied = self._live = self._asked = self.ticket = None
        self._torn = self._needs_proof = False
        self._snapshots = 0
        self._held.clear()
        self._damaged.clear()
        self._marks.clear()

    def _begin(self, step: Step[Batch]) -> None:
        if self._snapshot_available:
            self._ask_snapshot(step)
        elif self._replay_available:
            self._ask(0, step)

    def _ask(self, start_seq: int, step: Step[Batch]) -> None:
        self._asked = step.ask_replay_from = start_seq
        self._is_garbled = False
        self._needs_proof = any(seq in self._marks for seq in self._held)

    def _ask_snapshot(self, step: Step[Batch]) -> None:
        self._asked, self._torn = None, False
        self._snapshots += 1
        self._tickets += 1
        self.ticket = step.ask_snapshot = self._tickets
        step.ask_replay_from = None

    @property
    def _may_ask_snapshot(self) -> bool:
        return self._snapshot_available and self._snapshots < MAX_SNAPSHOTS

    def _contradicts(self, seq: int, mark: int | None) -> bool:
        """Whether a batch differs from the one seen under its number: its publisher is another one."""
        return mark is not None and self._marks.get(seq, mark) != mark

    def _remember(self, seq: int, mark: int | None) -> None:
        if mark is not None:
            self._marks[seq] = mark
            if len(self._marks) > MAX_MARKS:
                del self._marks[next(iter(self._marks))]

    def _take_late(self, seq: int, batch: Batch, mark: int | None) -> None:
        """A batch that comes after later ones: still missing, or known already."""
        if self.is_recovering and seq >= self._next and seq not in self._held and len(self._held) < self._max_held:
            self._held[seq] = batch
            self._remember(seq, mark)

    def _find_start(self, seq: int, batch: Batch, mark: int | None, step: Step[Batch]) -> bool:
        """Whether a replay that skips numbers may go on at `seq`: its publisher no longer has those before."""
        if self._next != self._asked or seq > min(self._held, default=seq):
            self._torn = True
            return False
        if self._may_ask_snapshot:
            self._ask_snapshot(step)
            return False
        if self.applied is None and not self._held:
            # Nothing else speaks for this number yet: it must come a second time.
            self._live = seq
            self._held[seq] = batch
            self._remember(seq, mark)
            self._ask(0, step)
            return False
        step.missing = "before" if self.applied is None else "gone"
        return True

    def _apply(self, seq: int, batch: Batch, step: Step[Batch]) -> None:
        step.apply.append(batch)
        self.applied = seq
        self._damaged.discard(seq)

    def _open_gap(self, seq: int, batch: Batch, step: Step[Batch]) -> None:
        step.gap = seq != self._next
        if self._may_ask_snapshot and (self.applied is None or not self._replay_available):
            self._held[seq] = batch
            self._ask_snapshot(step)
        elif self._replay_available:
            self._held[seq] = batch
            self._ask(self._next, step)
        else:
            step.missing = "before" if self.applied is None else "gone"
            self._apply(seq, batch, step)

    def _hold(self, seq: int, batch: Batch, step: Step[Batch]) -> None:
        self._held[seq] = batch
        if len(self._held) <= self._max_held:
            return
        if self.ticket is None and not self._may_ask_snapshot:
            self._give_up(step)
            return
        # The snapshot covers them, or shows that they are missing.
        self._held.clear()
        self._damaged.clear()
        if self.ticket is None:
            self._ask_snapshot(step)

    def _give_up(self, step: Step[Batch]) -> None:
        self._asked, self._torn = None, False
        if self._held and min(self._held) > self._next:
            self._find_no_replay("unanswered", step)
        else:
            self._release(step)

    def _find_no_replay(self, missing: str, step: Step[Batch]) -> None:
        """What is missing cannot be had from a replay."""
        if self._may_ask_snapshot:
            self._ask_snapshot(step)
            return
        step.missing = "before" if self.applied is None else missing
        self._release(step)

    def _release(self, step: Step[Batch]) -> None:
        """Apply what was held, in order; a number missing inside it was lost on the live socket and opens a gap."""
        held: Iterable[tuple[int, Batch]] = sorted(self._held.items(), key=lambda entry: entry[0])
        self._held = {}
        for seq, batch in held:
            if self.applied is not None and seq <= self.applied:
                self._damaged.discard(seq)
                continue
            if self.is_recovering:
                self._held[seq] = batch
            elif seq == self._next or (step.missing is not None and not step.apply):
                self._apply(seq, batch, step)
            else:
                self._open_gap(seq, batch, step)
