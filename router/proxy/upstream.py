"""Connections to workers: one request out, one answer back in the pieces that arrive.

`Upstream` is what the rest of the data plane knows; `AiohttpUpstream` is the one production form.
Answers come undecoded (no decompression, no charset), connections are pooled per worker without a common
bound, so that a worker that hangs holds up nobody else. Retries nothing.
Source: reference/peer-routers.md section 8 (clients measured), known-faults C06, C07, C08.
"""

import errno
import io
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol

import aiohttp
import yarl
from aiohttp import http_exceptions

from router.errors import FleetError, UpstreamClosedError, UpstreamError, UpstreamUnreachableError
from router.proxy.headers import Headers

#: Idle connections are closed before common servers close theirs (uvicorn: 5 s), so that a request does not
#: meet a closing one.
POOL_IDLE_S = 3.0
#: Bodies above this are written in pieces.
_WHOLE_BODY_BYTES = 256 << 10
#: Header lines that aiohttp would add where the client sent none.
_NOT_ADDED = frozenset({"User-Agent", "Accept", "Accept-Encoding", "Content-Type"})
#: Connections fail so where this process or machine is at its limits.
_OWN_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
_CONNECT_ERRORS = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, ssl.SSLError)


class GarbledAnswerError(UpstreamError):
    """The worker answered something that is not the HTTP or JSON it should be."""

    code = "upstream_garbled"


class OutOfSocketsError(FleetError):
    """This process or machine has no socket left for a connection: no fault of the worker."""

    code = "out_of_sockets"


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

    async def pour(self, take: Callable[[bytes], bool], drain: Callable[[], Awaitable[None]]) -> None:
        """Give every further piece to `take` as it arrives, until the end.

        Args:
            take: Takes a piece; whether there is no room for more.
            drain: Waits until there is; the worker is not read from meanwhile.

        Raises:
            UpstreamError: As `read` does.
        """

    def close(self) -> None:
        """Give the connection back when the answer was read to its end, else close it at once."""


class Upstream(Protocol):
    """Opens exchanges with workers."""

    async def open(self, url: str, headers: Headers, body: bytes, *, method: str = "POST") -> Exchange:
        """Send a request and wait for the answer's head.

        Raises:
            UpstreamUnreachableError: No connection came about; the worker saw nothing of the request.
            OutOfSocketsError: None could be tried.
            UpstreamClosedError: The connection ended before the head.
            GarbledAnswerError: The head is no HTTP.
        """


class AiohttpUpstream:
    """Upstream over an aiohttp session. Made inside the event loop that uses it; closed with `close`."""

    def __init__(self, *, connect_s: float, tls: ssl.SSLContext | None = None) -> None:
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=POOL_IDLE_S, ttl_dns_cache=30, ssl=True if tls is None else tls
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NOT_ADDED,
            trust_env=False,
        )

    async def open(self, url: str, headers: Headers, body: bytes, *, method: str = "POST") -> Exchange:
        """Send a request and wait for the answer's head; see `Upstream`."""
        lines = [(_text(name), _text(value)) for name, value in headers]
        data = body if len(body) <= _WHOLE_BODY_BYTES else io.BytesIO(body)
        try:
            response = await self._session.request(
                method, yarl.URL(url, encoded=True), data=data, headers=lines, allow_redirects=False
            )
        except _CONNECT_ERRORS as error:
            if getattr(error, "errno", None) in _OWN_ERRNOS:
                raise OutOfSocketsError("the router has no socket left to reach a worker; try again soon") from error
            raise UpstreamUnreachableError("the worker does not accept connections") from error
        except (aiohttp.ClientResponseError, http_exceptions.HttpProcessingError) as error:
            raise GarbledAnswerError("the worker's answer is not HTTP") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamClosedError("the worker closed the connection before it answered") from error
        return _AiohttpExchange(response)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


class _AiohttpExchange:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Headers = [(name.lower(), value) for name, value in response.raw_headers]

    async def read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, http_exceptions.HttpProcessingError, OSError) as error:
            raise UpstreamClosedError("the worker closed the connection before its answer was complete") from error

    async def pour(self, take: Callable[[bytes], bool], drain: Callable[[], Awaitable[None]]) -> None:
        while piece := await self.read():
            if take(piece):
                await drain()

    def close(self) -> None:
        if self._response.content.at_eof() and self._response.content.exception() is None:
            self._response.release()
        else:
            self._response.close()


def _text(line: bytes) -> str:
    """A header line for aiohttp, which writes UTF-8; the bytes come out as they were, or as their Latin-1 text."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")
