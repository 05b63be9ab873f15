"""The event feed: follows the ranks that the control plane names, and answers what requests ask of them.

Composes the ranks with the threads that feed them: sockets, snapshots, Redis. Decides nothing about sequence or
recovery itself: that is `prefix_index.RankStream`.
"""

import logging
import ssl
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from prefix_index.base import BlockChain, PrefixIndex
from prefix_index.trust import Trust
from router.events.changes import Evidence
from router.events.rank import Wish
from router.events.redis_source import RedisThread
from router.events.snapshots import SnapshotFetcher
from router.events.sockets import SocketThread
from router.events.table import FedRanks, FeedLimits
from router.fleet.source import RankSource
from router.fleet.tiers import ReuseOption
from router.metrics import StreamView
from wire.ids import Target, WorkerId

_log = logging.getLogger("dovecote.events")


class EventFeed:
    """Event streams of a fleet. Start once, stop once; the other verbs may be called from any thread."""

    def __init__(
        self,
        index: PrefixIndex,
        *,
        limits: FeedLimits | None = None,
        snapshot_limit_s: float = 10.0,
        redis_url: str | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_reconnect: Callable[[WorkerId], None] = lambda _worker: None,
    ) -> None:
        """Make the threads; nothing runs before `start`.

        Args:
            index: Where events go; nobody else writes to it.
            limits: Times of all ranks.
            snapshot_limit_s: Longest wait for the next piece of a snapshot.
            redis_url: Where sidecars publish; None reads their sockets.
            tls: How sidecars with `https://` are known.
            clock: Monotonic time.
            on_reconnect: Called in a thread of the feed when a worker's event connection breaks or stands anew.
        """
        self._ranks = FedRanks(index, limits or FeedLimits(), clock=clock)
        self._snapshots = SnapshotFetcher(limit_s=snapshot_limit_s, tls=tls)
        self._sockets = SocketThread(self._ranks, self._fetch_snapshot, clock=clock, on_reconnect=on_reconnect)
        self._redis = None if redis_url is None else RedisThread(redis_url, self._ranks, self._fetch_snapshot)

    def start(self) -> None:
        """Start the threads."""
        self._sockets.start()
        if self._redis is not None:
            self._redis.start()

    def stop(self) -> None:
        """Close every socket and end the threads; returns when they have ended."""
        self._sockets.stop()
        if self._redis is not None:
            self._redis.stop()
        self._snapshots.stop()

    @property
    def is_alive(self) -> bool:
        """Whether some thread of it runs."""
        return self._sockets.is_alive or (self._redis is not None and self._redis.is_alive)

    def connect(self, source: RankSource) -> None:
        """Follow a rank; one that is followed from the same place already stays as it is.

        Read from Redis where this router has one and the rank's sidecar publishes there, else from its sockets.
        """
        if self._redis is None or source.redis_stream is None:
            source = replace(source, redis_stream=None)
        else:
            # The stream is a log: what is not in it any more, only a snapshot has.
            source = replace(source, replay_endpoint=None)
        if self._ranks.put(source):
            self._open(source)

    def disconnect(self, target: Target) -> None:
        """Stop following a rank; what it held is forgotten at once."""
        if self._ranks.remove(target):
            self._close(target)

    def lose(self, target: Target) -> None:
        """The rank's engine is gone or was replaced: forget what it held at once, and connect anew."""
        source = self._ranks.lose(target)
        if source is not None:
            self._open(source)

    def find_reuse(self, chains: Sequence[BlockChain]) -> dict[Target, int]:
        """See `FedRanks.find_reuse`."""
        return self._ranks.find_reuse(chains)

    def find_options(
        self, plain: BlockChain, pairs: BlockChain | None, reuse: dict[Target, int]
    ) -> dict[Target, tuple[ReuseOption, ...]]:
        """See `FedRanks.find_options`."""
        return self._ranks.find_options(plain, pairs, reuse)

    def correct(self, target: Target, chain: BlockChain, cached_tokens: int) -> None:
        """See `FedRanks.correct`."""
        self._ranks.correct(target, chain, cached_tokens)

    def has_beliefs(self, target: Target) -> bool:
        """See `FedRanks.has_beliefs`."""
        return self._ranks.has_beliefs(target)

    def find_trust(self, target: Target) -> Trust:
        """See `FedRanks.find_trust`."""
        return self._ranks.find_trust(target)

    def find_position(self, target: Target) -> int:
        """See `FedRanks.find_position`."""
        return self._ranks.find_position(target)

    def find_evidence(self, target: Target, position: int, until_s: float) -> Evidence:
        """See `FedRanks.find_evidence`."""
        return self._ranks.find_evidence(target, position, until_s)

    def expect_blocks(self, target: Target, new_blocks: int, position: int) -> None:
        """See `FedRanks.expect_blocks`."""
        self._ranks.expect_blocks(target, new_blocks, position)

    def block_sizes(self) -> set[int]:
        """See `FedRanks.block_sizes`."""
        return self._ranks.block_sizes()

    def to_views(self) -> list[StreamView]:
        """See `FedRanks.to_views`."""
        return self._ranks.to_views()

    def _open(self, source: RankSource) -> None:
        if self._redis is not None and source.redis_stream is not None:
            self._sockets.close(source.target)
            self._redis.open(source)
            return
        if self._redis is not None:
            self._redis.close(source.target)
        self._sockets.open(source)

    def _close(self, target: Target) -> None:
        self._sockets.close(target)
        if self._redis is not None:
            self._redis.close(target)

    def _fetch_snapshot(self, target: Target, ticket: int) -> None:
        rank = self._ranks.find(target)
        if rank is None or rank.source.snapshot_url is None:
            return
        _log.info("snapshot_asked worker=%s dp_rank=%d", target.worker, target.dp_rank)

        def ask(wish: Wish) -> None:
            if self._redis is not None and rank.source.redis_stream is not None:
                self._redis.ask(target, wish)
            else:
                self._sockets.ask(target, wish)

        self._snapshots.fetch(rank.source.snapshot_url, lambda part: self._ranks.take_snapshot(rank, ticket, part, ask))
