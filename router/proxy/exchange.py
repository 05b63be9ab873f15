"""The answer of a worker while it is under way: what came of it waits here until it is taken.

Filled by its connection, emptied by the task that serves the request, either piece by piece (`read`) or by a
function that takes each piece as it comes (`pour`), which spares a turn of the event loop a piece.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, Self

from router.errors import UpstreamError
from router.proxy.headers import Headers
from router.proxy.upstream import TakeChunks

#: A worker is not read from while this much of its answer waits to be taken.
MAX_WAITING_BYTES = 256 << 10


class Line(Protocol):
    """The connection of an exchange."""

    def pause(self) -> None:
        """Read nothing more for now."""

    def resume(self) -> None:
        """Read on."""

    def release(self, exchange: "PooledExchange") -> None:
        """The exchange is over."""


class PooledExchange:
    """See `upstream.Exchange`."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.status = 0
        self.headers: Headers = []
        #: Whether the head is there.
        self.has_head = False
        #: Whether all of it arrived.
        self.is_complete = False
        self._error: Exception | None = None
        self._pieces: list[bytes] = []
        self._is_paused = False
        #: Takes pieces as they come; None while they wait.
        self._take: Callable[[bytes], bool] | None = None
        #: Takes whole chunks, as long as pieces are taken; None where nobody does.
        self._take_chunks: TakeChunks | None = None
        #: Whether who took the last piece has no room for more.
        self._is_full = False
        self._waiter: asyncio.Future[None] | None = None

    # The connection's side

    def begin(self, status: int, headers: Headers) -> None:
        """The head came."""
        if self._error is None:
            self.status, self.headers, self.has_head = status, headers, True

    def put(self, piece: bytes) -> None:
        """A piece came."""
        self._pieces.append(piece)

    def complete(self) -> None:
        """Nothing more will come."""
        self.is_complete = True

    def fail(self, error: UpstreamError, cause: BaseException | None = None) -> None:
        """It breaks off here."""
        if self._error is None:
            error.__cause__ = cause
            self._error = error

    def hand_on(self) -> None:
        """Let those who wait have what came."""
        if self._take is not None and self._pieces:
            self._offer(self._take)
        elif sum(map(len, self._pieces)) > MAX_WAITING_BYTES:
            self._pause()
        if self._take is None or self.is_complete or self._error is not None:
            self._wake()

    def _offer(self, take: Callable[[bytes], bool]) -> None:
        try:
            self._is_full = take(self._gather())
        except Exception as error:  # noqa: BLE001  (raised where the answer is poured, not in the event loop)
            self._error = error
        if self._is_full:
            self._stop_taking()

    def pass_chunks(self, chunks: bytes) -> bool:
        """Whether what may be whole chunks was taken as it is."""
        if self._take_chunks is None:
            return False
        is_full: bool | None = False
        try:
            is_full = self._take_chunks(chunks)
        except Exception as error:  # noqa: BLE001  (as above)
            self._error = error
            self._wake()
        if is_full:
            self._is_full = True
            self._stop_taking()
            self._wake()
        return is_full is not None

    def _stop_taking(self) -> None:
        self._take = self._take_chunks = None
        self._pause()

    # The request's side

    async def wait_for_head(self) -> Self:
        """The exchange once the head is there; closed where there will be none, and where nobody waits any more.

        Raises:
            UnreadRequestError: The worker did not read the request.
            UpstreamClosedError: The connection ended before the head.
            GarbledAnswerError: The head is no HTTP.
        """
        try:
            while not self.has_head:
                await self._wait()
        except BaseException:
            self.close()
            raise
        return self

    async def read(self) -> bytes:
        """See `Exchange`."""
        while not self._pieces:
            if self.is_complete:
                return b""
            await self._wait()
        piece = self._gather()
        self._resume()
        return piece

    def take_whole(self) -> bytes | None:
        """See `Exchange`."""
        return self._gather() if self.is_complete else None

    async def pour(
        self,
        take: Callable[[bytes], bool],
        drain: Callable[[], Awaitable[None]],
        take_chunks: TakeChunks | None = None,
    ) -> None:
        """See `Exchange`."""
        while self._pieces or self._is_full or not self.is_complete:
            if self._is_full:
                self._is_full = False
                await drain()
            elif self._pieces:
                self._is_full = take(self._gather())
            else:
                await self._wait_taking(take, take_chunks)

    def close(self) -> None:
        """See `Exchange`."""
        self._resume()
        self._line.release(self)

    async def _wait_taking(self, take: Callable[[bytes], bool], take_chunks: TakeChunks | None) -> None:
        """Wait for the end, or until there is no room, while pieces are taken as they come."""
        self._take, self._take_chunks = take, take_chunks
        self._resume()
        try:
            await self._wait()
        finally:
            self._take = self._take_chunks = None

    def _wait(self) -> asyncio.Future[None]:
        """Is done once something has changed."""
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _gather(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._line.pause()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._line.resume()
