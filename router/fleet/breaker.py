"""The circuit breaker of one rank: whether requests may go there, from how the last ones went. Pure.

    CLOSED ── failures in a row, or too many among the last ──> OPEN ── time ──> HALF_OPEN
       ^                                                          ^                 │
       └── trial went well, or a probe while nobody tries ────────┼─────────────────┤
                                                                  └── trial failed ─┘

Only failures of the engine count. What a client did wrong, took back or could not wait for, and a full queue, say
nothing against it; a full queue makes others preferred for a while. A request may be what makes an engine fail: what
one cause (a conversation, a prompt) brings about again and again counts once, and says nothing more until it went well
or was quiet for as long as failures are remembered; and where requests of other tenants go well, those of one tenant
alone open nothing. A connection that did not come about is no request's doing and always counts. Probes of health never
pass through the breaker: without traffic they are what closes it, on probation, so that one more failure opens it
again, each time for longer.
Source: docs/faults.md D01, D02, D11, D12.
"""

from collections import deque
from enum import StrEnum
from typing import NamedTuple

import msgspec

#: Causes of failures that one breaker remembers.
MAX_CAUSES = 256
#: Failures of one cause on a rank after which it goes elsewhere, where there is an elsewhere.
MAX_TRIES = 2


class Cause(NamedTuple):
    """Whose request failed, as far as requests can be told apart: those of one conversation are one cause."""

    #: Empty where there are no tenants.
    tenant: str
    #: The conversation, or else the request itself.
    key: str | int


class _Failures(NamedTuple):
    """Of one cause."""

    times: int
    last_s: float


class _Seen(NamedTuple):
    """One request of late."""

    is_failure: bool
    #: Whose it was; None where nobody's request brought it about.
    tenant: str | None


class Verdict(StrEnum):
    """What one request says of the rank that had it."""

    #: It answered.
    GOOD = "good"
    #: It failed: no connection, a connection that broke, silence, garbage, a 5xx of its own.
    FAILED = "failed"
    #: Its queue is full.
    FULL = "full"
    #: Nothing: the client's mistake, its leaving, a limit of the router's own.
    NEUTRAL = "neutral"


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens, and for how long."""

    #: Failures in a row, each of another cause, that open it.
    failures: int = 5
    #: Of the last `window` requests since the first failure, failures that open it though some went well.
    window: int = 20
    window_failures: int = 10
    #: Seconds it stays open; doubled each time until a request went well.
    open_s: float = 5.0
    max_open_s: float = 60.0
    #: Requests at once that try a half-open rank.
    trials: int = 1
    #: Failures in a row from which on the rank earns no cache credit.
    doubt_failures: int = 2
    #: Seconds after which a failure says nothing any more.
    memory_s: float = 60.0
    #: Seconds for which a full queue makes others preferred, where the engine does not say, and at most.
    full_s: float = 0.5
    max_full_s: float = 10.0


class Breaker:
    """One rank's breaker. Times may come in any order; what is open opens for good only by later verdicts."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        #: Failures since the last request that went well.
        self._streak = 0
        #: The last requests, the latest last; of one cause the first failure.
        self._window: deque[_Seen] = deque(maxlen=settings.window)
        #: Causes whose requests failed, the one that did so last at the end.
        self._causes: dict[Cause, _Failures] = {}
        self._failed_at_s = float("-inf")
        #: Until when it is open; None while it is closed.
        self._open_until_s: float | None = None
        #: Times it opened since a request went well.
        self._openings = 0
        #: It was closed by a probe: one failure opens it.
        self._on_probation = False
        self._full_until_s = float("-inf")
        #: Requests that try it now.
        self.trials = 0
        #: Times it ever opened.
        self.opened = 0

    def find_state(self, now_s: float) -> BreakerState:
        """Where it stands."""
        if self._open_until_s is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now_s < self._open_until_s else BreakerState.HALF_OPEN

    def admits(self, now_s: float) -> bool:
        """Whether one more request may go there."""
        state = self.find_state(now_s)
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and self.trials < self._settings.trials)

    def is_full(self, now_s: float) -> bool:
        """Whether it said a moment ago that its queue is full."""
        return now_s < self._full_until_s

    def is_doubted(self, now_s: float) -> bool:
        """Whether it is failing, so that what it holds must not draw requests to it."""
        if self._open_until_s is not None or self._on_probation:
            return True
        return self._streak >= self._settings.doubt_failures and not self._is_forgotten(now_s)

    def is_tried(self, cause: Cause, now_s: float) -> bool:
        """Whether requests of a cause failed here often enough to be better sent elsewhere."""
        failures = self._find_failures(cause, now_s)
        return failures is not None and failures.times >= MAX_TRIES

    def is_over(self, now_s: float) -> bool:
        """Whether its last failure is so old that it matters no more to whoever left the fleet."""
        return not self.trials and now_s - self._failed_at_s > self._settings.memory_s

    def is_clean(self, now_s: float) -> bool:
        """Whether nothing is remembered that still matters."""
        is_closed = self._open_until_s is None and not self._on_probation and not self.trials
        is_well = self._streak == 0 and not any(seen.is_failure for seen in self._window)
        is_known = any(now_s - failures.last_s <= self._settings.memory_s for failures in self._causes.values())
        return is_closed and not self.is_full(now_s) and not is_known and (is_well or self._is_forgotten(now_s))

    def judge(
        self, verdict: Verdict, now_s: float, *, retry_after_s: float | None = None, cause: Cause | None = None
    ) -> None:
        """Take in how a request went.

        Args:
            verdict: What it says.
            now_s: When.
            retry_after_s: How long the engine with the full queue wants to be left alone.
            cause: Whose request it was; None where no request can have brought it about.
        """
        if verdict is Verdict.FAILED:
            self._fail(now_s, cause)
        elif verdict is Verdict.GOOD:
            self._succeed(now_s, cause)
        elif verdict is Verdict.FULL:
            pause_s = self._settings.full_s if retry_after_s is None else retry_after_s
            until_s = now_s + min(max(pause_s, 0.0), self._settings.max_full_s)
            self._full_until_s = max(self._full_until_s, until_s)

    def probe(self, now_s: float) -> None:
        """Its worker answered a probe of health well: closes it where it may be tried and nobody does."""
        if self.find_state(now_s) is BreakerState.HALF_OPEN and not self.trials:
            self._close()
            self._on_probation = True

    def _fail(self, now_s: float, cause: Cause | None) -> None:
        state = self.find_state(now_s)
        if state is BreakerState.OPEN:
            # Requests from before go on failing; that is known already.
            return
        if cause is not None and not self._is_news(cause, now_s):
            return
        if self._is_forgotten(now_s):
            self._forget()
        self._failed_at_s = now_s
        self._streak += 1
        self._window.append(_Seen(is_failure=True, tenant=None if cause is None else cause.tenant))
        if state is BreakerState.HALF_OPEN or self._on_probation or self._is_bad():
            self._open(now_s)

    def _is_news(self, cause: Cause, now_s: float) -> bool:
        """Remember a failure of a cause; whether it is the first one of late."""
        before = self._find_failures(cause, now_s)
        self._causes.pop(cause, None)
        self._causes[cause] = _Failures(1 if before is None else before.times + 1, now_s)
        if len(self._causes) > MAX_CAUSES:
            del self._causes[next(iter(self._causes))]
        return before is None

    def _find_failures(self, cause: Cause, now_s: float) -> _Failures | None:
        failures = self._causes.get(cause)
        return None if failures is None or now_s - failures.last_s > self._settings.memory_s else failures

    def _is_bad(self) -> bool:
        """Whether it failed too often, and not for one tenant alone while others were served."""
        failed_for = [seen.tenant for seen in self._window if seen.is_failure]
        is_often = self._streak >= self._settings.failures or len(failed_for) >= self._settings.window_failures
        if not is_often or not failed_for[0] or len(set(failed_for)) > 1:
            return is_often
        return all(seen.tenant == failed_for[0] for seen in self._window)

    def _succeed(self, now_s: float, cause: Cause | None) -> None:
        state = self.find_state(now_s)
        if state is BreakerState.OPEN:
            return
        if state is BreakerState.HALF_OPEN:
            self._close()
        self._streak = self._openings = 0
        self._on_probation = False
        self._window.append(_Seen(is_failure=False, tenant=None if cause is None else cause.tenant))
        if cause is not None:
            self._causes.pop(cause, None)

    def _open(self, now_s: float) -> None:
        # Doubling stops long before a float does.
        open_s = min(self._settings.open_s * 2.0 ** min(self._openings, 32), self._settings.max_open_s)
        self._openings += 1
        self.opened += 1
        self._open_until_s = now_s + open_s
        self._on_probation = False

    def _close(self) -> None:
        self._open_until_s = None
        self._streak = 0
        self._window.clear()

    def _is_forgotten(self, now_s: float) -> bool:
        """Whether its last failure is too old to say anything; what is open or on probation is not forgotten."""
        if self._open_until_s is not None or self._on_probation:
            return False
        return now_s - self._failed_at_s > self._settings.memory_s

    def _forget(self) -> None:
        self._streak = self._openings = 0
        self._window.clear()
