"""Fetches snapshots from sidecars over HTTP, in threads of their own: the event thread never waits for one.

Parts of a snapshot are handed on as they are read, so that none is ever whole in memory; whoever takes them says
whether they are still wanted. Whatever goes wrong comes out as one `None`.
"""

import logging
import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import msgspec

from wire.malformed import Malformed
from wire.snapshot import SnapshotEnd, SnapshotPart, SnapshotReader

_log = logging.getLogger("dovecote.events")
#: Fetches at a time; the others wait their turn.
THREADS = 4
#: Longest wait for a fetch under way when stopping; its thread is a daemon.
_STOP_LIMIT_S = 1.0
#: Largest snapshot that is read.
MAX_SNAPSHOT_BYTES = 4 << 30
#: Slowest that one may come after a start of `_START_LIMITS` waits: one that drips would keep a thread for ever.
MIN_BYTES_PER_S = 1 << 20
_START_LIMITS = 3

Take = Callable[[SnapshotPart | None], bool]


class _Errand(msgspec.Struct, frozen=True):
    url: str
    take: Take


class _RefusedError(Exception):
    """The answer is no snapshot, or not a whole one."""


class SnapshotFetcher:
    """A few threads that fetch what they are told, one snapshot after the other."""

    def __init__(
        self,
        *,
        limit_s: float = 10.0,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet.

        Args:
            limit_s: Longest wait for the connection, and between two pieces of the answer.
            tls: How sidecars with `https://` are known; None believes the system's authorities.
            clock: Monotonic time.
        """
        self._limit_s = limit_s
        self._tls = tls
        self._clock = clock
        self._errands: queue.SimpleQueue[_Errand | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._is_stopping = False

    def fetch(self, url: str, take: Take) -> None:
        """Fetch a snapshot soon; `take` is called in another thread with each part, and with None for a failure.

        Where `take` says False the rest is not read and nothing more is said.
        """
        if len(self._threads) < THREADS:
            thread = threading.Thread(target=self._run, name="dovecote-snapshots", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._errands.put(_Errand(url, take))

    def stop(self) -> None:
        """End the threads; a fetch under way ends with its next piece."""
        self._is_stopping = True
        for _ in self._threads:
            self._errands.put(None)
        for thread in self._threads:
            thread.join(_STOP_LIMIT_S)

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None and not self._is_stopping:
            try:
                self._fetch(errand)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, _RefusedError) as error:
                _log.warning("snapshot_failed url=%s error=%r", errand.url, str(error) or type(error).__name__)
                errand.take(None)
            except Exception:  # noqa: BLE001
                # One rank's defect must not end the snapshots of all others.
                _log.exception("snapshot_failed url=%s", errand.url)
                errand.take(None)

    def _fetch(self, errand: _Errand) -> None:
        for part in self._read(errand.url):
            if self._is_stopping or not errand.take(part):
                return

    def _read(self, url: str) -> Iterator[SnapshotPart]:
        """Parts of a snapshot, the end last."""
        reader = SnapshotReader()
        size_bytes, since_s = 0, self._clock()
        with (
            httpx.Client(
                timeout=self._limit_s, trust_env=False, follow_redirects=False, verify=self._tls or True
            ) as client,
            client.stream("GET", url) as answer,
        ):
            if answer.status_code != 200:
                raise _RefusedError(f"answers {answer.status_code}")
            for piece in answer.iter_bytes():
                size_bytes += len(piece)
                if size_bytes > MAX_SNAPSHOT_BYTES:
                    raise _RefusedError("larger than any snapshot")
                if self._clock() - since_s > _START_LIMITS * self._limit_s + size_bytes / MIN_BYTES_PER_S:
                    raise _RefusedError("comes too slowly")
                for part in reader.feed(piece):
                    if isinstance(part, Malformed):
                        raise _RefusedError(part.reason)
                    yield part
                    if isinstance(part, SnapshotEnd):
                        return
        raise _RefusedError("ends in the middle")
