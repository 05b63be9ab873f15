"""How long an engine's steps take. The forms that engine models are made of; pure."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from engine_shim.engine.admission.admission import PlannedRow


class StepTimes(Struct, frozen=True, gc=False):
    """Durations of like steps in a row: the i-th takes `first_s + growth_s * i + curve_s * i * i`, i from 0."""

    first_s: float
    growth_s: float = 0.0
    curve_s: float = 0.0
    #: How many steps it holds for; None for any number.
    steps: int | None = None

    def sum_s(self, steps: int) -> float:
        """Seconds of the first `steps` of them."""
        if steps == 1:
            return self.first_s
        pairs = steps * (steps - 1)
        return steps * self.first_s + self.growth_s * pairs / 2 + self.curve_s * pairs * (2 * steps - 1) / 6

    def count_begun(self, elapsed_s: float, steps: int) -> int:
        """Steps, of `steps`, that have begun after so many seconds; at least 1. Durations are not negative."""
        low, high = 1, steps
        while low < high:
            middle = (low + high) // 2
            if self.sum_s(middle) >= elapsed_s:
                high = middle
            else:
                low = middle + 1
        return low


class EngineTimes(Protocol):
    """One engine's clock."""

    def measure(self, rows: Sequence[PlannedRow]) -> StepTimes:
        """How long these rows take together, and the like steps after them, each a token longer."""
        ...
