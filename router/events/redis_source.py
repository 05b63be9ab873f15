"""Reads the cache events that sidecars publish to Redis: one thread, one connection, all ranks.

A stream is a log, so that nothing is lost while the reader is away for less than what it keeps; what is missing shows
in the numbers, and a snapshot of the sidecar mends it. While Redis is away all that is known stays, and is believed
less the longer it lasts.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import redis

from router.events.rank import Wish
from router.events.table import FedRanks
from router.fleet.source import RankSource
from wire.ids import Target
from wire.malformed import Malformed
from wire.redis_entries import read_entry, read_life

_log = logging.getLogger("dovecote.events")
#: Longest wait for an answer, and pause before Redis is tried again.
LIMIT_S = 5.0
RETRY_S = 0.5
#: Longest that the thread waits for entries, so that commands and deadlines are seen in time.
_BLOCK_MS = 100
#: Entries read of one stream before the others get their turn.
_ENTRIES_A_TURN = 256


class RedisThread:
    """Streams of all ranks. Start once, stop once; commands may come from any thread."""

    def __init__(
        self,
        url: str,
        ranks: FedRanks,
        fetch_snapshot: Callable[[Target, int], None],
        *,
        retry_s: float = RETRY_S,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: Redis; may hold a password, so that it is never logged.
            ranks: Whom to tell.
            fetch_snapshot: Fetches a rank's snapshot soon, under a ticket.
            retry_s: Pause before Redis is tried again.
        """
        self._url = url
        self._ranks = ranks
        self._fetch_snapshot = fetch_snapshot
        self._retry_s = retry_s
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dovecote-redis", daemon=True)
        # What follows belongs to the thread alone.
        self._sources: dict[str, RankSource] = {}
        #: Id of the last entry read of each stream; absent before the first look at it.
        self._read: dict[str, bytes] = {}
        #: Streams that had more than is read in a turn when they were read last.
        self._behind: set[str] = set()
        self._is_away = False

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def open(self, source: RankSource) -> None:
        """Read a rank's stream soon, from the beginning of its publisher's life."""
        self._commands.put(lambda: self._open(source))

    def close(self, target: Target) -> None:
        """Read a rank's stream no more."""
        self._commands.put(lambda: self._close(target))

    def ask(self, target: Target, wish: Wish) -> None:
        """Carry out a rank's wish soon."""
        self._commands.put(lambda: self._ask(target, wish))

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                with redis.Redis.from_url(self._url, socket_timeout=LIMIT_S, socket_connect_timeout=LIMIT_S) as client:
                    client.ping()
                    self._see(is_away=False)
                    while not self._ending.is_set():
                        self._carry_out_commands()
                        self._read_turn(client)
            except (redis.RedisError, OSError, ValueError) as error:
                self._see(is_away=True, error=error)
                self._carry_out_commands()
                self._ending.wait(self._retry_s)

    def _see(self, *, is_away: bool, error: Exception | None = None) -> None:
        """Redis went or came back."""
        if is_away != self._is_away:
            self._is_away = is_away
            if is_away:
                _log.warning("redis_lost error=%s", type(error).__name__)
            else:
                _log.info("redis_back streams=%d", len(self._sources))
        for source in self._sources.values():
            self._ranks.on_silence(source.target, is_silent=is_away)

    def _carry_out_commands(self) -> None:
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _open(self, source: RankSource) -> None:
        self._close(source.target)
        if source.redis_stream is None:
            return
        self._sources[source.redis_stream] = source
        self._ranks.on_opened(source)
        self._ranks.on_silence(source.target, is_silent=self._is_away)

    def _close(self, target: Target) -> None:
        for name in [name for name, source in self._sources.items() if source.target == target]:
            del self._sources[name]
            self._read.pop(name, None)
            self._behind.discard(name)

    def _ask(self, target: Target, wish: Wish | None) -> None:
        if wish is not None and wish.snapshot is not None:
            self._fetch_snapshot(target, wish.snapshot)

    def _read_turn(self, client: "redis.Redis") -> None:
        for name in [name for name in self._sources if name not in self._read]:
            self._read[name] = _find_start(client, name)
            target = self._sources[name].target
            self._ask(target, self._ranks.on_connection(target, lost=False, stands=True))
        for source in list(self._sources.values()):
            self._ask(source.target, self._ranks.on_tick(source.target)[1])
        if not self._read:
            self._ending.wait(_BLOCK_MS / 1e3)
            return
        places: dict[Any, Any] = dict(self._read)
        told = _as_streams(client.xread(places, count=_ENTRIES_A_TURN, block=_BLOCK_MS))
        for name, entries in told:
            self._take(name, entries)
        for name in self._behind & self._sources.keys() - {name for name, _ in told}:
            self._see_lag(name, is_behind=False)

    def _take(self, name: str, entries: Sequence[tuple[bytes, Any]]) -> None:
        source = self._sources.get(name)
        if source is None or not entries:
            return
        self._read[name] = entries[-1][0]
        # What is no batch is counted as a message of no form.
        read = (read_entry(entry_id, fields) for entry_id, fields in entries)
        messages: Sequence[Sequence[bytes]] = [[b""] if isinstance(each, Malformed) else each for each in read]
        self._see_lag(name, is_behind=len(messages) == _ENTRIES_A_TURN)
        while messages:
            try:
                taken, wish = self._ranks.on_live(source.target, messages)
            except Exception:  # noqa: BLE001
                # One rank's defect must not end the streams of all others.
                _log.exception("event_stream_failed stream=%s", name)
                self._ranks.on_defect(source.target)
                taken, wish = 1, None
            self._ask(source.target, wish)
            messages = messages[taken:]

    def _see_lag(self, name: str, *, is_behind: bool) -> None:
        """Tell of streams that are behind, and once of those that are not any more."""
        if is_behind or name in self._behind:
            self._ranks.on_lag(self._sources[name].target, is_behind=is_behind)
        (self._behind.add if is_behind else self._behind.discard)(name)


def _find_start(client: "redis.Redis", name: str) -> bytes:
    """Id before the first entry of the publisher that has the stream now: what others left is not to be read."""
    last: Any = client.xrevrange(name, count=1)
    life = read_life(last[0][0]) if last else None
    return b"0-0" if life is None else b"%d-0" % life


def _as_streams(answer: Any) -> list[tuple[str, Sequence[tuple[bytes, Any]]]]:
    """Streams of an answer, in either generation of the protocol."""
    streams = answer.items() if isinstance(answer, dict) else answer or ()
    return [(name.decode(), entries) for name, entries in streams]
