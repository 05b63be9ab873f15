"""The client of one request that came over a connection of our own server; see `client.Client`.

Takes what the connection's parser reads, writes answers in the framing that the client understands: a length where it
is known, chunks where it is not, and for HTTP/1.0 the end of the connection.
"""

import asyncio
import http
from collections.abc import Callable
from typing import Protocol

from router.errors import BodyTooLargeError
from router.proxy.client import ClientGoneError
from router.proxy.headers import Headers, encode_message

_PHRASES = {status.value: status.phrase.encode() for status in http.HTTPStatus}
_LINES = {status: b"HTTP/1.1 %d %b" % (status, _PHRASES.get(status, b"")) for status in range(100, 600)}
_BODILESS = frozenset({204, 304})


class Wire(Protocol):
    """The connection of a call."""

    is_full: bool

    def write(self, data: bytes) -> None:
        """Send; nothing happens where the client is gone."""

    def count_unsent(self) -> int:
        """Bytes that were written and have not reached the client."""

    async def drain(self) -> None:
        """Wait until there is room, or the client is gone."""


class DoorCall:
    """One request and its answer."""

    has_checked_head = True

    def __init__(self, wire: Wire, method: str, *, keeps_alive: bool, is_old: bool, expects_continue: bool) -> None:
        """Take what the head says.

        Args:
            wire: The connection.
            method: Of the request.
            keeps_alive: Whether the connection may serve another request.
            is_old: Whether the client speaks HTTP/1.0, which has no chunks.
            expects_continue: Whether it waits for a word before it sends its body.
        """
        self._wire = wire
        #: See `Client`.
        self.write_chunks = wire.write
        self._is_head = method == "HEAD"
        self._is_old = is_old
        self._expects_continue = expects_continue
        #: Whether the connection may serve another request.
        self.keeps_alive = keeps_alive
        # The body.
        self._pieces: list[bytes] = []
        #: Bytes of it that came.
        self.size_bytes = 0
        self._limit_bytes: int | None = None
        #: Whether all of the body arrived.
        self.is_received = False
        self._waiter: asyncio.Future[None] | None = None
        # The client and the answer.
        self.is_gone = False
        self._gone: Callable[[], None] | None = None
        self._is_chunked = False
        #: Whether the head of the answer was written, and whether its end was.
        self.is_started = False
        self.is_ended = False

    # The connection's side

    def put(self, piece: bytes) -> None:
        """A piece of the body came; what is over the limit is dropped."""
        self.size_bytes += len(piece)
        if self._limit_bytes is None or self.size_bytes <= self._limit_bytes:
            self._pieces.append(piece)
        else:
            self._pieces.clear()
            self._wake()

    def receive(self) -> None:
        """The body is complete."""
        self.is_received = True
        self._wake()

    def lose(self) -> None:
        """The client is gone."""
        self.is_gone = True
        self._wake()
        gone, self._gone = self._gone, None
        if gone is not None and not self.is_ended:
            gone()

    # The router's side, see `Client`

    async def receive_body(self, limit_bytes: int) -> bytes:
        """See `Client`."""
        self._limit_bytes = limit_bytes
        while self.size_bytes <= limit_bytes and not self.is_received:
            if self.is_gone:
                raise ClientGoneError
            if self._expects_continue:
                self._expects_continue = False
                self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        pieces, self._pieces = self._pieces, []
        if self.size_bytes > limit_bytes:
            raise BodyTooLargeError(f"the body is longer than the limit of {limit_bytes} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def watch(self, gone: Callable[[], None]) -> None:
        """See `Client`."""
        if self.is_gone:
            gone()
        else:
            self._gone = gone

    def unwatch(self) -> None:
        """See `Client`."""
        self._gone = None

    def start(self, status: int, headers: Headers) -> None:
        """See `Client`."""
        lines = headers
        if self._is_old:
            self.keeps_alive = False
        elif status not in _BODILESS and not self._is_head:
            self._is_chunked = True
            lines = [*headers, (b"transfer-encoding", b"chunked")]
        head = self._encode_head(status, lines)
        self.is_started = True
        self._wire.write(head)

    def write(self, piece: bytes) -> None:
        """See `Client`."""
        if piece and not self._is_head:
            self._wire.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece)

    @property
    def takes_chunks(self) -> bool:
        """See `Client`."""
        return self._is_chunked

    def end(self, piece: bytes = b"") -> None:
        """See `Client`."""
        self.write(piece)
        if self._is_chunked:
            self._wire.write(b"0\r\n\r\n")
        self.is_ended = True

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """See `Client`."""
        lines = headers if status in _BODILESS else [*headers, (b"content-length", b"%d" % len(body))]
        message = self._encode_head(status, lines, b"" if self._is_head or status in _BODILESS else body)
        self.is_started = True
        self._wire.write(message)
        self.is_ended = True

    @property
    def is_full(self) -> bool:
        """See `Client`."""
        return self._wire.is_full

    def count_unsent(self) -> int:
        """See `Client`."""
        return self._wire.count_unsent()

    async def drain(self) -> None:
        """See `Client`."""
        await self._wire.drain()

    def _encode_head(self, status: int, headers: Headers, body: bytes = b"") -> bytes:
        """The head of an answer, and what of its body goes out with it."""
        if not self.is_received:
            # What is left of the body would be read as the next request.
            self.keeps_alive = False
        if not self.keeps_alive:
            headers = [*headers, (b"connection", b"close")]
        return encode_message(_LINES[status], headers, body)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
