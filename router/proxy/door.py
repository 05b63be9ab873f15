"""Connections of clients: HTTP/1.1 read strictly, answered by the data plane at once or by an ASGI application.

What two servers could read in two ways is refused and the connection closed: a length said twice or beside chunks, a
coding other than chunks, folded or bare line ends, lines without end. A request is served once the part of its head
and body that came with it is read; requests that came behind it wait their turn. Runs under uvicorn's server, which
listens, counts and ends.
Source: RFC 9112; docs/faults.md G07, G11, C14.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import httptools

from router.errors import DovecoteError
from router.proxy.client import Endpoint, Scope
from router.proxy.departed import has_departed
from router.proxy.door_call import DoorCall
from router.proxy.door_scope import find_address, make_scope
from router.proxy.error_form import encode_error
from router.proxy.framing import BadHttpError, read_framing
from router.proxy.headers import MAX_HEADER_BYTES, MAX_HEADER_LINES, HeadersTooLargeError, make_reader
from router.proxy.unsent import count_queued_bytes

_log = logging.getLogger("dovecote.door")

#: Requests of one connection that wait behind the one being served.
MAX_WAITING = 16
#: How long a client may stay silent between requests, also while it takes nothing of its answer.
IDLE_S = 65.0
#: How long a head may take in all, and a client stay silent in the middle of a body.
STALLED_S = 30.0
#: A body takes no longer than that and its length at this pace: one that drips keeps no connection.
MIN_BYTES_PER_S = 1_024.0
#: Nothing more is read while so much of the bodies of requests waits behind the one being served.
MAX_BEHIND_BYTES = 256 << 10
#: How often it is seen whether a client has left from whom nothing is read for that.
HELD_LOOK_S = 1.0
#: How long what a client still sends is taken and thrown away once it was answered: closing at once would take the
#: answer from it.
LINGER_S = 2.0

_JSON = (b"content-type", b"application/json")
_TOO_LARGE = HeadersTooLargeError(
    f"at most {MAX_HEADER_LINES} header lines of {MAX_HEADER_BYTES} bytes in all are taken"
)
_TOO_MANY = BadHttpError("too many requests at a time")
_TOO_MUCH_FRAMING = BadHttpError("a chunk's head or the trailer is too long")


class ServerState(Protocol):
    """What uvicorn's server knows of its connections."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]
    total_requests: int


class Door(asyncio.Protocol):
    """One connection."""

    def __init__(
        self, find_endpoint: Callable[[Scope], Endpoint], server: ServerState, app_state: dict[str, Any]
    ) -> None:
        """Wait for a client.

        Args:
            find_endpoint: What serves a call.
            server: Who listens.
            app_state: What the application's start left for its calls.
        """
        self._find_endpoint = find_endpoint
        self._server = server
        self._app_state = app_state
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        #: The head that is being read; what the parser tells of lines goes there at once.
        self._head = make_reader()
        self.on_header = self._head.add
        self._parser: Any = httptools.HttpRequestParser(self)
        self._addresses: dict[str, Any] = {}
        #: Calls in order: the first is served, or waits for a turn of the event loop to be.
        self._calls: deque[tuple[DoorCall, Scope]] = deque()
        self._serving: asyncio.Task[None] | None = None
        #: No request is taken any more, nothing more is read at all, nothing is written.
        self._is_ending = self._is_closing = self._is_mute = False
        self.is_full = False
        self._drained: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: When the client was last heard, when what it is sending began, and when it last took something.
        self._heard_s = self._begun_s = self._took_s = 0.0
        #: What it had not taken then.
        self._unsent_bytes = 0
        # The request that is being read.
        self._receiving: DoorCall | None = None
        self._url = b""
        self._head_bytes = 0
        self._is_in_head = False
        #: Bytes that came since its head, or since a piece of its body.
        self._framing_bytes = 0
        #: Bytes of bodies that came since one began to be served, of those behind it; reading is paused for them.
        self._behind_bytes = 0
        self._is_held = False
        #: What came behind requests that are still to be answered, and is none.
        self._refusal: DovecoteError | None = None

    # What the network tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = transport
        self._server.connections.add(self)
        own = transport.get_extra_info("socket")
        if own is not None and own.family in {socket.AF_INET, socket.AF_INET6}:
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        is_tls = transport.get_extra_info("sslcontext") is not None
        self._addresses = {
            "scheme": "https" if is_tls else "http",
            "server": find_address(transport.get_extra_info("sockname")),
            "client": find_address(transport.get_extra_info("peername")),
        }
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(STALLED_S, self.look)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self._is_closing or self._refusal is not None:
            return
        was_in_head = self._is_in_head
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The offer to speak something else is not taken; what follows it may be in that other language.
            self._is_closing = True
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, DovecoteError) else BadHttpError("this is not HTTP/1.1"))
            return
        if self._is_in_head and was_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEADER_BYTES:
                self._refuse(_TOO_LARGE)
                return
        if self._receiving is not None and self._framing_bytes > MAX_HEADER_BYTES:
            self._refuse(_TOO_MUCH_FRAMING)
            return
        if self._is_in_head or self._calls:
            # Blank lines between requests are nothing.
            self._heard_s = self._loop.time()
        self._hold_back()
        self._serve_next()

    def eof_received(self) -> None:
        """See asyncio."""

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """See asyncio."""
        self._server.connections.discard(self)
        self._is_closing, self._parser = True, None
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        for call, _ in self._calls:
            call.lose()

    def pause_writing(self) -> None:
        """See asyncio."""
        self.is_full = True
        self._drained = asyncio.Event()

    def resume_writing(self) -> None:
        """See asyncio."""
        self.is_full = False
        if self._drained is not None:
            self._drained.set()

    # What the parser tells

    def on_message_begin(self) -> None:
        """See httptools."""
        self._url, self._head_bytes, self._is_in_head = b"", 0, True
        self._head.begin()
        self._begun_s = self._loop.time()

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        self._url += url
        self._head.count(len(url))
        if len(self._url) > MAX_HEADER_BYTES:
            raise _TOO_LARGE

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._is_in_head = False
        version = self._parser.get_http_version()
        headers = self._head.take()
        if headers is None:
            raise _TOO_LARGE
        framing = read_framing(headers, version)
        if framing.has_body and self._parser.should_upgrade():
            raise BadHttpError("no other protocol is spoken here; send the request without the offer to upgrade")
        method = self._parser.get_method().decode("ascii")
        if len(self._calls) > MAX_WAITING:
            raise _TOO_MANY
        scope = make_scope(self._url, headers, method, version, self._addresses)
        # Each call may change its own.
        scope["state"] = self._app_state.copy()
        self._receiving = DoorCall(
            self,
            method,
            keeps_alive=self._parser.should_keep_alive(),
            is_old=version == "1.0",
            expects_continue=framing.expects_continue,
        )
        self._calls.append((self._receiving, scope))
        self._framing_bytes = 0

    def on_body(self, piece: bytes) -> None:
        """See httptools."""
        self._framing_bytes = 0
        if self._receiving is not None:
            self._receiving.put(piece)
            if self._receiving is not self._calls[0][0]:
                self._behind_bytes += len(piece)

    def on_message_complete(self) -> None:
        """See httptools."""
        if self._receiving is not None:
            self._receiving.receive()
            self._receiving = None

    # Serving

    def _hold_back(self) -> None:
        """Read no more while much waits behind the request being served: nobody has said how long it may be."""
        if self._behind_bytes > MAX_BEHIND_BYTES and not self._is_held:
            self._is_held = True
            self._transport.pause_reading()
            self._loop.call_later(HELD_LOOK_S, self._look_whether_gone)

    def _look_whether_gone(self) -> None:
        """A client is not heard leaving while nothing is read from it; the kernel knows once it has all it sent."""
        if not self._is_held or self._transport.is_closing():
            return
        if has_departed(self._transport.get_extra_info("socket")):
            self._transport.abort()
        else:
            self._loop.call_later(HELD_LOOK_S, self._look_whether_gone)

    def _read_on(self) -> None:
        """The next request is served."""
        self._behind_bytes = 0
        self._heard_s = self._begun_s = self._loop.time()
        if self._is_held and not self._transport.is_closing():
            self._is_held = False
            self._transport.resume_reading()

    def _serve_next(self) -> None:
        if self._calls and self._serving is None:
            call, scope = self._calls[0]
            self._serving = self._loop.create_task(self._serve(call, scope))
            self._server.tasks.add(self._serving)

    async def _serve(self, call: DoorCall, scope: Scope) -> None:
        try:
            await self._find_endpoint(scope)(scope, call)
        except Exception:  # noqa: BLE001
            # Our own defect: the client still gets an answer, and the log the story.
            _log.exception("call_failed method=%r path=%r", scope["method"], scope["path"][:200])
            if not call.is_started:
                call.answer(500, [_JSON], encode_error(DovecoteError("the router failed on this request")))
        finally:
            self._end_call(call)

    def _end_call(self, call: DoorCall) -> None:
        if self._serving is not None:
            self._server.tasks.discard(self._serving)
            self._serving = None
        self._server.total_requests += 1
        self._calls.popleft()
        if not call.is_ended and self.is_full:
            # A client that takes nothing is not waited for to tell it that there is no more.
            self._transport.abort()
        elif not call.is_ended or not call.keeps_alive or self._is_ending or self._is_closing:
            self._close()
        elif self._refusal is not None and not self._calls:
            self._answer_refusal(self._refusal)
        else:
            self._read_on()
            self._serve_next()

    def write(self, data: bytes) -> None:
        """See `door_call.Wire`."""
        if not (self._is_mute or self._transport.is_closing()):
            self._transport.write(data)

    def count_unsent(self) -> int:
        """See `door_call.Wire`; what the kernel still holds counts, of which a slow client takes a little at a time."""
        unsent_bytes: int = self._transport.get_write_buffer_size()
        return unsent_bytes + count_queued_bytes(self._transport.get_extra_info("socket"))

    async def drain(self) -> None:
        """See `door_call.Wire`."""
        if self.is_full and self._drained is not None:
            await self._drained.wait()

    def shutdown(self) -> None:
        """Asked by the server: close once nothing is under way."""
        self._is_ending = True
        if not self._calls:
            self._close()
        for call, _ in self._calls:
            call.keeps_alive = False

    def _refuse(self, error: DovecoteError) -> None:
        """Answer what cannot be read, after what came whole before it, and close.

        A call that broke off in its middle ends as if its client had left; with too many at a time all of them.
        """
        _log.info("connection_refused code=%s message=%r", error.code, error.message)
        if self._calls and self._calls[0][0] is not self._receiving and error is not _TOO_MANY:
            if self._receiving is not None:
                self._calls.pop()
            self._refusal, self._receiving, self._is_in_head = error, None, False
            self._serve_next()
            return
        if not self._calls or (self._calls[0][0] is self._receiving and not self._receiving.is_started):
            self._answer_refusal(error)
        for call, _ in self._calls:
            call.lose()
        self._close()

    def _answer_refusal(self, error: DovecoteError) -> None:
        refused = DoorCall(self, "POST", keeps_alive=False, is_old=False, expects_continue=False)
        refused.answer(error.status_code, [_JSON], encode_error(error))
        self._refusal = error
        self._close()

    def _close(self) -> None:
        """Close once what was written is sent, and what is still coming was taken."""
        self._is_closing = True
        if self._transport.is_closing():
            return
        is_amid = self._receiving or self._is_in_head or self._refusal
        if not is_amid or not self._transport.can_write_eof():
            # Should the client take nothing of what it is still owed, `look` ends it.
            self._transport.close()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_mute = True
        self._transport.write_eof()
        self._timer = self._loop.call_later(LINGER_S, self._transport.abort)

    def look(self) -> None:
        """Close a connection whose client does nothing for too long, unless it waits for its answer."""
        now_s = self._loop.time()
        left_s = self._find_end_s(now_s) - now_s
        if left_s <= 0:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(max(left_s, 1.0), self.look)

    def _find_end_s(self, now_s: float) -> float:
        """Until when the client has to do something."""
        if self.is_full or self._is_closing:
            unsent_bytes = self.count_unsent()
            if unsent_bytes != self._unsent_bytes:
                self._unsent_bytes, self._took_s = unsent_bytes, now_s
            return self._took_s + IDLE_S
        self._unsent_bytes = 0
        if self._is_in_head:
            return self._begun_s + STALLED_S
        if self._receiving is None or self._is_held:
            return now_s + STALLED_S if self._calls else self._heard_s + IDLE_S
        silent_s, slow_s = self._heard_s, self._begun_s + self._receiving.size_bytes / MIN_BYTES_PER_S
        return min(silent_s, slow_s) + STALLED_S


def make_door_class(find_endpoint: Callable[[Scope], Endpoint]) -> type[asyncio.Protocol]:
    """The class of connections that a server of uvicorn makes for every client."""

    class BoundDoor(Door):
        def __init__(
            self,
            config: object,  # noqa: ARG002  (uvicorn's signature)
            server_state: ServerState,
            app_state: dict[str, Any],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> None:
            super().__init__(find_endpoint, server_state, app_state)

    return BoundDoor
