"""The numbers of one rank's batches: in order, gap, replay, restart.

Numbered batches come in from the live socket and from replays; out goes what to apply now, exactly
once and in order, and whether to ask for a replay. Knows no socket, no clock and no event.

Life of a sequence. `applied` is the last number applied, `live` the last seen on the live socket;
a replay moves only the first. Live numbers rise by one. A number that does not rise above `live`
is a new publisher: everything is forgotten. A number above `applied` + 1 (or above 0 at the start)
is a gap: it is held back and the missing ones are asked for. While a replay runs, live batches are
held back, bounded; replayed ones are applied as they come; at its end the held ones follow.
A live batch that came damaged is asked for once more like a missing one; where the replay has no better
copy the damaged one is applied, so that numbering goes on.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

Batch = TypeVar("Batch")


class Step(msgspec.Struct, Generic[Batch]):
    """What to do after one stimulus, in the order of the fields."""

    #: Forget what the rank held, and why; None where nothing is forgotten.
    reset_reason: str | None = None
    #: Batches to apply now, in order.
    apply: list[Batch] = msgspec.field(default_factory=list)
    #: First number to ask the publisher for; a replay that still runs is replaced.
    ask_replay_from: int | None = None
    #: A gap was found (asked for or not).
    gap: bool = False
    #: Batches are missing: `before` the first one seen; or between two of them, `unanswered` where the publisher
    #: may still have them, else `gone`.
    missing: str | None = None


class Sequencer(Generic[Batch]):
    """Order of one publisher's batches."""

    def __init__(self, *, replay_available: bool, max_held: int = 4_096) -> None:
        self._replay_available = replay_available
        self._max_held = max_held
        self._held: dict[int, Batch] = {}
        #: Numbers of held batches that came damaged.
        self._damaged: set[int] = set()
        #: Last number applied; None before the first.
        self.applied: int | None = None
        self._live: int | None = None
        #: First number of the running replay; None when none runs.
        self._asked: int | None = None
        #: The running replay skipped a number, or began after what is held: its later batches wait for the next one.
        self._torn = False

    @property
    def is_replaying(self) -> bool:
        """True while live batches are held back."""
        return self._asked is not None

    @property
    def held_count(self) -> int:
        """Live batches held back."""
        return len(self._held)

    def on_live(self, seq: int, batch: Batch, *, is_damaged: bool = False) -> Step[Batch]:
        """A batch from the live socket; of a damaged one a better copy is asked for."""
        step: Step[Batch] = Step()
        if self._live is not None and seq <= self._live:
            self._restart()
            step.reset_reason = "sequence went backwards"
        self._live = seq
        if self.applied is not None and seq <= self.applied:
            return step
        if is_damaged and self._replay_available:
            self._damaged.add(seq)
        if self.is_replaying:
            self._hold(seq, batch, step)
        elif seq == self._next and seq not in self._damaged:
            self._apply(seq, batch, step)
        else:
            self._open_gap(seq, batch, step)
        return step

    def on_replay(self, seq: int, batch: Batch, *, is_damaged: bool = False) -> Step[Batch]:
        """A batch out of the replay that was asked for last; the live copy of a damaged one counts if it is whole."""
        step: Step[Batch] = Step()
        if not self.is_replaying or self._torn or seq < self._next:
            return step
        if self._next < seq <= min(self._held, default=seq) and self._next == self._asked:
            self._forget_gap(step)
        elif seq > self._next:
            self._torn = True
            return step
        live = self._held.pop(seq, batch)
        self._apply(seq, batch if seq in self._damaged or not is_damaged else live, step)
        return step

    def on_replay_end(self) -> Step[Batch]:
        """The replay is complete: what was held back follows."""
        step: Step[Batch] = Step()
        if not self.is_replaying:
            return step
        has_progress = self._next != self._asked
        self._asked, self._torn = None, False
        first_held = min(self._held, default=self._next)
        if first_held > self._next and has_progress:
            self._asked = step.ask_replay_from = self._next
            return step
        if first_held > self._next:
            self._forget_gap(step)
        self._release(step)
        return step

    def on_replay_failed(self) -> Step[Batch]:
        """No answer: go on without the missing batches."""
        step: Step[Batch] = Step()
        if self.is_replaying:
            self._give_up(step)
        return step

    def on_lost(self) -> None:
        """The publisher is gone: the next live batch is the first of a new one."""
        self._restart()

    @property
    def _next(self) -> int:
        return 0 if self.applied is None else self.applied + 1

    def _restart(self) -> None:
        self.applied = self._live = self._asked = None
        self._torn = False
        self._held.clear()
        self._damaged.clear()

    def _apply(self, seq: int, batch: Batch, step: Step[Batch]) -> None:
        step.apply.append(batch)
        self.applied = seq
        self._damaged.discard(seq)

    def _open_gap(self, seq: int, batch: Batch, step: Step[Batch]) -> None:
        step.gap = seq != self._next
        if self._replay_available:
            self._held[seq] = batch
            self._asked = step.ask_replay_from = self._next
        else:
            step.missing = "before" if self.applied is None else "gone"
            self._apply(seq, batch, step)

    def _hold(self, seq: int, batch: Batch, step: Step[Batch]) -> None:
        self._held[seq] = batch
        if len(self._held) > self._max_held:
            self._give_up(step)

    def _give_up(self, step: Step[Batch]) -> None:
        self._asked, self._torn = None, False
        if self._held and min(self._held) > self._next:
            step.missing = "before" if self.applied is None else "unanswered"
        self._release(step)

    def _forget_gap(self, step: Step[Batch]) -> None:
        """The publisher no longer has what is missing."""
        step.missing = "before" if self.applied is None else "gone"

    def _release(self, step: Step[Batch]) -> None:
        """Apply what was held, in order; a number missing inside it was lost on the live socket and opens a gap."""
        held: Iterable[tuple[int, Batch]] = sorted(self._held.items(), key=lambda entry: entry[0])
        self._held = {}
        for seq, batch in held:
            if self.applied is not None and seq <= self.applied:
                self._damaged.discard(seq)
                continue
            if self.is_replaying:
                self._held[seq] = batch
            elif seq == self._next or (step.missing is not None and not step.apply):
                self._apply(seq, batch, step)
            else:
                self._open_gap(seq, batch, step)
