"""Which requests may be sent again, and after which pause. Pure: time does not matter, chance is an argument.

Only what nobody can have begun is sent again; this decides whether there are attempts and budget left. The budget is a
share of the requests of late, so that a fleet which refuses everything is not asked several times for each of them.
Source: docs/faults.md C19.
"""

from collections.abc import Callable

import msgspec

#: Requests over which the share is reckoned; beyond it earlier ones count less and less.
MEMORY_REQUESTS = 1_000.0
#: Retries that are allowed however few requests there were.
FLOOR = 10.0


class RetryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on sending again."""

    #: Sendings of one request.
    max_attempts: int = 3
    #: Retries for each request of late.
    budget_ratio: float = 0.2
    #: Pause before the first retry, doubled each time, and the longest one.
    backoff_s: float = 0.025
    max_backoff_s: float = 0.5


class Retries:
    """The budget of one router."""

    def __init__(self, limits: RetryLimits, draw: Callable[[], float]) -> None:
        """Start with a full budget.

        Args:
            limits: Bounds.
            draw: Chance, 0..1, for pauses.
        """
        self._limits = limits
        self._draw = draw
        self._requests = 0.0
        self._retries = 0.0

    def count_request(self) -> None:
        """A request is sent for the first time."""
        self._requests += 1
        if self._requests > MEMORY_REQUESTS:
            self._requests /= 2
            self._retries /= 2

    def take(self, attempts: int) -> float | None:
        """Take a retry out of the budget.

        Args:
            attempts: Times that the request was sent.

        Returns:
            Seconds to wait before it is sent again; None where it may not be.
        """
        limits = self._limits
        if attempts >= limits.max_attempts or self._retries >= FLOOR + limits.budget_ratio * self._requests:
            return None
        self._retries += 1
        pause_s: float = min(limits.max_backoff_s, limits.backoff_s * 2.0 ** (attempts - 1))
        return self._draw() * pause_s
