"""Term `wait`: predicted seconds of work ahead of the request on a rank."""

from router.policy.base import PlacementQuery, RankView


class WaitTerm:
    """Seconds: this router's own reservations there, as they stand now, and what others placed.

    Own work comes from the ledger and shrinks as it is done. Foreign work is what the last report showed above the own
    at the report's time, shrinking with its age.
    """

    name = "wait"

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:  # noqa: ARG002 - the same for every request
        """Seconds of work ahead."""
        return rank.own_wait_s + rank.foreign_wait_s
