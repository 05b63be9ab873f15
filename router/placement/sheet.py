"""The costs of all ranks of a small fleet, reckoned when someone asks for them: a decision itself looks at few."""

import math

import msgspec

from router.placement.shortlist import BoundedPolicy
from router.placement.views import ViewNote
from router.policy.base import CostTable, PlacementQuery


class Sheet(msgspec.Struct, frozen=True):
    """What the costs of one decision are reckoned from, as it stood then."""

    policy: BoundedPolicy
    query: PlacementQuery
    #: Of each rank that could be chosen.
    notes: tuple[ViewNote, ...]

    def costs(self) -> CostTable:
        """What each rank cost."""
        return self.policy.tabulate(self.query, [note.view() for note in self.notes])

    def find_least_unseen_s(self, seen: CostTable) -> float:
        """The lowest cost of a rank that was not looked at; infinite where all were."""
        views = [note.view() for note in self.notes if note.standing.target not in seen.targets]
        totals_s = [self.policy.total_s(self.query, view) for view in views]
        if not all(map(math.isfinite, totals_s)):
            # What is no number is replaced by a figure of the other ranks.
            costs = self.costs()
            pairs = zip(costs.targets, costs.totals_s, strict=True)
            totals_s = [total_s for target, total_s in pairs if target not in seen.targets]
        return min(totals_s, default=math.inf)
