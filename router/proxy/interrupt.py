"""Stops a running exchange when its client leaves or a phase takes too long.

The watch listens on the ASGI `receive` channel beside the task that serves the request, and keeps a timer for each
limit. When one strikes it notes why and cancels that task, which then cleans up in one place. One owner, one task.
"""

import asyncio
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Self

from router.proxy.body import Receive


class Interruption(StrEnum):
    """Why an exchange was stopped from outside."""

    CLIENT_GONE = "client_gone"
    TIMED_OUT = "timed_out"
    #: It never paused for too long, and yet did not end.
    TOO_LONG = "too_long"


class InterruptedExchange(Exception):  # noqa: N818  (what happened, not whose fault)
    """The exchange was stopped; `cause` says why."""

    def __init__(self, cause: Interruption) -> None:
        super().__init__(cause.value)
        self.cause = cause


class ExchangeWatch:
    """Context around the serving of one request, entered after its body was received."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._listener: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._whole_timer: asyncio.TimerHandle | None = None
        self._limit_s = 0.0
        self._touched_s = 0.0
        #: Set once, by the first thing that strikes.
        self.cause: Interruption | None = None

    async def __aenter__(self) -> Self:
        self._listener = self._loop.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in (self._timer, self._whole_timer):
            if timer is not None:
                timer.cancel()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
        if kind is asyncio.CancelledError and self.cause is not None and self._task is not None:
            self._task.uncancel()
            raise InterruptedExchange(self.cause) from None

    def limit(self, limit_s: float) -> None:
        """Allow this long from now, and again from each `touch`."""
        self._limit_s = limit_s
        self.touch()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(limit_s, self._check)

    def limit_whole(self, limit_s: float) -> None:
        """Allow this long from now in all, whatever arrives; called once."""
        self._whole_timer = self._loop.call_later(limit_s, self._strike, Interruption.TOO_LONG)

    def touch(self) -> None:
        """Something arrived. Cost: one clock reading; the timer is not moved."""
        self._touched_s = self._loop.time()

    def _check(self) -> None:
        left_s = self._touched_s + self._limit_s - self._loop.time()
        if left_s <= 0:
            self._strike(Interruption.TIMED_OUT)
        else:
            self._timer = self._loop.call_later(left_s, self._check)

    async def _listen(self) -> None:
        with suppress(asyncio.CancelledError):
            while (await self._receive())["type"] != "http.disconnect":
                continue
            self._strike(Interruption.CLIENT_GONE)

    def _strike(self, cause: Interruption) -> None:
        if self._listener is not None and self.cause is None and self._task is not None:
            self.cause = cause
            self._task.cancel()
