"""Power of two choices: two ranks drawn at random, the one with fewer requests wins."""

from collections.abc import Sequence

import xxhash

from router.config.policy import Coefficients
from router.policy.base import Choice, PlacementQuery, RankView, build_table

_MASK_64 = (1 << 64) - 1


class PowerOfTwo:
    """The less loaded of two; the same seed gives the same row of draws. The cache is not looked at."""

    name = "power_of_two"

    def __init__(self, coefficients: Coefficients) -> None:
        self.coefficients = coefficients
        self._draws = 0

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """The first drawn where both have as many."""
        self._draws += 1
        draw = xxhash.xxh3_64_intdigest(self._draws.to_bytes(8, "little"), seed=seed & _MASK_64)
        first = draw % len(ranks)
        second = (first + 1 + (draw >> 32) % max(1, len(ranks) - 1)) % len(ranks)
        chosen = min(first, second, key=lambda place: (ranks[place].open_requests, place != first))
        costs = build_table(query, ranks, [float(rank.open_requests) for rank in ranks])
        reason = f"fewer requests than {ranks[first if chosen == second else second].target}: "
        return Choice(target=ranks[chosen].target, costs=costs, reason=reason + str(ranks[chosen].open_requests))
