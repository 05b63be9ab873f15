"""Term `stall`: seconds by which the request's prefill holds up those that are served on a rank."""

from router.config.policy import Coefficients
from router.policy.base import PlacementQuery, RankView
from router.policy.reuse import ReuseTerm


class StallTerm:
    """Seconds: the request's own work there, once for each request that is served there.

    An engine that prefills gives no token meanwhile, or gives them more slowly while it prefills in chunks; each
    request that generates ends later by as much. So what a rank has to compute anew weighs more, the more it serves.
    Requests of others that still queue are left out: they wait for the engine, not for this request.
    """

    name = "stall"

    def __init__(self, coefficients: Coefficients) -> None:
        self._reuse = ReuseTerm(coefficients)

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds that the others lose."""
        return rank.served_requests * self._reuse.cost_s(query, rank) if rank.served_requests else 0.0
