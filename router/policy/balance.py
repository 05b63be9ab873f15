"""Term `balance`: seconds that later requests lose by what this one pushes out of the cache."""

from router.config.policy import Coefficients
from router.policy.base import PlacementQuery, RankView


class BalanceTerm:
    """Seconds: tokens pushed out, times the probability that they are asked for again, times prefill seconds a token.

    Pushed out are the new tokens beyond free space. The oldest go first; how likely a token of that age is asked for
    again comes from the pauses seen on that rank (`router.fleet.ages`). Unknown capacity: nothing is pushed out.
    Bounded by the prefill of the new tokens.
    """

    name = "balance"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds lost later."""
        if rank.capacity_tokens is None or rank.eviction_reuse_ratio <= 0:
            return 0.0
        new_tokens = query.prompt_tokens - rank.usable_overlap_tokens + query.expected_output_tokens
        free_tokens = max(0, rank.capacity_tokens - rank.resident_tokens)
        evicted_tokens = min(max(0, new_tokens - free_tokens), rank.capacity_tokens)
        return evicted_tokens * rank.eviction_reuse_ratio * token_s(query, rank, self._coefficients)


def token_s(query: PlacementQuery, rank: RankView, coefficients: Coefficients) -> float:
    """Seconds of prefill for one token in the middle of a prompt like this one."""
    pair_s = coefficients.attention_s_per_token_pair * query.attention_ratio
    attended_s = pair_s * query.prompt_tokens / 2
    return query.prefill_ratio * rank.prefill_ratio * (coefficients.prefill_s_per_token + attended_s)
