"""Heads of prompts that many sessions begin with: which are hot, and how often they come. Bounded.

A session's first prompt is noted at 1, 2, 4, 8, ... blocks; its chained hash there stands for all before. The longest
noted head that other sessions began with too, often enough of late, is its hot head.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

from router.placement.places import note

#: Seconds after which a session that began counts 1/e.
MEMORY_S = 60.0
#: Sessions of late, this one left out, that make a head hot.
MIN_SESSIONS = 2.0
MAX_HEADS = 8_192


class HotHeads:
    """Counts of sessions by the heads they began with, the longest unused first."""

    def __init__(self, *, max_heads: int = MAX_HEADS) -> None:
        self._counts: OrderedDict[int, tuple[float, float]] = OrderedDict()
        self._max_heads = max_heads

    def __len__(self) -> int:
        return len(self._counts)

    def record(self, chain_hashes: Sequence[int], now_s: float) -> None:
        """A session began with this prompt."""
        for chain_hash in note(chain_hashes):
            count = self._find_count(chain_hash, now_s) + 1.0
            self._counts.pop(chain_hash, None)
            self._counts[chain_hash] = count, now_s
        while len(self._counts) > self._max_heads:
            self._counts.popitem(last=False)

    def find(self, chain_hashes: Sequence[int], block_tokens: int, now_s: float) -> tuple[int, float] | None:
        """Tokens of the prompt's hot head and sessions a second that begin with it; None where it has none."""
        found = None
        for place, chain_hash in enumerate(note(chain_hashes)):
            count = self._find_count(chain_hash, now_s)
            if count < MIN_SESSIONS:
                break
            found = (block_tokens << place), count / MEMORY_S
        return found

    def _find_count(self, chain_hash: int, now_s: float) -> float:
        counted = self._counts.get(chain_hash)
        if counted is None:
            return 0.0
        count, at_s = counted
        return count * math.exp((at_s - now_s) / MEMORY_S) if now_s > at_s else count
