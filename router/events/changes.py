"""What happened to a rank's cache lately, so that a wrong prediction can be explained or not. Pure.

Changes go in as they are applied, each at its time; asked for a span, it gives what was stored and removed in
it. Bounded: what fell out is said to be unknown, never guessed.
"""

from collections import deque
from itertools import islice

import msgspec

from prefix_index.base import Change

MAX_CHANGES = 8_192
MAX_HASHES = 262_144


class Evidence(msgspec.Struct, frozen=True):
    """Blocks of one rank that came and went within a span."""

    stored: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()
    #: Everything went: a flush, a restart, a lost connection.
    cleared: bool = False


class ChangeLog:
    """The last changes of one rank, numbered from 0."""

    def __init__(self, *, max_changes: int = MAX_CHANGES, max_hashes: int = MAX_HASHES) -> None:
        self._max_changes = max_changes
        self._max_hashes = max_hashes
        self._entries: deque[tuple[float, Change]] = deque()
        self._hashes = 0
        #: Number the next change gets.
        self.position = 0

    def record(self, change: Change, now_s: float) -> None:
        """Append a change that did something."""
        if not (change.stored or change.removed or change.cleared):
            return
        self._entries.append((now_s, change))
        self._hashes += _hash_count(change)
        self.position += 1
        while len(self._entries) > self._max_changes or (self._hashes > self._max_hashes and len(self._entries) > 1):
            _, dropped = self._entries.popleft()
            self._hashes -= _hash_count(dropped)

    def find_since(self, position: int, until_s: float) -> Evidence:
        """What changed from `position` on and not after `until_s`; of what fell out, nothing."""
        skipped = max(0, position - (self.position - len(self._entries)))
        entries = [change for at_s, change in islice(self._entries, skipped, None) if at_s <= until_s]
        return Evidence(
            stored=frozenset(block for change in entries for block in change.stored),
            removed=frozenset(block for change in entries for block in change.removed),
            cleared=any(change.cleared for change in entries),
        )


def _hash_count(change: Change) -> int:
    return len(change.stored) + len(change.removed)
