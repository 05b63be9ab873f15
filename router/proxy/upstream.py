"""Connections to workers: one request out, one answer back in the pieces that arrive.

`Upstream` is what the rest of the data plane knows; `pool.PooledUpstream` is the one production form.
Answers come undecoded: no decompression, no charset (docs/faults.md C08).
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from router.errors import FleetError, UpstreamError
from router.proxy.headers import Headers


class GarbledAnswerError(UpstreamError):
    """The worker answered something that is not the HTTP or JSON it should be."""

    code = "upstream_garbled"


class OutOfSocketsError(FleetError):
    """This process or machine has no socket left for a connection: no fault of the worker."""

    code = "out_of_sockets"


#: Takes whole chunks as they came, framing and all; whether it has no room for more, None where it does not take them.
TakeChunks = Callable[[bytes], bool | None]


class Exchange(Protocol):
    """One answer under way. Ends with `close` on every path."""

    status: int
    headers: Headers

    async def read(self) -> bytes:
        """The next piece as it arrived, empty at the end.

        Raises:
            UpstreamClosedError: The connection ended before the answer did.
            GarbledAnswerError: The bytes are no HTTP.
        """

    def take_whole(self) -> bytes | None:
        """All that is left of the answer where it has arrived, so that nobody waits; else None, and `read` tells."""

    async def pour(
        self,
        take: Callable[[bytes], bool],
        drain: Callable[[], Awaitable[None]],
        take_chunks: TakeChunks | None = None,
    ) -> None:
        """Give every further piece to `take` as it arrives, until the end.

        Args:
            take: Takes a piece; whether there is no room for more.
            drain: Waits until there is; the worker is not read from meanwhile.
            take_chunks: Is offered what may be whole chunks before their framing is taken off.

        Raises:
            UpstreamError: As `read` does.
        """

    def close(self) -> None:
        """Give the connection back when the answer was read to its end, else close it at once."""


async def read_whole(
    exchange: Exchange, *, whose: str, limit_bytes: int, see: Callable[[int], None] | None = None
) -> bytes:
    """What is left of an answer, in one piece.

    Args:
        exchange: The answer under way.
        whose: Whose it is, in words.
        limit_bytes: More than that is refused.
        see: Is told at each piece how many bytes came before it.

    Raises:
        UpstreamError: As `Exchange.read` does.
        GarbledAnswerError: It is longer.
    """
    body = exchange.take_whole()
    if body is None:
        body = await _read_pieces(exchange, limit_bytes, see)
    if len(body) > limit_bytes:
        raise GarbledAnswerError(f"{whose} answer is longer than {limit_bytes} bytes")
    return body


async def _read_pieces(exchange: Exchange, limit_bytes: int, see: Callable[[int], None] | None) -> bytes:
    """What is left of an answer, or its beginning where it is longer than it may be."""
    pieces: list[bytes] = []
    size_bytes = 0
    while size_bytes <= limit_bytes and (piece := await exchange.read()):
        if see is not None:
            see(size_bytes)
        pieces.append(piece)
        size_bytes += len(piece)
    return b"".join(pieces)


class Upstream(Protocol):
    """Opens exchanges with workers."""

    def open(self, url: str, headers: Headers, body: bytes, *, method: str = "POST") -> Coroutine[Any, Any, Exchange]:
        """Send a request and wait for the answer's head.

        Raises:
            UpstreamUnreachableError: No connection came about; the worker saw nothing of the request.
            OutOfSocketsError: None could be tried.
            UpstreamClosedError: The connection ended before the head.
            GarbledAnswerError: The head is no HTTP.
        """
