"""What one event changed in full attention, for whoever keeps sums over all ranks. Pure."""

from collections import Counter
from collections.abc import Iterable

from prefix_index.base import Change


class Delta:
    """What one event changed."""

    def __init__(self) -> None:
        self.gained: list[int] = []
        self.lost: list[int] = []
        self.touched: list[int] = []
        self.orphaned = 0
        self.unknown = 0
        self.refused = 0

    def settle(self) -> tuple[list[int], list[int]]:
        """Places that are gone in the end, and those that came; one that came and went within the event is neither."""
        if self.lost and self.gained:
            lost, gained = Counter(self.lost), Counter(self.gained)
            return list((lost - gained).elements()), list((gained - lost).elements())
        return self.lost, self.gained

    def to_change(self, evicted: Iterable[int]) -> Change:
        """As callers see it; `evicted` went for want of room."""
        return Change(
            stored=tuple(self.gained),
            removed=(*self.lost, *evicted),
            touched=tuple(self.touched),
            orphaned=self.orphaned,
            unknown_removals=self.unknown,
            refused=self.refused,
        )
