"""How often values were at most as large as each bound: counted by whoever sees them, shown by `router.tally`. Pure."""

import math
from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts by bound, each with what is at most as large; what is larger than all stands last."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Takes a value in; what is no number is passed over."""
        if math.isfinite(value):
            self.counts[bisect_left(self.bounds, value)] += 1
            self.sum += value
