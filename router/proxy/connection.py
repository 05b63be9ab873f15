"""One HTTP/1.1 connection to a worker, and the answer that is under way on it. Knows nothing of other connections.

httptools reads strictly; what it tells is handed on once for every piece that came from the network, so that a stream
costs by what arrives and not by how the worker cut it. Whether a request that met a dying connection may be sent again
is told from how the connection died, see `Connection._is_unread`.
Source: RFC 9112 sections 6.3, 9.3 and 9.6; tcp(7) and linux/tcp.h for `tcpi_bytes_acked`; docs/faults.md C07.
"""

import asyncio
import socket
import struct
from typing import Any, Protocol

import httptools

from router.errors import UpstreamClosedError
from router.proxy.exchange import PooledExchange
from router.proxy.headers import MAX_HEADER_BYTES, Headers, make_reader
from router.proxy.upstream import GarbledAnswerError

#: A connection reset this soon after a request was written was closed with that request unread. Longer than any
#: kernel waits before it acknowledges (Linux: 0.2 s).
RESET_S = 0.25
#: Bytes of ours that the peer's kernel took, in `struct tcp_info`; counts the opening of the connection as one.
_ACKED = struct.Struct("=Q")
_ACKED_OFFSET = 120
_BODILESS = frozenset({204, 304})


class UnreadRequestError(UpstreamClosedError):
    """The connection was gone before the worker read the request: it may be sent again on another one."""


class Keeper(Protocol):
    """Owns connections."""

    def meet(self, connection: "Connection") -> None:
        """It came about."""

    def keep(self, connection: "Connection") -> None:
        """It can carry another exchange."""

    def lose(self, connection: "Connection") -> None:
        """It is gone."""


class Connection(asyncio.Protocol):
    """A connection; carries one exchange at a time."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        #: The head of its answer; what the parser tells of lines goes there at once.
        self._head = make_reader()
        self.on_header = self._head.add
        self._parser: Any = httptools.HttpResponseParser(self)
        self._is_tls = False
        self._is_sound = True
        #: Since when nothing was asked on it; None before the first answer.
        self.idle_since_s: float | None = None
        #: How long the worker says that it keeps it idle; None where it says nothing.
        self.kept_s: float | None = None
        # The request under way.
        self._exchange: PooledExchange | None = None
        self._is_head_only = False
        self._begun_s = 0.0
        self._written_bytes = 0
        self._acked_before: int | None = 0
        # Its answer as far as it was read.
        #: Bytes that came since the request was written, or since a piece of the answer's body.
        self._received_bytes = 0
        self._is_informational = False
        #: Whether the parser read exactly to the end of a chunk, so that it need not see the next one.
        self._is_between_chunks = False
        self._ends_with_connection = False

    @property
    def is_open(self) -> bool:
        """Whether a request can be written."""
        return self._is_sound and not self._transport.is_closing()

    def ask(self, head: bytes, body: bytes, *, is_head_only: bool) -> PooledExchange:
        """Write a request. The head of its answer is waited for at the exchange, which may find the request unread.

        Args:
            head: Request line and header lines, with the empty one.
            body: The body.
            is_head_only: Whether the answer has no body, whatever its lines say.
        """
        exchange = self._exchange = PooledExchange(self)
        self._is_head_only, self._begun_s = is_head_only, self._loop.time()
        self._acked_before = self._count_acked() if self._is_tls else self._written_bytes + 1
        self._written_bytes += len(head) + len(body)
        self._transport.writelines((head, body))
        return exchange

    # What the exchange asks for

    def release(self, exchange: PooledExchange) -> None:
        """An exchange is over: its connection serves another one, or is closed at once."""
        if self._exchange is not exchange:
            return
        self._exchange = None
        if not (exchange.is_complete and self.is_open and self._transport.get_write_buffer_size() == 0):
            self.abort()
            return
        self._received_bytes = 0
        self.idle_since_s = self._loop.time()
        self._keeper.keep(self)

    def abort(self) -> None:
        """Close at once; what was not sent yet is dropped."""
        self._is_sound = False
        self._transport.abort()

    def pause(self) -> None:
        """Read nothing more for now."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # What the network tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = transport
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._keeper.meet(self)
        own = transport.get_extra_info("socket")
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        exchange = self._exchange
        if exchange is None or exchange.is_complete:
            # Nobody asked for this: it must not become the answer to a later request.
            self.abort()
            return
        if self._is_between_chunks and exchange.pass_chunks(data):
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._is_sound = False
            if not exchange.is_complete:
                exchange.fail(GarbledAnswerError("the worker's answer is not HTTP"), error)
        if self._received_bytes > MAX_HEADER_BYTES and not exchange.is_complete:
            part = "a chunk's head or the trailer" if exchange.has_head else "the head"
            exchange.fail(GarbledAnswerError(f"{part} of the worker's answer is too long"))
        self._is_between_chunks = self._is_between_chunks and data.endswith(b"\r\n")
        exchange.hand_on()

    def eof_received(self) -> None:
        """See asyncio."""
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        self._end(error)
        # Parser and connection hold each other.
        self._parser = None
        self._keeper.lose(self)

    def _end(self, error: Exception | None) -> None:
        self._is_sound = False
        exchange = self._exchange
        if exchange is None or exchange.is_complete:
            return
        if error is None and exchange.has_head and self._ends_with_connection:
            exchange.complete()
        elif exchange.has_head:
            exchange.fail(UpstreamClosedError("the worker closed the connection before its answer was complete"), error)
        else:
            kind = UnreadRequestError if self._is_unread(error) else UpstreamClosedError
            exchange.fail(kind("the worker closed the connection before it answered"), error)
        exchange.hand_on()

    def _is_unread(self, error: Exception | None) -> bool:
        """Whether the worker cannot have read the request that is under way.

        Only on a connection that stood idle, of whose answer not a byte came. Its end crossed the request on the way
        where the worker's kernel had taken nothing of it; an end in order tells what it took. A reset does not, but
        that a kernel resets at once means that the socket was gone, or was closed with bytes in it that nobody had
        read. (Not for a worker that reads a request, begins, and within `RESET_S` drops its connection with
        `SO_LINGER` 0; no HTTP server is known to.) After an end in order behind the request the worker may have begun.
        """
        if self.idle_since_s is None or self._received_bytes:
            return False
        if isinstance(error, ConnectionResetError | BrokenPipeError):
            return self._loop.time() - self._begun_s <= RESET_S or not self._is_acked()
        return error is None and not self._is_acked()

    def _is_acked(self) -> bool:
        """Whether the worker's kernel took some of the request; also where that cannot be told."""
        acked = self._count_acked()
        return acked is None or self._acked_before is None or acked > self._acked_before

    def _count_acked(self) -> int | None:
        """Bytes of this connection that the peer's kernel took; None where this system does not tell."""
        try:
            own = self._transport.get_extra_info("socket")
            (acked,) = _ACKED.unpack_from(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), _ACKED_OFFSET)
        except (AttributeError, OSError, struct.error):
            return None
        return int(acked)

    # What the parser tells

    def on_message_begin(self) -> None:
        """See httptools."""
        if self._exchange is None or self._exchange.is_complete:
            self._is_sound = False
        else:
            self._head.begin()

    def on_headers_complete(self) -> None:
        """See httptools."""
        exchange = self._exchange
        if exchange is None or exchange.has_head:
            return
        status = self._parser.get_status_code()
        self._is_informational = status < 200
        if self._is_informational:
            return
        headers = self._head.take()
        if headers is None:
            self._is_sound = False
            exchange.fail(GarbledAnswerError("the head of the worker's answer is too long"))
            return
        self._read_framing(status, headers)
        exchange.begin(status, headers)
        if self._is_head_only:
            self._is_sound = False
            exchange.complete()

    def _read_framing(self, status: int, headers: Headers) -> None:
        has_length = status in _BODILESS
        for name, value in headers:
            if name == b"content-length" or (name == b"transfer-encoding" and value.lower().endswith(b"chunked")):
                has_length = True
            elif name == b"keep-alive":
                self.kept_s = read_kept_s(value)
        self._ends_with_connection = not has_length

    def on_body(self, piece: bytes) -> None:
        """See httptools."""
        self._received_bytes = 0
        if self._exchange is not None and not self._exchange.is_complete:
            self._exchange.put(piece)

    def on_chunk_header(self) -> None:
        """See httptools."""
        self._is_between_chunks = False

    def on_chunk_complete(self) -> None:
        """See httptools."""
        self._is_between_chunks = True

    def on_message_complete(self) -> None:
        """See httptools."""
        self._is_between_chunks = False
        exchange = self._exchange
        if self._is_informational:
            self._is_informational = False
        elif exchange is not None and not exchange.is_complete:
            self._is_sound = self._is_sound and self._parser.should_keep_alive()
            exchange.complete()


def read_kept_s(value: bytes) -> float | None:
    """How long a `Keep-Alive` line says that an idle connection is kept; None where it does not say."""
    for part in value.split(b","):
        name, _, said = part.strip().partition(b"=")
        if name.lower() == b"timeout" and said.isdigit():
            return float(said[:9])
    return None
