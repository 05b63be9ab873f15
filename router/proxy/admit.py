"""Holds requests back while there is no place for them, and turns away keys that ask too often.

The edge around `router.admission`: clocks, timers and the placer. A request that finds no place waits here; whenever
one ends, and now and then, the head of each queue is tried at the placer. Whoever waits leaves at once when its client
goes, when its time is over, or when it is turned away for another tenant's.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from router.access.principal import NO_LIMITS, Principal
from router.admission import AdmissionQueue, KeyRates, QueueSettings
from router.errors import (
    DovecoteError,
    OverloadedError,
    PassingError,
    QueueFullError,
    QueueTimeoutError,
    RateLimitedError,
)
from router.metrics import QueueEnd, RouterMetrics
from router.placement.instructions import Place
from wire.ids import RequestId

#: How often the heads are tried without anything having ended: workers come, breakers close.
TICK_S = 0.25


class Placing(Protocol):
    """A request that can be placed."""

    @property
    def request_id(self) -> RequestId:
        """Its name."""

    @property
    def queue_name(self) -> str:
        """Equal for requests that wait for the same ranks."""

    @property
    def cost_tokens(self) -> int:
        """Work that it is expected to be, as the last try to place it found."""

    def place(self) -> Place:
        """Choose a rank, or a pair, and charge it.

        Raises:
            PassingError: There is no place now.
            DovecoteError: It cannot be placed at all.
        """


class _Waiter(msgspec.Struct):
    placing: Placing
    place: "asyncio.Future[Place]"


class Admission:
    """The queue of one router. Belongs to its event loop."""

    def __init__(self, settings: QueueSettings, metrics: RouterMetrics, clock: Callable[[], float]) -> None:
        self.queue = AdmissionQueue(settings)
        self.rates = KeyRates()
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._waiters: dict[RequestId, _Waiter] = {}
        #: By the name of an order, in words, why its head had no place at the last try.
        self._reasons: dict[str, str] = {}
        #: Whether heads are tried in the next turn of the event loop: those of all queues, or of some names alone.
        self._is_due = self._is_all_due = False
        self._due_names: set[str] = set()
        self._tick: asyncio.TimerHandle | None = None

    def begin(self, principal: Principal) -> bool:
        """A call came; whether `end` is due for it.

        Raises:
            RateLimitedError: Its key asks too often.
        """
        if principal.limits is NO_LIMITS:
            return False
        limited = self.rates.begin(principal.name, principal.limits, self._clock())
        if limited is None:
            return True
        self._metrics.rate_limited.labels(principal.name, limited.reason.value).inc()
        raise RateLimitedError(
            f"the key has reached its limit of {limited.reason.value}", retry_after_s=limited.retry_after_s
        )

    def spend(self, principal: Principal, tokens: int) -> None:
        """Tokens of a call became known; fewer than were thought are paid back."""
        if principal.limits.tokens_per_minute is not None:
            self.rates.spend(principal.name, tokens, self._clock())

    def end(self, principal: Principal) -> None:
        """A call for which that is due is over."""
        self.rates.end(principal.name)

    def is_waited_out(self, error: PassingError) -> bool:
        """Whether requests wait until what stands in their way has passed."""
        settings = self._settings
        return settings.max_waiting > 0 and (settings.waits_out_outages or isinstance(error, OverloadedError))

    def try_place(self, placing: Placing) -> Place | None:
        """A rank for a request where it need not wait, else None.

        Raises:
            DovecoteError: It cannot be placed at all.
        """
        if self._settings.max_waiting == 0:
            return placing.place()
        if self._waiters and self.queue.count(placing.queue_name):
            return None
        try:
            return placing.place()
        except PassingError as error:
            if not self.is_waited_out(error):
                raise
            self._reasons[placing.queue_name] = error.message
            return None

    async def place(self, placing: Placing, tenant: str, priority: int, *, waited_s: float = 0.0) -> Place:
        """A rank for a request, at once or once it is its turn.

        Args:
            placing: The request.
            tenant: Whose it is.
            priority: Its priority.
            waited_s: How much of the time that it may wait is over.

        Raises:
            QueueFullError: It is turned away.
            QueueTimeoutError: It waited too long.
            DovecoteError: It cannot be placed at all.
        """
        return self.try_place(placing) or await self.wait(placing, tenant, priority, waited_s=waited_s)

    def wake(self) -> None:
        """A request ended: there may be room. Costs next to nothing where nobody waits."""
        if self._waiters and not self._is_all_due:
            self._is_all_due = True
            self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    async def wait(self, placing: Placing, tenant: str, priority: int, *, waited_s: float = 0.0) -> Place:
        """A rank for a request that found none, once it is its turn; see `place`."""
        since_s = self._clock()
        entered = self.queue.enter(
            placing.request_id,
            placing.queue_name,
            tenant=tenant,
            priority=priority,
            cost_tokens=placing.cost_tokens,
            now_s=since_s,
        )
        if entered.displaced is not None:
            self._refuse(entered.displaced.request_id)
        if entered.waiting is None:
            self._metrics.queue_ends[QueueEnd.FULL].inc()
            self._forget_reason(placing.queue_name)
            raise self._full()
        loop = asyncio.get_running_loop()
        waiter = _Waiter(placing, loop.create_future())
        self._waiters[placing.request_id] = waiter
        timer = loop.call_later(max(0.0, self._settings.max_wait_s - waited_s), self._expire, placing.request_id)
        self._keep_ticking()
        try:
            place = await waiter.place
        finally:
            timer.cancel()
            self._forget(placing.request_id, waiter)
        self._metrics.queue_wait.observe(max(0.0, self._clock() - since_s))
        return place

    def _forget(self, request_id: RequestId, waiter: _Waiter) -> None:
        """Whatever became of it, it waits no longer."""
        del self._waiters[request_id]
        if self.queue.leave(request_id):
            self._metrics.queue_ends[QueueEnd.LEFT].inc()
            # It had no place that others could have now: all that changes is who of its own queue is next.
            self._due_names.add(waiter.placing.queue_name)
            self._pump_soon()
        self._forget_reason(waiter.placing.queue_name)
        if waiter.place.done() and not waiter.place.cancelled():
            # Nobody may be there any more to hear it.
            waiter.place.exception()

    def _forget_reason(self, name: str) -> None:
        """Names come from clients: of those for which nobody waits nothing is kept."""
        if not self.queue.count(name):
            self._reasons.pop(name, None)

    def _pump(self) -> None:
        """Give out what places there are."""
        names = self.queue.names() if self._is_all_due else tuple(self._due_names)
        self._is_due = self._is_all_due = False
        self._due_names.clear()
        for name in names:
            while self._try_next(name):
                pass

    def _try_next(self, name: str) -> bool:
        """Whether the head of a queue needs no place any more."""
        head = self.queue.find_next(name, self._clock())
        if head is None:
            return False
        waiter = self._waiters[head.request_id]
        if waiter.place.done():
            # Its client left in this very turn of the event loop.
            self.queue.leave(head.request_id)
            self._metrics.queue_ends[QueueEnd.LEFT].inc()
            return True
        try:
            place = waiter.placing.place()
        except Exception as error:  # noqa: BLE001
            if isinstance(error, PassingError) and self.is_waited_out(error):
                self._reasons[name] = error.message
                return False
            # Its own task has the words for it.
            self.queue.leave(head.request_id)
            self._metrics.queue_ends[QueueEnd.FAILED].inc()
            waiter.place.set_exception(error)
            return True
        cost_tokens = waiter.placing.cost_tokens
        self.queue.give(head.request_id, cost_tokens=cost_tokens, now_s=self._clock())
        self._metrics.queue_ends[QueueEnd.PLACED].inc()
        waiter.place.set_result(place)
        return True

    def _expire(self, request_id: RequestId) -> None:
        waiter = self._waiters.get(request_id)
        if waiter is not None and not waiter.place.done() and self.queue.leave(request_id):
            self._metrics.queue_ends[QueueEnd.TIMED_OUT].inc()
            reason = self._reasons.get(waiter.placing.queue_name, "others were before it")
            waiter.place.set_exception(
                QueueTimeoutError(
                    f"waited {self._settings.max_wait_s:g} s in vain: {reason}",
                    retry_after_s=self.queue.find_retry_after_s(),
                )
            )

    def _refuse(self, request_id: RequestId) -> None:
        """It was taken out of the queue for another tenant's request."""
        place = self._waiters[request_id].place
        is_gone = place.done()
        self._metrics.queue_ends[QueueEnd.LEFT if is_gone else QueueEnd.DISPLACED].inc()
        if not is_gone:
            place.set_exception(self._full())

    def _full(self) -> DovecoteError:
        return QueueFullError(
            f"{len(self.queue)} requests wait for a worker already; try again later",
            retry_after_s=self.queue.find_retry_after_s(),
        )

    def _keep_ticking(self) -> None:
        if self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(TICK_S, self._on_tick)

    def _on_tick(self) -> None:
        self._tick = None
        if self._waiters:
            self._is_all_due = True
            self._pump()
            self._keep_ticking()
