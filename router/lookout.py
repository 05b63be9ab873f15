"""One timer for all limits of an event loop's exchanges and connections, and only time in which that loop was on time.

A limit costs no timer of its own: who has one stands in the list, and is looked at when the earliest of them is due,
and a few times a second. A look that comes late tells that the router was held up, while workers and clients may have
done their part: what it was late is added to every limit, so that nobody is blamed for the router's own lag.
Source: docs/faults.md C06.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Protocol

#: Pause between two looks; the loop's lag is known to this.
LOOK_S = 0.25
#: A look that is later than this tells of a lag; less than that matters to no limit.
LATE_S = 0.1
#: What is due this soon is due: clocks of event loops count milliseconds.
TICK_S = 0.001


class Limited(Protocol):
    """Something that must not take too long."""

    #: Until when it may go on as far as is known: it may turn out to be later, and never to be earlier.
    due_s: float

    def look(self, now_s: float) -> None:
        """It is due, or `due_s` moves."""

    def postpone(self, by_s: float, now_s: float) -> None:
        """So much time did not count."""


class Lookout:
    """All that is limited. Belongs to the event loop of those who join."""

    def __init__(self) -> None:
        self._limited: set[Limited] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: When it looks next.
        self._next_s = 0.0

    def join(self, limited: Limited) -> None:
        """Look at this one until it leaves; again when its `due_s` became earlier."""
        self._limited.add(limited)
        if self._timer is None or limited.due_s < self._next_s:
            loop = asyncio.get_running_loop()
            self._arm(loop, min(limited.due_s, loop.time() + LOOK_S))

    def leave(self, limited: Limited) -> None:
        """Look at it no more."""
        self._limited.discard(limited)

    def __len__(self) -> int:
        return len(self._limited)

    def __iter__(self) -> Iterator[Limited]:
        """Those who are here now, whoever leaves meanwhile."""
        return iter(tuple(self._limited))

    def _arm(self, loop: asyncio.AbstractEventLoop, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_s = at_s
        self._timer = loop.call_at(at_s, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        self._timer = None
        try:
            self.look(now_s, late_s=now_s - self._next_s)
        finally:
            # What went wrong with one must not leave all others without limits.
            if self._limited:
                earliest_s = min(limited.due_s for limited in self._limited)
                self._arm(loop, min(now_s + LOOK_S, earliest_s))

    def look(self, now_s: float, *, late_s: float = 0.0) -> None:
        """Tell everyone who is due; `late_s` ago it was to be."""
        if late_s > LATE_S:
            for limited in tuple(self._limited):
                limited.postpone(late_s, now_s)
        for limited in [each for each in self._limited if each.due_s <= now_s + TICK_S]:
            # One that strikes may let others leave, or begin anew.
            if limited in self._limited and limited.due_s <= now_s + TICK_S:
                limited.look(now_s)


class Limit:
    """A fixed time for one thing."""

    def __init__(self, due_s: float, strike: Callable[[], object]) -> None:
        """Say until when.

        Args:
            due_s: By the event loop's clock.
            strike: Ends what takes longer.
        """
        self.due_s = due_s
        self.has_struck = False
        self._strike = strike

    def look(self, now_s: float) -> None:  # noqa: ARG002  (of an interface)
        """See `Limited`."""
        self.due_s, self.has_struck = float("inf"), True
        self._strike()

    def postpone(self, by_s: float, now_s: float) -> None:  # noqa: ARG002  (of an interface)
        """See `Limited`."""
        self.due_s += by_s


@asynccontextmanager
async def own_time(limit_s: float) -> AsyncIterator[None]:
    """Like `asyncio.timeout`, but time by which the event loop was late does not count.

    Raises:
        TimeoutError: It took longer.
    """
    loop, lookout = asyncio.get_running_loop(), Lookout()
    async with asyncio.timeout(None) as timeout:
        limit = Limit(loop.time() + limit_s, lambda: timeout.reschedule(loop.time()))
        lookout.join(limit)
        try:
            yield
        finally:
            lookout.leave(limit)
