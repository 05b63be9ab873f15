"""Two legs under way as one exchange: carries out what `Legs` decides, and is read like a single worker's answer.

The first word of either leg becomes a stimulus at once, from whichever task hears it. The prefill leg goes on behind
the answer until its own end or its limit; a failure of it before the model's first output ends the answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from router.errors import DovecoteError, UpstreamError, UpstreamTimeoutError, UpstreamUnreachableError
from router.lookout import Limit, Lookout
from router.proxy.headers import Headers, find_header
from router.proxy.legs.machine import (
    Abort,
    Answered,
    Begin,
    Deliver,
    Ended,
    Fail,
    Failed,
    FirstOutput,
    Leg,
    Legs,
    Order,
    Refused,
    Release,
    Retry,
    Send,
    Stimulus,
    Stopped,
    TimedOut,
)
from router.proxy.upstream import Exchange, TakeChunks, read_whole
from router.proxy.whole_answer import read_answer

_log = logging.getLogger("dovecote.proxy")
#: Longest answer of a prefill leg that is kept.
MAX_PREFILL_ANSWER_BYTES = 64 << 20


class PrefillError(UpstreamError):
    """A prefill worker said that it failed."""

    code = "prefill_failed"


class PhaseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the phases of a pair may take."""

    prefill_s: float = 300.0
    handoff_s: float = 30.0


class WholeAnswer(msgspec.Struct):
    """An answer that was read already."""

    status: int
    headers: Headers
    body: bytes


class PairEdge(Protocol):
    """What a pair's legs are sent with, and who hears of them."""

    async def open_leg(self, leg: Leg) -> Exchange:
        """Send a leg and wait for its answer's head; raises as `Upstream.open` does."""

    def take_prefill(self, answer: WholeAnswer) -> None:
        """The prefill leg did its part.

        Raises:
            UpstreamError: Its answer lacks what the decode leg needs.
        """

    def abort_leg(self, leg: Leg) -> None:
        """Tell a leg's engine to give up."""

    def release_prefill(self, *, is_done: bool) -> None:
        """The prefill rank is free of the request."""

    def blame(self, leg: Leg) -> None:
        """What the client is told is about this leg's worker."""

    def hold(self, task: "asyncio.Task[None]") -> None:
        """Keep a task that may outlive the request."""


class PairExchange:
    """One request's two legs; an `Exchange` once `open` has returned."""

    def __init__(self, edge: PairEdge, order: Order, limits: PhaseLimits, lookout: Lookout, *, is_stream: bool) -> None:
        self._edge = edge
        self._legs = Legs(order)
        self._limits = limits
        self._lookout = lookout
        self._is_stream = is_stream
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Leg, asyncio.Task[None]] = {}
        self._running_out: dict[Leg, Limit] = {}
        self._decided: asyncio.Future[Deliver | Fail | Retry] = self._loop.create_future()
        self._failed: asyncio.Future[Leg] = self._loop.create_future()
        #: What went wrong with a leg.
        self.errors: dict[Leg, DovecoteError] = {}
        self.prefill_answer: WholeAnswer | None = None
        self._decode: Exchange | None = None
        self._first_piece: bytes | None = None
        self.status = 0
        self.headers: Headers = []

    async def open(self) -> Deliver | Fail | Retry:
        """Send the legs and wait until one of them decides what the client gets."""
        self._feed(Begin())
        try:
            return await self._decided
        except BaseException:
            self._feed(Stopped())
            raise

    def see_output(self) -> None:
        """The model's first output reached the client."""
        self._feed(FirstOutput())

    # The answer, read by whoever carries it to the client

    async def read(self) -> bytes:
        """See `Exchange`."""
        piece, self._first_piece = self._first_piece, None
        if piece is None:
            piece = await self._read_decode()
        if not piece:
            self._feed(Ended(Leg.DECODE))
        return piece

    def take_whole(self) -> None:
        """See `Exchange`; each leg may still fail the other."""

    async def pour(
        self,
        take: Callable[[bytes], bool],
        drain: Callable[[], Awaitable[None]],
        take_chunks: TakeChunks | None = None,
    ) -> None:
        """See `Exchange`."""
        while not self._legs.has_output:
            piece = await self.read()
            if not piece:
                return
            if take(piece):
                await drain()
        try:
            await self._exchange.pour(take, drain, take_chunks)
        except UpstreamError as error:
            self._lose(Leg.DECODE, error)
            raise
        self._feed(Ended(Leg.DECODE))

    def close(self) -> None:
        """Give up what is under way, but for a prefill leg whose part is done: it ends by itself."""
        if self._legs.is_open(Leg.DECODE):
            self._feed(Stopped())
        if self._decode is not None:
            self._decode.close()

    @property
    def _exchange(self) -> Exchange:
        if self._decode is None:
            raise RuntimeError("a pair is read after it was opened")
        return self._decode

    async def _read_decode(self) -> bytes:
        if self._failed.done():
            raise self.errors[self._failed.result()]
        reading = asyncio.ensure_future(self._exchange.read())
        try:
            if not self._legs.has_output:
                either: set[asyncio.Future[Any]] = {reading, self._failed}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if self._failed.done():
                    raise self.errors[self._failed.result()]
            return await reading
        except UpstreamError as error:
            self._lose(Leg.DECODE, error)
            raise
        finally:
            reading.cancel()

    # What the machine says

    def _feed(self, stimulus: Stimulus) -> None:
        for instruction in self._legs.handle(stimulus):
            if isinstance(instruction, Deliver | Fail):
                self._edge.blame(instruction.leg)
            self._perform(instruction)

    def _perform(self, instruction: object) -> None:
        match instruction:
            case Send(leg):
                task = self._tasks[leg] = self._loop.create_task(self._run(leg))
                self._edge.hold(task)
                if leg is Leg.PREFILL:
                    self._limit(leg, self._limits.prefill_s)
                elif self._is_stream and not self._legs.is_open(Leg.PREFILL):
                    self._limit(leg, self._limits.handoff_s)
            case Abort(leg):
                self._stop(leg)
                self._edge.abort_leg(leg)
            case Release(is_done):
                self._edge.release_prefill(is_done=is_done)
            case Fail(leg) if self._decided.done():
                if not self._failed.done():
                    self._failed.set_result(leg)
            case Deliver() | Fail() | Retry() if not self._decided.done():
                self._decided.set_result(instruction)

    def _stop(self, leg: Leg) -> None:
        self._unlimit(leg)
        task = self._tasks.get(leg)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        if leg is Leg.DECODE and self._decode is not None:
            self._decode.close()

    def _limit(self, leg: Leg, limit_s: float) -> None:
        self._unlimit(leg)
        limit = Limit(self._loop.time() + limit_s, partial(self._expire, leg, limit_s))
        self._running_out[leg] = limit
        self._lookout.join(limit)

    def _unlimit(self, leg: Leg) -> None:
        limit = self._running_out.pop(leg, None)
        if limit is not None:
            self._lookout.leave(limit)

    def _expire(self, leg: Leg, limit_s: float) -> None:
        words = {
            Leg.PREFILL: f"the prefill worker was not done within {limit_s:g} s",
            Leg.DECODE: f"the decode worker gave nothing within {limit_s:g} s of the prefill's end",
        }
        self.errors.setdefault(leg, UpstreamTimeoutError(words[leg]))
        self._feed(TimedOut(leg))

    def _lose(self, leg: Leg, error: DovecoteError) -> None:
        """A leg broke off."""
        self._unlimit(leg)
        self.errors.setdefault(leg, error)
        self._feed(Refused(leg) if isinstance(error, UpstreamUnreachableError) else Failed(leg))

    # The legs

    async def _run(self, leg: Leg) -> None:
        try:
            await (self._run_prefill() if leg is Leg.PREFILL else self._run_decode())
        except UpstreamError as error:
            self._lose(leg, _blame(error, leg))
        except DovecoteError as error:
            self._lose(leg, error)
        except Exception:  # noqa: BLE001
            # Our own defect: whoever waits for the pair must hear of it.
            _log.exception("leg_failed leg=%s", leg)
            self._lose(leg, DovecoteError("the router failed on this request"))

    async def _run_prefill(self) -> None:
        exchange = await self._edge.open_leg(Leg.PREFILL)
        try:
            body = await read_whole(exchange, whose="the prefill worker's", limit_bytes=MAX_PREFILL_ANSWER_BYTES)
            answer = WholeAnswer(exchange.status, exchange.headers, body)
        finally:
            exchange.close()
        is_good = 200 <= answer.status < 300 and not tells_error(answer.body)
        if is_good:
            self._edge.take_prefill(answer)
        else:
            problem = f"the prefill worker answered with {'an error and ' if answer.status < 300 else ''}status"
            self.errors[Leg.PREFILL] = PrefillError(f"{problem} {answer.status}")
        self._unlimit(Leg.PREFILL)
        if is_good and self._is_stream and self._legs.is_open(Leg.DECODE) and not self._legs.is_decided:
            self._limit(Leg.DECODE, self._limits.handoff_s)
        self.prefill_answer = answer
        self._feed(Ended(Leg.PREFILL, is_good))

    async def _run_decode(self) -> None:
        exchange = await self._edge.open_leg(Leg.DECODE)
        self._decode = exchange
        try:
            piece = await exchange.read()
        except BaseException:
            exchange.close()
            raise
        self._unlimit(Leg.DECODE)
        self._first_piece, self.status, self.headers = piece, exchange.status, exchange.headers
        is_good = 200 <= exchange.status < 300
        self._feed(Answered(is_good))
        content_type = find_header(exchange.headers, b"content-type") or b""
        if is_good and piece and not content_type.startswith(b"text/event-stream"):
            # A whole answer comes when all is generated.
            self._feed(FirstOutput())


def tells_error(body: bytes) -> bool:
    """Whether a whole answer is an error, whatever its status says; a stream's are found where it is read."""
    answer = read_answer(body)
    return answer is not None and answer.error_status is not None


def _blame(error: UpstreamError, leg: Leg) -> UpstreamError:
    """The error with the leg that it is about."""
    error.message = f"{error.message} ({leg} leg)"
    return error


class ReadAnswer:
    """A whole answer as an exchange."""

    def __init__(self, answer: WholeAnswer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._body = answer.body

    async def read(self) -> bytes:
        """See `Exchange`."""
        return self.take_whole()

    def take_whole(self) -> bytes:
        """See `Exchange`."""
        body, self._body = self._body, b""
        return body

    async def pour(
        self,
        take: Callable[[bytes], bool],
        drain: Callable[[], Awaitable[None]],
        take_chunks: TakeChunks | None = None,  # noqa: ARG002  (of an interface)
    ) -> None:
        """See `Exchange`."""
        if (body := await self.read()) and take(body):
            await drain()

    def close(self) -> None:
        """See `Exchange`."""
