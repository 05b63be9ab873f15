"""Term `decode`: seconds by which the request and those that generate on a rank slow each other."""

from router.config_policy import Coefficients
from router.policy.base import PlacementQuery, RankView
from router.policy.steps import added_step_s

#: Output of the request for which floors are reckoned.
_FLOOR_OUTPUT_TOKENS = 256


class DecodeTerm:
    """Seconds: the slow-down of those generating there, plus the request's own inter-token time over its output.

    A step slows with the number of requests, with the tokens they attend to, and with the share of the KV cache that
    these fill (`added_step_s`). Of the own time only what the others there add is counted. The rest (a step alone, its
    own context) is the same on every rank; left in, it would only widen the window in which costs count as tied.
    """

    name = "decode"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds lost to each other."""
        if not rank.decoding_requests:
            return 0.0
        ratio = query.decode_ratio * rank.decode_ratio
        return ratio * self._slow_down_s(rank, query.prompt_tokens, query.expected_output_tokens)

    def floor_s(self, rank: RankView) -> float:
        """As `cost_s`, for the shortest prompt and a usual output, at the fleet's predicted pace."""
        if not rank.decoding_requests:
            return 0.0
        return rank.decode_ratio * self._slow_down_s(rank, 0, _FLOOR_OUTPUT_TOKENS)

    def floor_ratio(self, query: PlacementQuery) -> float:
        """Share of `floor_s` that a query costs at least: the slow-down grows with prompt and output."""
        return query.decode_ratio * min(1.0, query.expected_output_tokens / _FLOOR_OUTPUT_TOKENS)

    def _slow_down_s(self, rank: RankView, prompt_tokens: int, output_tokens: int) -> float:
        costs, capacity = self._coefficients, rank.capacity_tokens
        mine_s = added_step_s(1, prompt_tokens, capacity, costs)
        shared_tokens = min(rank.remaining_output_tokens, rank.decoding_requests * output_tokens)
        others_s = added_step_s(rank.decoding_requests, rank.context_tokens, capacity, costs)
        return mine_s * shared_tokens + others_s * output_tokens
