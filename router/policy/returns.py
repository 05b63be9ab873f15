"""Term `returns`: seconds by which the request and sessions that pause on a rank will slow each other."""

import math

from router.config.policy import Coefficients
from router.policy.base import PlacementQuery, RankView
from router.policy.steps import context_token_s


class ReturnsTerm:
    """Seconds: for each session that lives there and pauses, what `decode` would count, times how likely it is back.

        (1 - exp(-rate * D)) * T / 2 * sum over s of (2 * c_req + c_ctx * (tokens_s + prompt))

    `D` are the seconds that the answer takes to generate, `rate` the returns of a paused session a second as seen of
    late. One that returns while the answer is under way meets half of it on average, hence `T / 2`, with `T` the tokens
    that two answers have in common which begin together. At its home the session itself is left out.
    """

    name = "returns"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds lost to each other."""
        sessions, tokens = rank.paused_sessions, rank.paused_tokens
        if query.pauses_at_home and rank.target == query.home:
            sessions, tokens = max(0, sessions - 1), max(0, tokens - query.home_tokens)
        if not sessions:
            return 0.0
        costs = self._coefficients
        pace = query.decode_ratio * rank.decode_ratio
        generating_s = query.expected_output_tokens * pace * costs.decode_step_s
        met_ratio = (1.0 - math.exp(-query.return_rate_per_s * generating_s)) / 2
        token_s = context_token_s(rank.capacity_tokens, costs, rank.context_ratio)
        attended_s = (tokens + sessions * query.prompt_tokens) * token_s
        request_s = 2 * costs.decode_s_per_request * sessions
        return pace * met_ratio * query.joint_output_tokens * (request_s + attended_s)
