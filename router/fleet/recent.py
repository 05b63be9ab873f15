"""What a rank was given of late: a memory that outlives the requests themselves.

Agents pause between turns, so that at each decision nothing may be in flight anywhere. Without a memory every rank then
looks the same, however many sessions live on it.
"""

import math

import msgspec


class RecentShare(msgspec.Struct, frozen=True):
    """A memory at one moment."""

    #: Seconds of work given to it, the older the less.
    work_s: float = 0.0
    #: Share of the time that this work keeps it busy, 0..1.
    busy_ratio: float = 0.0
    #: Seconds of work in one request, on average.
    request_work_s: float = 0.0
    #: Speed at which new tokens arrive.
    fill_tokens_per_s: float = 0.0


_NOTHING = RecentShare()


class RecentWork:
    """Work, requests and new tokens that a rank, or the fleet, was given of late.

    Sums that forget: what came `memory_s` seconds ago still counts 1/e. A time before the last one counts as the last.
    """

    def __init__(self, *, memory_s: float) -> None:
        self.memory_s = memory_s
        #: Sums as of `at_s`.
        self.work_s = 0.0
        self.requests = 0.0
        self.tokens = 0.0
        self.at_s = -math.inf
        #: New tokens ever sent there: what it may hold, up to its capacity.
        self.filled_tokens = 0

    def record(self, *, work_s: float, new_tokens: int, now_s: float) -> None:
        """Notes one request."""
        kept_ratio = 1.0
        if now_s > self.at_s:
            # As `_kept_ratio`; recorded for each request, twice.
            kept_ratio = math.exp((self.at_s - now_s) / self.memory_s)
            self.at_s = now_s
        self.work_s = self.work_s * kept_ratio + work_s
        self.requests = self.requests * kept_ratio + 1.0
        self.tokens = self.tokens * kept_ratio + new_tokens
        self.filled_tokens += new_tokens

    def share(self, now_s: float) -> RecentShare:
        """What is remembered at a time."""
        if not self.requests:
            return _NOTHING
        kept_ratio = self._kept_ratio(now_s)
        work_s = self.work_s * kept_ratio
        return RecentShare(
            work_s,
            min(1.0, work_s / self.memory_s),
            self.work_s / self.requests,
            self.tokens * kept_ratio / self.memory_s,
        )

    @property
    def request_work_s(self) -> float:
        """Seconds of work in one request, on average of late; 0 while there was none."""
        return self.work_s / self.requests if self.requests else 0.0

    def _kept_ratio(self, now_s: float) -> float:
        """What is left of the sums since they were written."""
        return math.exp(-max(0.0, now_s - self.at_s) / self.memory_s)
