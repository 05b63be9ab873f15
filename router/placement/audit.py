"""How decisions stood up: predicted against actual tokens and times, regret in hindsight, a second policy's opinion.

Sums and histograms only, bounded whatever comes; shown as metrics by `router.control.audit_metrics`.
"""

import math

import msgspec

from router.histogram import Histogram
from router.placement.accuracy import Accuracy
from router.policy.base import CostTable
from wire.ids import Target

#: Bounds of actual over predicted time to first token.
RATIO_BOUNDS = (0.125, 0.25, 0.5, 0.8, 1.25, 2.0, 4.0, 8.0)
#: Bounds of seconds by which one choice is worse than another.
SECONDS_BOUNDS = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ClassSums(msgspec.Struct):
    """What was predicted for the responses of one class, and what came."""

    responses: int = 0
    predicted_tokens: int = 0
    actual_tokens: int = 0
    #: Absolute differences, summed.
    error_tokens: int = 0
    #: Those whose first token was seen, and sums of theirs.
    timed_responses: int = 0
    predicted_ttft_s: float = 0.0
    actual_ttft_s: float = 0.0


class ShadowSums(msgspec.Struct):
    """How a second policy would have chosen."""

    agreed: int = 0
    differed: int = 0
    failed: int = 0
    #: Requests that it was not asked about, because it had taken its share of the time.
    skipped: int = 0


class Audit:
    """Everything summed up since the start."""

    def __init__(self) -> None:
        self.classes: dict[Accuracy, ClassSums] = {word: ClassSums() for word in Accuracy}
        self.ttft_ratio = Histogram(RATIO_BOUNDS)
        self.regret_s = Histogram(SECONDS_BOUNDS)
        self.shadow = ShadowSums()
        #: Seconds by the acting policy's own cost that the other choice would have been dearer.
        self.shadow_excess_s = Histogram(SECONDS_BOUNDS)

    def record_ttft(self, predicted_s: float, actual_s: float) -> None:
        """A first token came."""
        if predicted_s > 0:
            self.ttft_ratio.observe(actual_s / predicted_s)

    def record_class(
        self,
        accuracy: Accuracy,
        *,
        predicted_tokens: int,
        actual_tokens: int | None,
        predicted_ttft_s: float,
        actual_ttft_s: float | None,
    ) -> None:
        """A response was classed."""
        sums = self.classes[accuracy]
        sums.responses += 1
        if actual_tokens is not None:
            sums.predicted_tokens += predicted_tokens
            sums.actual_tokens += actual_tokens
            sums.error_tokens += abs(actual_tokens - predicted_tokens)
        if actual_ttft_s is not None:
            sums.timed_responses += 1
            sums.predicted_ttft_s += predicted_ttft_s
            sums.actual_ttft_s += actual_ttft_s

    def record_shadow(self, *, agrees: bool, excess_s: float | None) -> None:
        """A second policy chose."""
        if agrees:
            self.shadow.agreed += 1
        else:
            self.shadow.differed += 1
        if excess_s is not None:
            self.shadow_excess_s.observe(max(0.0, excess_s))


def find_regret_s(costs: CostTable, target: Target, added_s: float) -> float:
    """Seconds by which the best other rank was cheaper than the one chosen, now that its real reuse is known.

    Args:
        costs: As reckoned at the decision.
        target: Rank chosen.
        added_s: Seconds that it costs more than reckoned; below 0 where it held more.
    """
    if added_s <= 0.0 and not costs.prefills and costs.totals_s[costs.targets.index(target)] <= min(costs.totals_s):
        return 0.0
    chosen_s = 0.0
    best_other_s = math.inf
    for name, total_s in zip(costs.targets, costs.totals_s, strict=True):
        if name == target:
            chosen_s = total_s + added_s
        else:
            best_other_s = min(best_other_s, total_s)
    return max(0.0, chosen_s - best_other_s) if best_other_s < math.inf else 0.0
