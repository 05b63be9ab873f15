"""The production `Upstream`: HTTP/1.1 connections to workers, kept open between requests.

Each worker has connections of its own and as many as it needs, so that one that hangs holds up nobody else. The one
used last is used first; an idle one is closed before its worker would close it. A request is written once, and again
on a new connection only where an idle one turned out to be dead with the request unread.
Source: docs/faults.md C06, C07; RFC 9112 section 9.
"""

import asyncio
import re
import ssl
from functools import lru_cache
from urllib.parse import urlsplit

from router.errors import UpstreamUnreachableError
from router.lookout import Limit, Lookout
from router.open_files import is_own_limit
from router.proxy.connection import Connection, UnreadRequestError
from router.proxy.exchange import PooledExchange
from router.proxy.headers import Headers, encode_message
from router.proxy.upstream import OutOfSocketsError

#: Idle connections are closed before common servers close theirs (uvicorn: 5 s), so that a request does not
#: meet a closing one.
POOL_IDLE_S = 3.0
#: A worker that says how long it keeps idle connections is believed to this part.
_KEPT_PART = 0.5
_TARGET = re.compile(r"/[!-~]*+")
#: Longest target whose line is remembered: clients ask for a few paths over and over.
_MAX_KNOWN_CHARS = 256
_BODILESS_METHODS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class Origin:
    """One worker's address and its idle connections, the one used last at the end."""

    def __init__(self, base: str) -> None:
        """Read an address: scheme, host and port."""
        parts = urlsplit(base)
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.is_tls else 80)
        self.host_line = parts.netloc.rpartition("@")[2].encode()
        #: Connections there are, in use or idle.
        self.count = 0
        #: Connections that are coming about.
        self.opening = 0
        self.idle: dict[Connection, None] = {}

    def meet(self, connection: Connection) -> None:  # noqa: ARG002  (of an interface)
        """See `connection.Keeper`."""
        self.count += 1

    def keep(self, connection: Connection) -> None:
        """See `connection.Keeper`."""
        if connection.kept_s is not None and connection.kept_s * _KEPT_PART < 1.0:
            connection.abort()
        else:
            self.idle[connection] = None

    def lose(self, connection: Connection) -> None:
        """See `connection.Keeper`."""
        self.count -= 1
        self.idle.pop(connection, None)

    def take(self, now_s: float) -> Connection | None:
        """The connection to use next; None where a new one is needed."""
        while self.idle:
            connection, _ = self.idle.popitem()
            if connection.is_open and now_s < find_end_s(connection):
                return connection
            connection.abort()
        return None

    def close_old(self, now_s: float) -> None:
        """Close what was idle for long."""
        for connection in [each for each in self.idle if find_end_s(each) <= now_s]:
            del self.idle[connection]
            connection.abort()

    def close(self) -> None:
        """Close all that is idle."""
        while self.idle:
            self.idle.popitem()[0].abort()


def find_end_s(connection: Connection) -> float:
    """When an idle connection is better closed."""
    kept_s = POOL_IDLE_S if connection.kept_s is None else min(POOL_IDLE_S, connection.kept_s * _KEPT_PART)
    return (connection.idle_since_s or 0.0) + kept_s


class PooledUpstream:
    """Upstream over pooled connections. Made inside the event loop that uses it; closed with `close`."""

    def __init__(self, *, connect_s: float, lookout: Lookout | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Start without connections.

        Args:
            connect_s: How long a connection may take to come about, its handshake included.
            lookout: Sees that none takes longer.
            tls: How certificates of workers are checked; by the system's authorities unless told otherwise.
        """
        self._connect_s = connect_s
        self._lookout = Lookout() if lookout is None else lookout
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._origins: dict[str, Origin] = {}
        self._sweep: asyncio.TimerHandle | None = self._loop.call_later(POOL_IDLE_S, self._close_old)

    async def open(self, url: str, headers: Headers, body: bytes, *, method: str = "POST") -> PooledExchange:
        """Send a request and wait for the answer's head; see `Upstream`."""
        place = url.find("/", 8)
        origin, target = (self._find(url), "/") if place < 0 else (self._find(url[:place]), url[place:])
        head = encode_head(method, target, origin.host_line, headers, len(body))
        is_head_only = method == "HEAD"
        connection = origin.take(self._loop.time())
        if connection is not None:
            try:
                return await connection.ask(head, body, is_head_only=is_head_only).wait_for_head()
            except UnreadRequestError:
                pass
        connection = await self._connect(origin)
        return await connection.ask(head, body, is_head_only=is_head_only).wait_for_head()

    async def close(self) -> None:
        """Close every idle connection; those in use end with their exchanges."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for origin in self._origins.values():
            origin.close()
        # Gives the event loop the turn in which closed sockets go.
        await asyncio.sleep(0)

    def _find(self, base: str) -> Origin:
        origin = self._origins.get(base)
        if origin is None:
            origin = self._origins[base] = Origin(base)
        return origin

    async def _connect(self, origin: Origin) -> Connection:
        if origin.is_tls and self._tls is None:
            self._tls = ssl.create_default_context()
        connecting = self._loop.create_task(self._open_connection(origin))
        limit = Limit(self._loop.time() + self._connect_s, connecting.cancel)
        self._lookout.join(limit)
        origin.opening += 1
        try:
            connection = await connecting
        except asyncio.CancelledError as error:
            connecting.add_done_callback(_drop)
            if limit.has_struck and not is_cancelled():
                problem = f"the worker took no connection within {self._connect_s:g} s"
                raise UpstreamUnreachableError(problem) from error
            raise
        except (OSError, UnicodeError) as error:
            if is_own_limit(error):
                raise OutOfSocketsError("the router has no socket left to reach a worker; try again soon") from error
            raise UpstreamUnreachableError("the worker does not accept connections") from error
        finally:
            origin.opening -= 1
            self._lookout.leave(limit)
        if not connection.is_open:
            raise UpstreamUnreachableError("the worker closed the connection at once")
        return connection

    async def _open_connection(self, origin: Origin) -> Connection:
        _, connection = await self._loop.create_connection(
            lambda: Connection(origin), origin.host, origin.port, ssl=self._tls if origin.is_tls else None
        )
        return connection

    def _close_old(self) -> None:
        now_s = self._loop.time()
        for base, origin in list(self._origins.items()):
            origin.close_old(now_s)
            if not origin.count and not origin.opening:
                # Workers come and go; one that is asked again is known again at once.
                del self._origins[base]
        self._sweep = self._loop.call_later(POOL_IDLE_S / 2, self._close_old)


def is_cancelled() -> bool:
    """Whether the running task is to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _drop(connecting: "asyncio.Task[Connection]") -> None:
    """Nobody waits for a connection any more, though it may have come about."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().abort()


def encode_head(method: str, target: str, host: bytes, headers: Headers, body_bytes: int) -> bytes:
    """A request's head.

    Raises:
        ValueError: A part of it would end its line.
    """
    begin = _begin_known if len(target) <= _MAX_KNOWN_CHARS else _begin_head
    if body_bytes or method not in _BODILESS_METHODS:
        headers = [*headers, (b"content-length", b"%d" % body_bytes)]
    return encode_message(begin(method, target, host), headers, b"")


def _begin_head(method: str, target: str, host: bytes) -> bytes:
    if _TARGET.fullmatch(target) is None or b"\r" in host or b"\n" in host:
        raise ValueError(f"no target of a request: {target!r}, host {host!r}")
    return b"%s %s HTTP/1.1\r\nhost: %s" % (method.encode("ascii"), target.encode("ascii"), host)


_begin_known = lru_cache(maxsize=1_024)(_begin_head)
