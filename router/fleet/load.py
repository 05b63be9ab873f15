"""A rank's load as the engine reports it, told apart from what this router placed there itself.

The two are never kept in one field: what the router placed is its ledger's; what others placed is what the report shows
above that, at the time of the report.
"""

import msgspec

#: Larger counts come from broken peers and are cut to it.
MAX_COUNT = 1 << 40


class OwnLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What this router itself had on a rank at one moment."""

    #: Requests placed and not ended.
    open_requests: int = 0
    #: Uncached prompt tokens still to be computed.
    waiting_tokens: int = 0


class ReportedLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of one rank. Counts are within 0 and `MAX_COUNT`; None where the engine does not say."""

    #: When it was taken.
    reported_at_s: float
    #: Requests being prefilled or decoded.
    running_requests: int
    #: Requests queued.
    waiting_requests: int
    #: Prompt tokens queued and not found in the cache.
    waiting_tokens: int | None
    #: Tokens of the KV pool in use.
    used_tokens: int | None
    #: Size of the KV pool.
    capacity_tokens: int | None
    #: What this router had there at that moment.
    own: OwnLoad
    #: Seconds of prefill that a queued token takes, as known at that moment.
    s_per_token: float = 0.0
    #: Others may have something there.
    has_foreign: bool = True

    def age_s(self, now_s: float) -> float:
        """Seconds since the report."""
        return max(0.0, now_s - self.reported_at_s)

    def looks_like(self, other: "ReportedLoad") -> bool:
        """Whether a later report tells nothing new: nothing of others in either, the cache as it was."""
        mine, theirs = self.foreign_requests(), other.foreign_requests()
        waiting = self.foreign_waiting_tokens(0), other.foreign_waiting_tokens(0)
        same_cache = (self.used_tokens, self.capacity_tokens) == (other.used_tokens, other.capacity_tokens)
        return same_cache and not (mine or theirs or any(waiting))

    def foreign_requests(self) -> int:
        """Requests there that others placed."""
        return max(0, self.running_requests + self.waiting_requests - self.own.open_requests)

    def foreign_waiting_tokens(self, request_tokens: int) -> int:
        """Prompt tokens queued there that others placed.

        An engine that only counts requests is taken to queue `request_tokens` in each.
        """
        if self.waiting_tokens is None:
            return min(self.waiting_requests, self.foreign_requests()) * request_tokens
        return max(0, self.waiting_tokens - self.own.waiting_tokens)


def bound_count(count: int | None) -> int | None:
    """A count from a peer, cut to what can be true; None stays None."""
    return None if count is None else min(max(count, 0), MAX_COUNT)
