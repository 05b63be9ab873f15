"""The breakers of all ranks, and which requests try a rank that failed.

A rank that never failed has none, so that a decision of a healthy fleet pays nothing. Whoever chooses asks here which
ranks to leave out, which to avoid while there are others, and which earn no cache credit.
Source: docs/faults.md B12, D11, D12.
"""

from collections.abc import Callable, Mapping

from router.fleet.breaker import Breaker, BreakerSettings, BreakerState, Cause, Verdict
from wire.ids import RequestId, Target, WorkerId

_NONE: frozenset[Target] = frozenset()


class Breakers:
    """Breakers by rank."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._breakers: dict[Target, Breaker] = {}
        self._trials: dict[RequestId, Target] = {}
        #: Times that a rank's breaker opened; of ranks that left the fleet for good nothing is kept.
        self.openings: dict[Target, int] = {}

    def __bool__(self) -> bool:
        """Whether any rank has one."""
        return bool(self._breakers)

    def knows(self, target: Target) -> bool:
        """Whether a rank has one, so that requests which go well there are of interest."""
        return target in self._breakers

    def judge(
        self,
        target: Target,
        verdict: Verdict,
        now_s: float,
        retry_after_s: float | None = None,
        cause: Cause | None = None,
    ) -> None:
        """A request on a rank went so."""
        breaker = self._breakers.get(target)
        if breaker is None:
            if verdict in {Verdict.GOOD, Verdict.NEUTRAL}:
                return
            breaker = self._breakers[target] = Breaker(self._settings)
        before = breaker.opened
        breaker.judge(verdict, now_s, retry_after_s=retry_after_s, cause=cause)
        if breaker.opened != before:
            self.openings[target] = self.openings.get(target, 0) + 1

    def probe(self, worker: WorkerId, now_s: float) -> None:
        """A worker answered a probe of health well."""
        for target, breaker in self._breakers.items():
            if target.worker == worker:
                breaker.probe(now_s)

    def begin(self, request_id: RequestId, target: Target, now_s: float) -> None:
        """A request was placed on a rank: where that is half-open, it tries it."""
        breaker = self._breakers.get(target)
        if breaker is not None and breaker.find_state(now_s) is BreakerState.HALF_OPEN:
            breaker.trials += 1
            self._trials[request_id] = target

    def end(self, request_id: RequestId) -> None:
        """A request is over, whatever came of it."""
        target = self._trials.pop(request_id, None)
        breaker = None if target is None else self._breakers.get(target)
        if breaker is not None:
            breaker.trials -= 1

    def find_barred(self, now_s: float) -> frozenset[Target]:
        """Ranks that get no request now."""
        if not self._breakers:
            return _NONE
        return frozenset(target for target, breaker in self._breakers.items() if not breaker.admits(now_s))

    def find_avoided(self, cause: Cause | None, now_s: float) -> frozenset[Target]:
        """Ranks that get no request of a cause while another takes it: full ones, and those that failed it already."""
        if not self._breakers:
            return _NONE
        return frozenset(
            target
            for target, breaker in self._breakers.items()
            if breaker.is_full(now_s) or (cause is not None and breaker.is_tried(cause, now_s))
        )

    def find_doubted(self, now_s: float) -> frozenset[Target]:
        """Ranks that earn no cache credit and are nobody's home."""
        if not self._breakers:
            return _NONE
        return frozenset(target for target, breaker in self._breakers.items() if breaker.is_doubted(now_s))

    def find_states(self, now_s: float) -> Mapping[Target, BreakerState]:
        """Where each rank stands that has a breaker; all others are closed."""
        return {target: breaker.find_state(now_s) for target, breaker in self._breakers.items()}

    def sweep(self, known: Callable[[Target], bool], now_s: float) -> None:
        """Drop what does not matter any more.

        Args:
            known: Whether a rank is of the fleet. One that is lost and comes back soon is none the better for it.
            now_s: When.
        """
        for target, breaker in list(self._breakers.items()):
            if breaker.is_clean(now_s) or (not known(target) and breaker.is_over(now_s)):
                del self._breakers[target]
        for target in [target for target in self.openings if not known(target) and target not in self._breakers]:
            del self.openings[target]

    def check_invariants(self) -> None:
        """Raises AssertionError when trials are counted wrongly."""
        for target, breaker in self._breakers.items():
            tried = sum(1 for each in self._trials.values() if each == target)
            if breaker.trials != tried:
                raise AssertionError(f"{target}: {breaker.trials} trials counted, {tried} running")
