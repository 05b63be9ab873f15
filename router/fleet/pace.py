"""How fast the fleet and each of its workers really are: measured seconds over predicted ones, from single requests.

    prefill = fleet ratio * worker ratio * (linear + attention ratio * attention)
    decode step = fleet ratio * worker ratio * (base + context ratio * context)

Each ratio is bounded and deaf to single outliers. A worker's own ratio counts by how many
measurements it rests on and how old these are, else the fleet's does: a worker that was priced too dear gets no
requests that could tell, so time must give it another chance.
"""

import math

import msgspec

from wire.ids import WorkerId

#: The ratio stays within 1/64 and 64, whatever is measured.
MAX_LOG_RATIO = math.log(64.0)
LEAST_RATIO = math.exp(-MAX_LOG_RATIO)
#: One measurement moves the logarithm by this much at most, before it is averaged in.
MAX_LOG_STEP = 1.0
#: Weight of a measurement once many were seen.
SLOWEST_LEARNING_RATIO = 0.05
#: Measurements that are taken as they come; those after them move a pace within `MAX_LOG_STEP`.
FIRST_MEASUREMENTS = 4
#: Measurements after which a worker's own ratio counts as much as the fleet's.
PRIOR_MEASUREMENTS = 16.0
#: Seconds in which a worker's measurements lose all but 1/e of their weight.
FORGET_S = 300.0
#: The context's ratio is told to views once it is off by this logarithm (22%): they are all made anew then.
CONTEXT_LOG_STEP = 0.2
#: Workers' ratios go in steps of this logarithm (6%), so that ranks alike in everything stay alike.
LOG_STEP = 1 / 16


class Pace:
    """A ratio that scales predicted seconds; starts at 1, bounded, and deaf to single outliers."""

    def __init__(self) -> None:
        self._log_ratio = 0.0
        #: Measured over predicted seconds.
        self.ratio = 1.0
        #: Measurements taken in, each by its share.
        self.measurements = 0.0

    @property
    def is_settled(self) -> bool:
        """Whether it has its first measurements, so that one alone moves it little."""
        return self.measurements > FIRST_MEASUREMENTS

    def record(self, *, predicted_s: float, measured_s: float, share: float = 1.0) -> None:
        """Takes one measurement in; what is no time is passed over.

        Args:
            predicted_s: Predicted seconds, without the ratio.
            measured_s: Seconds it took.
            share: Part of what was measured that is prefill, 0..1: by so much it counts, but for the first ones.
        """
        if not (0 < predicted_s < math.inf and 0 < measured_s < math.inf):
            return
        counts = _find_weight(share, self.measurements)
        self.measurements += counts
        weight = counts * max(SLOWEST_LEARNING_RATIO, 1.0 / (1.0 + self.measurements))
        step = math.log(measured_s) - math.log(predicted_s) - self._log_ratio
        bound = MAX_LOG_STEP if self.is_settled else MAX_LOG_RATIO
        moved = self._log_ratio + weight * min(max(step, -bound), bound)
        self._log_ratio = min(max(moved, -MAX_LOG_RATIO), MAX_LOG_RATIO)
        self.ratio = math.exp(self._log_ratio)


def _find_weight(share: float, known: float) -> float:
    """What a measurement counts of which a pace is only a share.

    An engine that is twice as fast at the one is most likely so at the other too: as long as next to nothing is known,
    the whole stands for each of its parts.
    """
    return max(share, 1.0 / (1.0 + known))


class AttentionPace:
    """What the attention part of a prefill takes, relative to the whole: told apart by prompts of different lengths."""

    #: The ratio stays within 1/64 and 64.
    MAX_LOG_RATIO = math.log(64.0)
    LEARNING_RATIO = 0.1

    def __init__(self) -> None:
        self._log_ratio = 0.0
        #: Measured over predicted seconds of attention, relative to the whole prefill.
        self.ratio = 1.0
        self._usual_share: float | None = None

    def record(self, *, attention_share: float, predicted_s: float, measured_s: float) -> None:
        """Takes one measurement in: slower than usual with more attention than usual means that attention is slow.

        Args:
            attention_share: Share of the predicted seconds that are attention, 0..1.
            predicted_s: Seconds predicted with every ratio.
            measured_s: Seconds it took.
        """
        if not (0 < predicted_s < math.inf and 0 < measured_s < math.inf):
            return
        if self._usual_share is None:
            self._usual_share = attention_share
            return
        error = min(max(math.log(measured_s) - math.log(predicted_s), -MAX_LOG_STEP), MAX_LOG_STEP)
        moved = self._log_ratio + self.LEARNING_RATIO * error * (attention_share - self._usual_share)
        self._log_ratio = min(max(moved, -self.MAX_LOG_RATIO), self.MAX_LOG_RATIO)
        self.ratio = math.exp(self._log_ratio)
        self._usual_share += SLOWEST_LEARNING_RATIO * (attention_share - self._usual_share)


class StepPace:
    """Pace of generating: what a step takes, and what of it grows with the tokens attended to, told apart by fit.

        measured = ratio * (base + context ratio * context)

    Least squares over the last hundred answers or so, each in units of what is predicted of it, on the share of that
    which is context. Where the shares hardly differ the two parts cannot be told apart, and both are scaled alike: that
    is what the fit is drawn to.
    """

    #: The ratio stays within 1/64 and 64; the context's, relative to it, within 1/64 and 8.
    MAX_CONTEXT_RATIO = 8.0
    #: Answers that it remembers, on average.
    MEMORY = 100.0
    #: Weight of scaling both alike, in squares of the share.
    PRIOR = 0.1

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        #: Measured over predicted seconds of a step, its context left out.
        self.ratio = 1.0
        #: The same of what the context adds, relative to the other.
        self.context_ratio = 1.0

    @property
    def is_settled(self) -> bool:
        """Whether it has its first measurements, so that one alone moves it little."""
        return self._weight > FIRST_MEASUREMENTS

    def predict_s(self, base_s: float, context_s: float) -> float:
        """Seconds of a step for which the coefficients say so much."""
        return self.ratio * (base_s + self.context_ratio * context_s)

    def record(self, *, base_s: float, context_s: float, measured_s: float, share: float = 1.0) -> None:
        """Takes the mean step of one answer in, or the steps of some time; what is no time is passed over.

        Args:
            base_s: Predicted seconds of a step without any context, without any ratio.
            context_s: Predicted seconds that its context adds.
            measured_s: Seconds it took.
            share: Part of what was measured that is steps, 0..1: by so much it counts, but for the first ones.
        """
        predicted_s = base_s + context_s
        if not (base_s >= 0 and context_s >= 0 and 0 < predicted_s < math.inf and 0 < measured_s < math.inf):
            return
        counts = _find_weight(share, self._weight)
        x, kept = context_s / predicted_s, 1.0 - counts / self.MEMORY
        usual = math.log(self.ratio * (1.0 - x + self.context_ratio * x))
        bound = MAX_LOG_STEP if self.is_settled else 2 * MAX_LOG_RATIO
        y = math.exp(usual + min(max(math.log(measured_s) - math.log(predicted_s) - usual, -bound), bound))
        self._weight = kept * self._weight + counts
        self._x, self._y = kept * self._x + counts * x, kept * self._y + counts * y
        self._xx, self._xy = kept * self._xx + counts * x * x, kept * self._xy + counts * x * y
        self._fit()

    def _fit(self) -> None:
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        variance = max(0.0, self._xx - self._x * mean_x)
        slope = (self._xy - self._x * mean_y) / (variance + self.PRIOR)
        base = mean_y - slope * mean_x
        relative = 1.0 + slope / base if base > 0 else self.MAX_CONTEXT_RATIO
        self.context_ratio = min(max(relative, LEAST_RATIO), self.MAX_CONTEXT_RATIO)
        # As with `Pace`, the first answer takes it half-way.
        log_ratio = math.log(mean_y / (1.0 - mean_x + self.context_ratio * mean_x))
        log_ratio *= self._weight / (self._weight + 1.0)
        self.ratio = math.exp(min(max(log_ratio, -MAX_LOG_RATIO), MAX_LOG_RATIO))


class WorkerRatios(msgspec.Struct, frozen=True):
    """A worker's pace relative to the fleet's; what its context adds to a step, relative to what is predicted."""

    prefill: float = 1.0
    decode: float = 1.0
    context: float = 1.0


AS_THE_FLEET = WorkerRatios()


class _Offset:
    """A worker's logarithmic distance from the fleet, with the weight it rests on."""

    def __init__(self) -> None:
        self._log_offset = 0.0
        self._weight = 0.0
        self._at_s = -math.inf

    def record(self, log_offset: float, now_s: float, share: float) -> None:
        weight = self.find_weight(now_s) + share
        step = min(max(log_offset - self._log_offset, -MAX_LOG_STEP), MAX_LOG_STEP)
        moved = self._log_offset + max(share / weight, share * SLOWEST_LEARNING_RATIO) * step
        self._log_offset = min(max(moved, -MAX_LOG_RATIO), MAX_LOG_RATIO)
        self._weight, self._at_s = weight, max(now_s, self._at_s)

    def find_weight(self, now_s: float) -> float:
        return self._weight * math.exp(-max(0.0, now_s - self._at_s) / FORGET_S) if self._weight else 0.0

    def find_ratio(self, now_s: float) -> float:
        """Shrunk by the weight, in steps."""
        weight = self.find_weight(now_s)
        shrunk = self._log_offset * weight / (weight + PRIOR_MEASUREMENTS)
        return math.exp(round(shrunk / LOG_STEP) * LOG_STEP)


class WorkerPaces:
    """Paces of workers relative to the fleet; those never measured are as the fleet."""

    def __init__(self) -> None:
        self._prefill: dict[WorkerId, _Offset] = {}
        self._decode: dict[WorkerId, _Offset] = {}
        #: Of workers whose own count, and what holds for the others.
        self.ratios: dict[WorkerId, WorkerRatios] = {}
        self.usual = AS_THE_FLEET
        #: No worker prefills faster than this; one that was never measured is as the fleet.
        self.least_prefill_ratio = 1.0

    def find(self, worker: WorkerId) -> WorkerRatios:
        """As of the last `refresh`."""
        return self.ratios.get(worker, self.usual)

    def change_context(self, ratio: float) -> bool:
        """Takes the fleet's context ratio over where it is far from the one in use; whether it was."""
        if abs(math.log(ratio / self.usual.context)) <= CONTEXT_LOG_STEP:
            return False
        self.usual = WorkerRatios(context=ratio)
        self.ratios = {worker: msgspec.structs.replace(ratios, context=ratio) for worker, ratios in self.ratios.items()}
        return True

    def record_prefill(
        self, worker: WorkerId, *, predicted_s: float, measured_s: float, now_s: float, share: float = 1.0
    ) -> None:
        """A prefill took so long, with so much predicted at the fleet's pace; `share` as in `Pace.record`."""
        _record(self._prefill, worker, _compare(measured_s, predicted_s), now_s, share)

    def record_decode(
        self, worker: WorkerId, *, predicted_s: float, measured_s: float, now_s: float, share: float = 1.0
    ) -> None:
        """The same for the time between tokens."""
        _record(self._decode, worker, _compare(measured_s, predicted_s), now_s, share)

    def refresh(self, now_s: float) -> list[WorkerId]:
        """Brings the ratios up to date; returns the workers whose changed."""
        changed = []
        for worker in self._prefill.keys() | self._decode.keys():
            prefill, decode = self._prefill.get(worker), self._decode.get(worker)
            ratios = WorkerRatios(
                1.0 if prefill is None else prefill.find_ratio(now_s),
                1.0 if decode is None else decode.find_ratio(now_s),
                self.usual.context,
            )
            if ratios != self.find(worker):
                self.ratios[worker] = ratios
                changed.append(worker)
        if changed:
            self._find_least()
        return sorted(changed)

    def forget(self, worker: WorkerId) -> None:
        """The worker is gone; one that comes back is a new one."""
        for known in (self._prefill, self._decode, self.ratios):
            known.pop(worker, None)
        self._find_least()

    def _find_least(self) -> None:
        self.least_prefill_ratio = min((1.0, *(ratios.prefill for ratios in self.ratios.values())))


def _record(
    offsets: dict[WorkerId, _Offset], worker: WorkerId, log_offset: float | None, now_s: float, share: float
) -> None:
    if log_offset is not None:
        offsets.setdefault(worker, _Offset()).record(log_offset, now_s, share)


def _compare(measured_s: float, predicted_s: float) -> float | None:
    """Logarithm of their ratio; None where either is no time."""
    are_times = 0 < predicted_s < math.inf and 0 < measured_s < math.inf
    return math.log(measured_s) - math.log(predicted_s) if are_times else None
