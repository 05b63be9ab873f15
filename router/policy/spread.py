"""Term `spread`: credit for one more copy of a head that many sessions share."""

from router.config.policy import Coefficients
from router.policy.base import HotHead, PlacementQuery, RankView
from router.policy.prefill import prefill_s

#: A copy is not reckoned to live longer than this, in seconds.
_LONGEST_LIFE_S = 60.0


class SpreadTerm:
    """Seconds, negative: requests that a copy on this rank will serve, times the wait each is spared.

    Requests with the head arrive at a known rate and share its copies. Each spares the wait on the idlest rank that has
    it now, less that on this one, for as long as this rank's cache keeps a token. No credit where the rank has the
    head, beyond `max_copies`, or for a session with a home; never more than the head's own prefill, so that a copy is
    never better than free.
    """

    name = "spread"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds won, as a negative cost."""
        head = query.head
        if head is None or head.copies >= self._coefficients.max_copies or rank.usable_overlap_tokens >= head.tokens:
            return 0.0
        spared_s = max(0.0, head.least_wait_s - rank.own_wait_s - rank.foreign_wait_s)
        life_s = _LONGEST_LIFE_S if rank.cache_age_s is None else min(rank.cache_age_s, _LONGEST_LIFE_S)
        served = head.requests_per_s * life_s / (head.copies + 1)
        return -min(served * spared_s, self._head_s(query, head))

    def _head_s(self, query: PlacementQuery, head: HotHead) -> float:
        return query.prefill_ratio * prefill_s(head.tokens, head.tokens, self._coefficients)
