"""How fast the fleet really is: measured seconds over predicted ones, learned from single requests."""

import math

#: The ratio stays within 1/64 and 64, whatever is measured.
MAX_LOG_RATIO = math.log(64.0)
#: One measurement moves the logarithm by this much at most, before it is averaged in.
MAX_LOG_STEP = 1.0
#: Weight of a measurement once many were seen.
SLOWEST_LEARNING_RATIO = 0.05


class Pace:
    """A ratio that scales predicted seconds; starts at 1, bounded, and deaf to single outliers."""

    def __init__(self) -> None:
        self._log_ratio = 0.0
        #: Measurements taken in.
        self.measurements = 0

    @property
    def ratio(self) -> float:
        """Measured over predicted seconds."""
        return math.exp(self._log_ratio)

    def record(self, *, predicted_s: float, measured_s: float) -> None:
        """Takes one measurement in. `predicted_s` is without the ratio; either at or below zero is passed over."""
        if not (0 < predicted_s < math.inf and 0 < measured_s < math.inf):
            return
        self.measurements += 1
        weight = max(SLOWEST_LEARNING_RATIO, 1.0 / (1.0 + self.measurements))
        step = math.log(measured_s) - math.log(predicted_s) - self._log_ratio
        bound = MAX_LOG_STEP if self.measurements > 4 else MAX_LOG_RATIO
        moved = self._log_ratio + weight * min(max(step, -bound), bound)
        self._log_ratio = min(max(moved, -MAX_LOG_RATIO), MAX_LOG_RATIO)
