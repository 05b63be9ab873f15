"""The costs of all ranks of a small fleet, reckoned when someone asks for them: a decision itself looks at few."""

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
