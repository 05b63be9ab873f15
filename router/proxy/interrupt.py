"""Stops a running exchange when its client leaves or a phase takes too long.

The watch is told by the client's end that it left, and by the lookout when a limit may have passed. When something
strikes it notes why and cancels the task that serves the request, which then cleans up in one place. One owner, one
task.
"""

import asyncio
import math
from enum import StrEnum
from types import TracebackType
from typing import Self

from router.lookout import TICK_S, Lookout
from router.proxy.client import Client


class Interruption(StrEnum):
    """Why an exchange was stopped from outside."""

    CLIENT_GONE = "client_gone"
    #: It took nothing at all of its answer for too long: no fault of the worker, which is not read from meanwhile.
    CLIENT_STALLED = "client_stalled"
    TIMED_OUT = "timed_out"
    #: It never paused for too long, and yet did not end.
    TOO_LONG = "too_long"
    #: Somebody with a right to asked for it.
    ABORTED = "aborted"
    #: The router ends, and has waited for it as long as it may.
    SHUT_DOWN = "shut_down"


class InterruptedExchange(Exception):  # noqa: N818  (what happened, not whose fault)
    """The exchange was stopped; `cause` says why."""

    def __init__(self, cause: Interruption) -> None:
        super().__init__(cause.value)
        self.cause = cause


class ExchangeWatch:
    """Context around the serving of one request, entered after its body was received."""

    def __init__(self, client: Client, lookout: Lookout) -> None:
        self._client = client
        self._lookout = lookout
        self._clock = asyncio.get_running_loop().time
        self._task = asyncio.current_task()
        self._is_over = False
        #: See `Limited`.
        self.due_s = math.inf
        self._limit_s = math.inf
        self._whole_until_s = math.inf
        self._touched_s = 0.0
        #: What the client had not taken when it was last looked at while it was full.
        self._unsent_bytes = -1
        #: Set once, by the first thing that strikes.
        self.cause: Interruption | None = None

    def __enter__(self) -> Self:
        self._client.watch(self._lose_client)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._lookout.leave(self)
        self._client.unwatch()
        if kind is asyncio.CancelledError and self.cause is not None and self._task is not None:
            self._task.uncancel()
            raise InterruptedExchange(self.cause) from None

    def limit(self, limit_s: float) -> None:
        """Allow this long from now, and again from each `touch`."""
        self._limit_s = limit_s
        self._touched_s = self._clock()
        self._expect(self._touched_s + limit_s)

    def limit_whole(self, limit_s: float) -> None:
        """Allow this long from now in all, whatever arrives; called once."""
        self._whole_until_s = self._clock() + limit_s
        self._expect(self._whole_until_s)

    def abort(self) -> None:
        """Stop it now; a word after it is over changes nothing."""
        self._strike(Interruption.ABORTED)

    def shut_down(self) -> None:
        """The router ends: stop it now."""
        self._strike(Interruption.SHUT_DOWN)

    def touch(self) -> None:
        """Something arrived. Cost: one clock reading."""
        self._touched_s = self._clock()

    def _expect(self, due_s: float) -> None:
        if due_s < self.due_s and not self._is_over:
            self.due_s = due_s
            self._lookout.join(self)

    def look(self, now_s: float) -> None:
        """See `Limited`."""
        now_s += TICK_S
        if now_s >= self._whole_until_s:
            self._strike(Interruption.TOO_LONG)
        elif now_s >= self._touched_s + self._limit_s:
            self._end_phase()
        self.due_s = math.inf if self.cause is not None else self._find_due_s()

    def _end_phase(self) -> None:
        if not self._client.is_full:
            self._strike(Interruption.TIMED_OUT)
        elif self._has_taken():
            self.touch()
        else:
            self._strike(Interruption.CLIENT_STALLED)

    def _has_taken(self) -> bool:
        """Whether a client that is full took something since it was last asked; the first time that is believed."""
        before, self._unsent_bytes = self._unsent_bytes, self._client.count_unsent()
        return self._unsent_bytes != before

    def postpone(self, by_s: float, now_s: float) -> None:
        """See `Limited`."""
        self._touched_s = min(self._touched_s + by_s, now_s)
        self._whole_until_s += by_s
        self.due_s = self._find_due_s()

    def _find_due_s(self) -> float:
        return min(self._whole_until_s, self._touched_s + self._limit_s)

    def _lose_client(self) -> None:
        self._strike(Interruption.CLIENT_GONE)

    def _strike(self, cause: Interruption) -> None:
        if not self._is_over and self.cause is None and self._task is not None:
            self.cause = cause
            self._task.cancel()
