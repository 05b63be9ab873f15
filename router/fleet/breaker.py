"""The circuit breaker of one rank: whether requests may go there, from how the last ones went. Pure.

    CLOSED ── failures in a row, or too many among the last ──> OPEN ── time ──> HALF_OPEN
       ^                                                          ^                 │
       └── trial went well, or a probe while nobody tries ────────┼─────────────────┤
                                                                  └── trial failed ─┘

Only failures of the engine count. What a client did wrong, took back or could not wait for, and a full queue, say
nothing against it; a full queue makes others preferred for a while. Probes of health never pass through the breaker:
without traffic they are what closes it, on probation, so that one more failure opens it again, each time for longer.
Source: docs/faults.md D01, D02, D11, D12.
"""

from enum import StrEnum

import msgspec


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

    #: Failures in a row that open it.
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
        #: The last requests, the latest lowest: 1 is a failure.
        self._window_bits = 0
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

    def is_over(self, now_s: float) -> bool:
        """Whether its last failure is so old that it matters no more to whoever left the fleet."""
        return not self.trials and now_s - self._failed_at_s > self._settings.memory_s

    def is_clean(self, now_s: float) -> bool:
        """Whether nothing is remembered that still matters."""
        is_closed = self._open_until_s is None and not self._on_probation and not self.trials
        is_well = self._streak == 0 and not self._window_bits
        return is_closed and not self.is_full(now_s) and (is_well or self._is_forgotten(now_s))

    def judge(self, verdict: Verdict, now_s: float, *, retry_after_s: float | None = None) -> None:
        """Take in how a request went.

        Args:
            verdict: What it says.
            now_s: When.
            retry_after_s: How long the engine with the full queue wants to be left alone.
        """
        if verdict is Verdict.FAILED:
            self._fail(now_s)
        elif verdict is Verdict.GOOD:
            self._succeed(now_s)
        elif verdict is Verdict.FULL:
            pause_s = self._settings.full_s if retry_after_s is None else retry_after_s
            until_s = now_s + min(max(pause_s, 0.0), self._settings.max_full_s)
            self._full_until_s = max(self._full_until_s, until_s)

    def probe(self, now_s: float) -> None:
        """Its worker answered a probe of health well: closes it where it may be tried and nobody does."""
        if self.find_state(now_s) is BreakerState.HALF_OPEN and not self.trials:
            self._close()
            self._on_probation = True

    def _fail(self, now_s: float) -> None:
        state = self.find_state(now_s)
        if state is BreakerState.OPEN:
            # Requests from before go on failing; that is known already.
            return
        if self._is_forgotten(now_s):
            self._forget()
        self._failed_at_s = now_s
        self._streak += 1
        self._note(1)
        failures = self._window_bits.bit_count()
        settings = self._settings
        is_bad = self._streak >= settings.failures or failures >= settings.window_failures
        if state is BreakerState.HALF_OPEN or self._on_probation or is_bad:
            self._open(now_s)

    def _succeed(self, now_s: float) -> None:
        state = self.find_state(now_s)
        if state is BreakerState.OPEN:
            return
        if state is BreakerState.HALF_OPEN:
            self._close()
        self._streak = self._openings = 0
        self._on_probation = False
        self._note(0)

    def _note(self, bit: int) -> None:
        self._window_bits = (self._window_bits << 1 | bit) & ((1 << self._settings.window) - 1)

    def _open(self, now_s: float) -> None:
        # Doubling stops long before a float does.
        open_s = min(self._settings.open_s * 2.0 ** min(self._openings, 32), self._settings.max_open_s)
        self._openings += 1
        self.opened += 1
        self._open_until_s = now_s + open_s
        self._on_probation = False

    def _close(self) -> None:
        self._open_until_s = None
        self._streak = self._window_bits = 0

    def _is_forgotten(self, now_s: float) -> bool:
        """Whether its last failure is too old to say anything; what is open or on probation is not forgotten."""
        if self._open_until_s is not None or self._on_probation:
            return False
        return now_s - self._failed_at_s > self._settings.memory_s

    def _forget(self) -> None:
        self._streak = self._openings = self._window_bits = 0
