"""Term `reuse`: seconds of prefill for what the rank does not hold."""

from router.config import Coefficients
from router.policy.base import PlacementQuery, RankView
from router.policy.prefill import prefill_s


class ReuseTerm:
    """Seconds: `prefill(u, L)` of the `u` uncached tokens among the `L` of the prompt, at the measured pace."""

    name = "reuse"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds of prefill."""
        uncached_tokens = query.prompt_tokens - rank.usable_overlap_tokens
        return query.prefill_ratio * prefill_s(uncached_tokens, query.prompt_tokens, self._coefficients)
