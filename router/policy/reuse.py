"""Term `reuse`: seconds until the rank has what the prompt needs: prefill, or fetching what lies in other tiers."""

from router.config.policy import Coefficients
from router.policy.base import PlacementQuery, RankView
from router.policy.prefill import prefill_s


class ReuseTerm:
    """Seconds: the least, over the ways to serve the prompt, of fetching and `prefill(u, L)` at the measured pace.

    `u` are the tokens of `L` that are computed: those not reused, and those computed again for windows and recurrent
    layers where the engine does that. A way whose bytes are not known is left out.
    """

    name = "reuse"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds of fetching and prefill."""
        least_s = self._prefill_s(query, rank, query.prompt_tokens - rank.usable_overlap_tokens)
        for option in rank.options:
            load_s = option.find_load_s(rank.links)
            if load_s is not None and (rank.links.recomputes or not option.recompute_tokens):
                computed = query.prompt_tokens - option.reuse_tokens + option.recompute_tokens
                least_s = min(least_s, load_s + self._prefill_s(query, rank, computed))
        return least_s

    def _prefill_s(self, query: PlacementQuery, rank: RankView, uncached_tokens: int) -> float:
        ratio = query.prefill_ratio * rank.prefill_ratio
        return ratio * prefill_s(uncached_tokens, query.prompt_tokens, self._coefficients, query.attention_ratio)
