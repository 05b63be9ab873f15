"""Publishes a mirror's batches to Redis streams, one a rank, so that any number of routers can read them.

A thread of its own takes what is new out of the mirrors' journals; there is no second queue, and the sockets never
wait for Redis. While Redis is away the journals keep what they can; what they forgot meanwhile is a gap that readers
see in the numbers.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import redis

from engine_shim.sidecar.journal import Entry
from wire.redis_entries import name_entry, name_stream, read_life, write_entry

_log = logging.getLogger("dovecote.sidecar")
#: Longest wait for Redis, and longest pause before it is tried again.
LIMIT_S = 5.0
RETRY_S = 1.0
#: Streams of a publisher that is gone are forgotten by Redis after this; a living one renews it this often.
EXPIRE_S = 86_400
RENEW_S = 60.0
_BATCHES_A_TRIP = 256


class Journals(Protocol):
    """The mirrors, as far as they are published."""

    @property
    def rank_count(self) -> int:
        """Ranks that are mirrored."""

    def read_journal(self, dp_rank: int, start_seq: int) -> Sequence[Entry]:
        """Batches of a rank from a number on, as far as they are kept."""


class RedisPublisher:
    """One publisher. Start once, stop once."""

    def __init__(
        self,
        url: str,
        name: str,
        journals: Journals,
        *,
        max_entries: int = 10_000,
        retry_s: float = RETRY_S,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: Redis; may hold a password, so that it is never logged.
            name: Beginning of the streams' names.
            journals: Where the batches are.
            max_entries: Entries that a stream keeps, nearly.
            retry_s: Pause before Redis is tried again.
            wall_clock: Seconds since the epoch, which number the publisher's lives.
        """
        self._url = url
        self._name = name
        self._journals = journals
        self._max_entries = max_entries
        self._retry_s = retry_s
        self._wall_clock = wall_clock
        self._life = 0
        self._next = [0] * journals.rank_count
        self._news = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="dovecote-redis", daemon=True)
        #: What is wrong with Redis, in words; None while it answers.
        self.problem: str | None = "Redis was not asked yet"

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is under way is waited for within the limit."""
        self._is_stopping = True
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(2 * LIMIT_S)

    def wake(self) -> None:
        """Something was published."""
        self._news.set()

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                with redis.Redis.from_url(self._url, socket_timeout=LIMIT_S, socket_connect_timeout=LIMIT_S) as client:
                    self._serve(client)
            except (redis.RedisError, OSError, ValueError) as error:
                self._see(f"{type(error).__name__}: {error}"[:200])
                self._news.wait(self._retry_s)
                self._news.clear()

    def _serve(self, client: "redis.Redis") -> None:
        if not self._life:
            self._begin(client)
        while not self._is_stopping:
            self._news.clear()
            for dp_rank in range(len(self._next)):
                self._publish(client, dp_rank)
            self._see(None)
            self._news.wait(RENEW_S)

    def _begin(self, client: "redis.Redis") -> None:
        """Number this life above every other that used the name."""
        lives = [int(self._wall_clock() * 1e3)]
        for dp_rank in range(len(self._next)):
            last: Any = client.xrevrange(name_stream(self._name, dp_rank), count=1)
            for entry_id, _ in last or ():
                lives.append((read_life(entry_id) or 0) + 1)
        self._life = max(lives)

    def _publish(self, client: "redis.Redis", dp_rank: int) -> None:
        """Everything new of one rank."""
        stream = name_stream(self._name, dp_rank)
        entries = self._journals.read_journal(dp_rank, self._next[dp_rank])
        client.expire(stream, EXPIRE_S)
        for start in range(0, len(entries), _BATCHES_A_TRIP):
            part = entries[start : start + _BATCHES_A_TRIP]
            with client.pipeline(transaction=False) as trip:
                for entry in part:
                    trip.xadd(
                        stream,
                        write_entry(entry.topic, entry.payload),  # type: ignore[arg-type]
                        id=name_entry(self._life, entry.seq),
                        maxlen=self._max_entries,
                        approximate=True,
                    )
                trip.expire(stream, EXPIRE_S)
                self._send(trip)
            self._next[dp_rank] = part[-1].seq + 1

    def _send(self, trip: "redis.client.Pipeline") -> None:
        try:
            trip.execute()
        except redis.ResponseError:
            # A later life has the name, or some were taken before the connection broke: all again, above it.
            self._life, self._next = 0, [0] * len(self._next)
            raise

    def _see(self, problem: str | None) -> None:
        if problem == self.problem:
            return
        if problem is None:
            _log.info("redis_connected name=%s", self._name)
        elif self.problem is None or not self._life:
            _log.warning("redis_problem name=%s problem=%r", self._name, problem)
        self.problem = problem
