"""Term `decode`: seconds by which the request and those that generate on a rank slow each other."""

from router.config import Coefficients
from router.policy.base import PlacementQuery, RankView


class DecodeTerm:
    """Seconds: the slow-down of those generating there, plus the request's own inter-token time over its output.

    Of the own time only what the others there add is counted. The rest (a step alone, its own context) is the same on
    every rank; left in, it would only widen the window in which costs count as tied.
    """

    name = "decode"

    def __init__(self, coefficients: Coefficients) -> None:
        self._request_s = coefficients.decode_s_per_request
        self._context_token_s = coefficients.decode_s_per_context_token

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds lost to each other."""
        output_tokens = query.expected_output_tokens
        added_step_s = self._request_s + self._context_token_s * query.prompt_tokens
        shared_tokens = min(rank.remaining_output_tokens, rank.decoding_requests * output_tokens)
        others_step_s = self._request_s * rank.decoding_requests + self._context_token_s * rank.context_tokens
        return query.decode_ratio * (added_step_s * shared_tokens + others_step_s * output_tokens)
