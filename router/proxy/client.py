"""The client's end of one call: its body comes in, an answer goes out, and it may leave at any time.

`Client` is what the data plane knows; `AsgiClient` is one behind an ASGI server. Writing never waits: whoever writes
much asks `is_full` and then waits in `drain`, so that a client which reads slowly slows its worker and nobody else.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Protocol

from router.errors import BodyTooLargeError
from router.proxy.headers import Headers

Scope = dict[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Any, Receive, Send], Awaitable[None]]


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class Client(Protocol):
    """One call's client. An answer is `start`, any number of `write`, `end`; or `answer` alone."""

    #: Whether its header lines were counted when they came, and are no more than are taken.
    has_checked_head: bool

    async def receive_body(self, limit_bytes: int) -> bytes:
        """The whole body.

        Raises:
            BodyTooLargeError: It is longer than `limit_bytes`; the rest is not read.
            ClientGoneError: The client left.
        """

    def watch(self, gone: Callable[[], None]) -> None:
        """Call `gone` once, should the client leave. After its body was received."""

    def unwatch(self) -> None:
        """Call nobody."""

    def start(self, status: int, headers: Headers) -> None:
        """Head of an answer whose pieces follow. Its lines say nothing of its length."""

    def write(self, piece: bytes) -> None:
        """One piece."""

    @property
    def takes_chunks(self) -> bool:
        """Whether pieces go out in chunks of HTTP/1.1; known once it was started."""

    def write_chunks(self, chunks: bytes) -> None:
        """Pieces in chunks already; where it takes them."""

    def end(self, piece: bytes = b"") -> None:
        """The last piece."""

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """A complete answer; its length is said here and nowhere else."""

    @property
    def is_full(self) -> bool:
        """Whether to wait in `drain` before more is written."""

    def count_unsent(self) -> int:
        """What was written and has not reached the client, in any unit: changes while it takes something."""

    async def drain(self) -> None:
        """Wait until there is room again, or the client is gone."""


#: Serves a call of a client.
Endpoint = Callable[[Scope, Client], Awaitable[None]]


class AsgiClient:
    """The client of an ASGI call."""

    has_checked_head = False

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._written: list[Message] = []
        self._listener: asyncio.Task[None] | None = None

    async def receive_body(self, limit_bytes: int) -> bytes:
        """See `Client`."""
        pieces: list[bytes] = []
        size_bytes = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece = message.get("body", b"")
            size_bytes += len(piece)
            if size_bytes > limit_bytes:
                raise BodyTooLargeError(f"the body is longer than the limit of {limit_bytes} bytes")
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def watch(self, gone: Callable[[], None]) -> None:
        """See `Client`."""
        self._listener = asyncio.get_running_loop().create_task(self._listen(gone))

    def unwatch(self) -> None:
        """See `Client`."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()

    async def _listen(self, gone: Callable[[], None]) -> None:
        with suppress(asyncio.CancelledError):
            while (await self._receive())["type"] != "http.disconnect":
                continue
            if self._listener is not None:
                gone()

    def start(self, status: int, headers: Headers) -> None:
        """See `Client`."""
        self._written.append({"type": "http.response.start", "status": status, "headers": headers})

    def write(self, piece: bytes) -> None:
        """See `Client`."""
        self._written.append({"type": "http.response.body", "body": piece, "more_body": True})

    @property
    def takes_chunks(self) -> bool:
        """See `Client`; the server frames."""
        return False

    def write_chunks(self, chunks: bytes) -> None:  # noqa: ARG002  (of an interface)
        """See `Client`.

        Raises:
            RuntimeError: Always: `takes_chunks` says that nobody may ask for it.
        """
        raise RuntimeError("chunks are written by the server itself")

    def end(self, piece: bytes = b"") -> None:
        """See `Client`."""
        self._written.append({"type": "http.response.body", "body": piece, "more_body": False})

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """See `Client`."""
        self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        self.end(body)

    @property
    def is_full(self) -> bool:
        """See `Client`; what is written goes out in `drain` alone."""
        return bool(self._written)

    def count_unsent(self) -> int:
        """See `Client`."""
        return len(self._written)

    async def drain(self) -> None:
        """See `Client`."""
        # One whose sending is given up is still to be sent.
        while self._written:
            await self._send(self._written[0])
            del self._written[0]
