"""The numbered batches of one rank's cache events, and the last of them for replay.

Takes the events of a step from the engine, gives numbered bytes to the publisher. Pure: the clock is
an argument, and the dialect is a function that it is given.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from wire.events import Event, EventBatch


class JournalEntry(msgspec.Struct, frozen=True):
    """One published batch."""

    #: Counts from 0 without a gap.
    seq: int
    payload: bytes


class Journal:
    """Numbers batches from 0 and keeps the last `window_batches` of them."""

    def __init__(self, encode: Callable[[EventBatch], bytes], *, dp_rank: int, window_batches: int) -> None:
        if window_batches < 0:
            raise ValueError(f"window_batches={window_batches} must be 0 or more")
        self._encode = encode
        self._dp_rank = dp_rank
        self._kept: deque[JournalEntry] = deque(maxlen=window_batches)
        #: Number that the next batch will get.
        self.next_seq = 0

    def append(self, events: tuple[Event, ...], ts_s: float) -> JournalEntry:
        """Number and encode the events of one step; `events` must not be empty."""
        if not events:
            raise ValueError("a batch without events takes no number")
        payload = self._encode(EventBatch(ts_s=ts_s, events=events, dp_rank=self._dp_rank))
        entry = JournalEntry(self.next_seq, payload)
        self.next_seq += 1
        self._kept.append(entry)
        return entry

    def replay_from(self, start_seq: int) -> tuple[JournalEntry, ...]:
        """The kept batches numbered `start_seq` or later, in order.

        The first one's number is above `start_seq` where older batches were dropped.
        """
        return tuple(entry for entry in self._kept if entry.seq >= start_seq)
