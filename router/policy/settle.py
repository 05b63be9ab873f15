"""Term `settle`: seconds that the further turns of a session lose on a rank, by the sessions that live there."""

import math

from router.config.policy import Coefficients
from router.policy.balance import token_s
from router.policy.base import PlacementQuery, RankView


class SettleTerm:
    """Seconds: what one more session costs the sessions of a rank, itself included, over its `future_turns`.

    Sessions come back to their rank, so a rank carries the tokens of all its live ones (`W`) while nothing runs. Of
    them a cache of `M` tokens loses `m(W) = W * exp(-x * M / W)` between two turns (`x` is `working_set_factor`): next
    to nothing while they fit, most when they do not. A new session of `n` tokens adds `m(W + n) - m(W)` tokens of
    prefill a turn. Besides, each turn waits half a request's work in the share of time that the rank is busy, and
    `crowding_ratio` of it where the rank has twice the average of live sessions.

    A session with a home counts `rebalance_ratio` of it, at home without its own tokens; a request without a session
    counts its own turn only.
    """

    name = "settle"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds lost later."""
        turns = self._turns(query)
        if turns <= 0:
            return 0.0
        live_tokens = rank.live_tokens
        if query.home is not None and rank.target == query.home:
            live_tokens = max(0, live_tokens - query.home_tokens)
        lost_tokens = 0.0
        if rank.capacity_tokens and query.session is not None:
            session_tokens = query.prompt_tokens + query.expected_output_tokens
            after = self._lost_tokens(live_tokens + session_tokens, rank.capacity_tokens)
            lost_tokens = max(0.0, after - self._lost_tokens(live_tokens, rank.capacity_tokens))
        excess_ratio = 0.0
        if query.mean_live_sessions > 0:
            sessions = rank.live_sessions - (query.home_tokens > 0 and rank.target == query.home)
            excess_ratio = min(max(sessions / query.mean_live_sessions - 1.0, 0.0), 1.0)
        waiting_ratio = rank.busy_ratio / 2 + self._coefficients.crowding_ratio * excess_ratio
        lost_s = lost_tokens * token_s(query, rank, self._coefficients) if lost_tokens else 0.0
        return turns * (lost_s + waiting_ratio * query.request_work_s)

    def _turns(self, query: PlacementQuery) -> float:
        turns = 1.0 if query.session is None else 1.0 + self._coefficients.future_turns
        return turns if query.home is None else turns * self._coefficients.rebalance_ratio

    def _lost_tokens(self, live_tokens: float, capacity_tokens: int) -> float:
        """Tokens that no longer are there a turn later, of so many live ones."""
        if live_tokens <= 0:
            return 0.0
        return live_tokens * math.exp(-self._coefficients.working_set_factor * capacity_tokens / live_tokens)
