"""What a rank was given of late: a memory that outlives the requests themselves.

Agents pause between turns, so that at each decision nothing may be in flight anywhere. Without a memory every rank then
looks the same, however many sessions live on it.
"""

import math


class RecentSum:
    """A sum that forgets: what was added `memory_s` seconds ago still counts 1/e."""

    def __init__(self, *, memory_s: float) -> None:
        self._memory_s = memory_s
        self._sum = 0.0
        self._at_s = -math.inf

    def add(self, amount: float, now_s: float) -> None:
        """Adds an amount at a time; a time before the last one counts as the last."""
        self._sum = self.value(now_s) + amount
        self._at_s = max(self._at_s, now_s)

    def value(self, now_s: float) -> float:
        """The sum as it stands at a time."""
        if self._sum == 0.0:
            return 0.0
        return self._sum * math.exp(-max(0.0, now_s - self._at_s) / self._memory_s)


class RecentWork:
    """Work, requests and new tokens that one rank was given of late."""

    def __init__(self, *, memory_s: float) -> None:
        self._memory_s = memory_s
        self._work_s = RecentSum(memory_s=memory_s)
        self._requests = RecentSum(memory_s=memory_s)
        self._tokens = RecentSum(memory_s=memory_s)
        #: New tokens ever sent there: what it may hold, up to its capacity.
        self.filled_tokens = 0

    def record(self, *, work_s: float, new_tokens: int, now_s: float) -> None:
        """Notes one request."""
        self._work_s.add(work_s, now_s)
        self._requests.add(1.0, now_s)
        self._tokens.add(new_tokens, now_s)
        self.filled_tokens += new_tokens

    def busy_ratio(self, now_s: float) -> float:
        """Share of the time that this work keeps the rank busy, 0..1."""
        return min(1.0, self._work_s.value(now_s) / self._memory_s)

    def request_work_s(self, now_s: float) -> float:
        """Seconds of work in one request, on average."""
        requests = self._requests.value(now_s)
        return self._work_s.value(now_s) / requests if requests > 0 else 0.0

    def fill_tokens_per_s(self, now_s: float) -> float:
        """Speed at which new tokens arrive."""
        return self._tokens.value(now_s) / self._memory_s
