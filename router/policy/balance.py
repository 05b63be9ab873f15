"""Term `balance`: seconds that later requests lose by this choice."""

import math

from router.config import Coefficients
from router.policy.base import PlacementQuery, RankView


class BalanceTerm:
    """Seconds: what is pushed out of the cache and asked for again, and what a session will wait for on a busy rank.

    Pushed out are the new tokens beyond free space. The oldest go first, and their age is the time the rank takes to
    fill; the probability that they would have been reused falls exponentially with that age. Unknown capacity: nothing
    is pushed out.

    A request that has no home yet settles a session, whose further turns meet the work that others have there. Each
    turn waits for half a request's work in the share of time that the rank is busy, and for `crowding_ratio` of a
    request's work where the rank was given twice the average of late: that spreads sessions even while nobody waits,
    before a shared head gathers them all on the first rank that held it.

    Bounded: at most `reuse_probability` times the prefill of the new tokens, plus `1/2 + crowding_ratio` of a request's
    work for each turn.
    """

    name = "balance"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds lost later."""
        return self._eviction_s(query, rank) + self._crowding_s(query, rank)

    def _eviction_s(self, query: PlacementQuery, rank: RankView) -> float:
        if rank.capacity_tokens is None or rank.fill_tokens_per_s <= 0:
            return 0.0
        new_tokens = query.prompt_tokens - rank.usable_overlap_tokens + query.expected_output_tokens
        free_tokens = max(0, rank.capacity_tokens - rank.resident_tokens)
        evicted_tokens = max(0, new_tokens - free_tokens)
        age_s = rank.capacity_tokens / rank.fill_tokens_per_s
        coefficients = self._coefficients
        probability = coefficients.reuse_probability * math.exp(-age_s / coefficients.reuse_decay_s)
        attended_s = coefficients.attention_s_per_token_pair * query.prompt_tokens / 2
        return evicted_tokens * probability * query.prefill_ratio * (coefficients.prefill_s_per_token + attended_s)

    def _crowding_s(self, query: PlacementQuery, rank: RankView) -> float:
        if query.home is not None:
            return 0.0
        coefficients = self._coefficients
        turns = 1.0 if query.session is None else 1.0 + coefficients.future_turns
        waiting_ratio = rank.busy_ratio / 2 + coefficients.crowding_ratio * _excess_ratio(query, rank)
        return turns * waiting_ratio * rank.request_work_s


def _excess_ratio(query: PlacementQuery, rank: RankView) -> float:
    """Work above the average of the candidates, as a share of that average; 0..1."""
    if query.mean_recent_work_s <= 0:
        return 0.0
    return min(max(rank.recent_work_s / query.mean_recent_work_s - 1.0, 0.0), 1.0)
