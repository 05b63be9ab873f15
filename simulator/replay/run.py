"""Carry out a load: every request goes out when what it waited for is over and its pause has passed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from simulator.demo.exchange import Exchange
from simulator.graph.loop import ClosedLoop
from simulator.graph.request import BlockRequest, BlockTrace

#: Statuses that ask to come again, and how long is waited where they do not say or say too long, seconds.
BUSY_KINDS = ("http_429", "http_503")
USUAL_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
#: Refusals of every request alike: the first one before any success ends the run.
HOPELESS_KINDS = ("http_401", "http_403", "http_404")


class Ending(StrEnum):
    """Why no further request was sent."""

    COMPLETE = "complete"
    DURATION = "duration"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"


#: Endings that leave requests in flight.
GIVEN_UP = frozenset({Ending.INTERRUPTED, Ending.REFUSED})


class LoadLimits(Struct, frozen=True, kw_only=True):
    """How much is sent at once, and for how long."""

    #: Requests in flight, at most.
    concurrency: int = 256
    #: No request is sent later than this, seconds after the first; None sends all.
    duration_s: float | None = None
    #: Times a request that was refused with 429 or 503 is sent again, after the wait that was asked for.
    retries: int = 0


class Outcome(Struct, frozen=True):
    """One request of the trace and what came of it."""

    request: BlockRequest
    exchange: Exchange
    #: Sent later than it was due, seconds: for want of a place among those in flight, or of this program's own time.
    late_s: float
    #: Sent again after refusals, and the time waited for that, seconds.
    retries: int
    retry_wait_s: float


class Sends(Protocol):
    """What a run sends through."""

    def write_body(self, request: BlockRequest) -> bytes:
        """The body of a request."""
        ...

    async def send(self, request: BlockRequest, body: bytes) -> Exchange:
        """Send it once; must not raise."""
        ...


class LoadRun:
    """One run of a trace against one target.

    Args:
        target: Where requests go.
        limits: How much at once, how long.
        clock: Seconds, monotonic.
        sleep: Waits so many seconds.
        on_outcome: Called after each request, in the order of their ends.
    """

    def __init__(
        self,
        target: Sends,
        limits: LoadLimits,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        on_outcome: Callable[[Outcome], None],
    ) -> None:
        self._target, self._limits, self._clock, self._sleep = target, limits, clock, sleep
        self._on_outcome = on_outcome
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._has_succeeded = False
        self._work: asyncio.Future[None] | None = None
        #: Requests that were sent, those that were answered or failed, and the most that were in flight.
        self.sent = self.ended = self.most_in_flight = 0
        self.ending = Ending.COMPLETE

    @property
    def in_flight(self) -> int:
        """Requests sent and not ended; after the run, those that were given up by us."""
        return self.sent - self.ended

    async def run(self, trace: BlockTrace) -> None:
        """Send everything, or until the duration is over, `interrupt` is called, or the target refuses us.

        When the duration is over, what is in flight is waited for; otherwise it is given up.
        """
        self._requests, self._loop = trace.requests, ClosedLoop(trace.requests)
        self._start_s = self._clock()
        self._work = asyncio.ensure_future(self._send_all())
        try:
            await self._work
        except asyncio.CancelledError:
            if self.ending not in GIVEN_UP:
                raise

    def interrupt(self) -> None:
        """Send nothing more and give up what is in flight."""
        self._give_up(Ending.INTERRUPTED)

    def _give_up(self, ending: Ending) -> None:
        if self._work is not None and not self._work.done():
            self.ending = ending
            self._work.cancel()

    async def _send_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._schedule(group, sorted(self._loop.roots()))

    def _schedule(self, group: asyncio.TaskGroup, due: Iterable[tuple[float, int]]) -> None:
        for due_s, place in due:
            if self._is_within(due_s):
                group.create_task(self._play(group, place, due_s))

    def _is_within(self, now_s: float) -> bool:
        """Whether something may still be sent at that moment, in seconds since the start."""
        if self.ending in GIVEN_UP:
            return False
        if self._limits.duration_s is None or now_s < self._limits.duration_s:
            return True
        self.ending = Ending.DURATION
        return False

    def _now_s(self) -> float:
        return self._clock() - self._start_s

    async def _play(self, group: asyncio.TaskGroup, place: int, due_s: float) -> None:
        """Send one request when it is due, and let those that waited for it follow."""
        if (pause_s := due_s - self._now_s()) > 0:
            await self._sleep(pause_s)
        async with self._slots:
            if not self._is_within(self._now_s()):
                return
            request = self._requests[place]
            body = self._target.write_body(request)
            sent_s = self._now_s()
            self.sent += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._schedule(group, self._loop.start(place, sent_s))
            outcome = await self._send(request, body, max(0.0, sent_s - due_s))
            self.ended += 1
            ended_s = self._now_s()
            self._on_outcome(outcome)
            if self._is_hopeless(outcome):
                self._give_up(Ending.REFUSED)
        self._schedule(group, self._loop.end(place, ended_s))

    async def _send(self, request: BlockRequest, body: bytes, late_s: float) -> Outcome:
        """Send a request, again where it was refused for now and that is asked for."""
        retries, waited_s = 0, 0.0
        while True:
            made = await self._target.send(request, body)
            wait_s = find_wait_s(made) if retries < self._limits.retries else None
            if wait_s is None or not self._is_within(self._now_s() + wait_s):
                return Outcome(request, made, late_s, retries, waited_s)
            await self._sleep(wait_s)
            retries += 1
            waited_s += wait_s

    def _is_hopeless(self, outcome: Outcome) -> bool:
        """Whether the target refuses what it never took: a wrong key, address or model."""
        failure = outcome.exchange.failure
        self._has_succeeded = self._has_succeeded or failure is None
        return failure is not None and failure.kind in HOPELESS_KINDS and not self._has_succeeded


def find_wait_s(made: Exchange) -> float | None:
    """How long a refusal asks to wait, seconds; None where it is none or asks for too long."""
    if made.failure is None or made.failure.kind not in BUSY_KINDS:
        return None
    asked = made.failure.retry_after
    if asked is None:
        return USUAL_RETRY_S
    try:
        wait_s = float(asked) if asked.isdigit() else _seconds_between(made.headers.get("date", ""), asked)
    except ValueError:
        return USUAL_RETRY_S
    return max(0.0, wait_s) if wait_s <= LONGEST_RETRY_S else None


def _seconds_between(now: str, then: str) -> float:
    """From the target's own clock to the moment it named.

    Raises:
        ValueError: One of them is no date.
    """
    try:
        return (parsedate_to_datetime(then) - parsedate_to_datetime(now)).total_seconds()
    except TypeError as error:  # one with a zone, one without
        raise ValueError(str(error)) from error
