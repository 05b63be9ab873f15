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
    #: Places that a window or recurrent group, or another tier, gained and lost.
    gained: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    #: Everything went: a flush, a restart, a lost connection.
    cleared: bool = False


class _Entry(msgspec.Struct, frozen=True):
    at_s: float
    change: Change
    #: What it touched was stored, not removed.
    is_gain: bool


class ChangeLog:
    """The last changes of one rank, numbered from 0."""

    def __init__(self, *, max_changes: int = MAX_CHANGES, max_hashes: int = MAX_HASHES) -> None:
        self._max_changes = max_changes
        self._max_hashes = max_hashes
        self._entries: deque[_Entry] = deque()
        self._hashes = 0
        #: Number the next change gets.
        self.position = 0

    def record(self, change: Change, now_s: float, *, is_gain: bool = True) -> None:
        """Append a change that did something; `is_gain` tells whether a store touched what it touched."""
        if not (change.stored or change.removed or change.touched or change.cleared):
            return
        self._entries.append(_Entry(now_s, change, is_gain))
        self._hashes += _hash_count(change)
        self.position += 1
        while len(self._entries) > self._max_changes or (self._hashes > self._max_hashes and len(self._entries) > 1):
            self._hashes -= _hash_count(self._entries.popleft().change)

    def find_since(self, position: int, until_s: float) -> Evidence:
        """What changed from `position` on and not after `until_s`; of what fell out, nothing."""
        skipped = max(0, position - (self.position - len(self._entries)))
        entries = [entry for entry in islice(self._entries, skipped, None) if entry.at_s <= until_s]
        return Evidence(
            stored=frozenset(block for entry in entries for block in entry.change.stored),
            removed=frozenset(block for entry in entries for block in entry.change.removed),
            gained=frozenset(block for entry in entries if entry.is_gain for block in entry.change.touched),
            lost=frozenset(block for entry in entries if not entry.is_gain for block in entry.change.touched),
            cleared=any(entry.change.cleared for entry in entries),
        )


def _hash_count(change: Change) -> int:
    return len(change.stored) + len(change.removed) + len(change.touched)
