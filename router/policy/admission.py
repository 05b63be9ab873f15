"""Term `admission`: seconds until a rank has room in its KV cache for the request."""

from router.config.policy import Coefficients
from router.policy.base import PlacementQuery, RankView
from router.policy.steps import added_step_s


class AdmissionTerm:
    """Seconds: time in which running requests end and leave room for what is missing.

    An engine starts a request when the tokens of its prompt fit beside those of all that run; cached tokens that nobody
    uses give way. What is missing is `open tokens + prompt + output - capacity`. Running requests free `open tokens` in
    the time they still need on average, so the missing tokens take their share of it, more than once where a queue
    stands already. Without a known capacity, or on an idle rank, it is 0.
    """

    name = "admission"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds until it is admitted, beside the work ahead."""
        output = query.expected_output_tokens
        return query.decode_ratio * self._room_s(rank, query.prompt_tokens + output, output)

    def _room_s(self, rank: RankView, needed_tokens: int, output_tokens: int) -> float:
        if not rank.capacity_tokens or rank.open_tokens <= 0 or not rank.open_requests:
            return 0.0
        missing_tokens = rank.open_tokens + needed_tokens - rank.capacity_tokens
        if missing_tokens <= 0:
            return 0.0
        waiting = max(0, rank.open_requests - rank.decoding_requests)
        left_tokens = (rank.remaining_output_tokens + waiting * output_tokens) / rank.open_requests
        costs = self._coefficients
        step_s = costs.decode_step_s + added_step_s(
            rank.decoding_requests, rank.context_tokens, rank.capacity_tokens, costs, rank.context_ratio
        )
        return rank.decode_ratio * left_tokens * step_s * missing_tokens / rank.open_tokens
