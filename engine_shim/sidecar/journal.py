"""The numbered batches of one mirror, and the last of them for replay. Pure; bounded in batches and bytes."""

from collections import deque
from itertools import takewhile

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """One published batch."""

    #: Counts from 0 without a gap.
    seq: int
    topic: str
    payload: bytes


class Journal:
    """Numbers batches from 0 and keeps the last of them."""

    def __init__(self, *, max_batches: int, max_bytes: int) -> None:
        self._max_batches = max_batches
        self._max_bytes = max_bytes
        self._kept: deque[Entry] = deque()
        #: Bytes of the payloads that are kept.
        self.size_bytes = 0
        #: Number that the next batch will get.
        self.next_seq = 0

    def append(self, topic: str, payload: bytes) -> Entry:
        """Number and keep a batch; the oldest are forgotten when there are too many."""
        entry = Entry(self.next_seq, topic, payload)
        self.next_seq += 1
        self._kept.append(entry)
        self.size_bytes += len(payload)
        while len(self._kept) > self._max_batches or (self.size_bytes > self._max_bytes and len(self._kept) > 1):
            self.size_bytes -= len(self._kept.popleft().payload)
        return entry

    def replay_from(self, start_seq: int) -> tuple[Entry, ...]:
        """The kept batches numbered `start_seq` or later, in order; those that are forgotten are not missed here."""
        found = list(takewhile(lambda entry: entry.seq >= start_seq, reversed(self._kept)))
        return tuple(reversed(found))
