"""The thread that reads the engine's sockets, keeps the mirrors and serves their subscribers.

Owns every ZeroMQ socket of the process. One lock guards the mirrors: the thread takes it for one message at a time,
a snapshot for as long as the dump of one rank takes.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import zmq

from engine_shim.sidecar.downstream import Downstream, Ports
from engine_shim.sidecar.journal import Entry
from engine_shim.sidecar.mirror import Outcome, RankMirror, Settings
from engine_shim.sidecar.upstream import Upstream, read_frames
from prefix_index.base import PrefixIndex
from prefix_index.counters import StreamCounters
from prefix_index.trust import Trust
from wire.event_sources import RankEvents
from wire.frames import parse_replay_request
from wire.malformed import Malformed
from wire.snapshot import encode_snapshot

_log = logging.getLogger("dovecote.sidecar")
#: Longest sleep of the thread, so that deadlines are seen in time.
_POLL_S = 0.2
_RETRY_PAUSE_S = 30.0


class RankView(msgspec.Struct, frozen=True, kw_only=True):
    """One rank at one moment."""

    dp_rank: int
    trust: Trust
    #: Number of the engine's last batch that was applied; None before the first.
    engine_seq: int | None
    #: Number that the mirror's next batch will get.
    next_seq: int
    engine_lives: int
    blocks: int
    buffer_bytes: int
    #: Replays that a caller did not read to the end.
    replays_cut_short: int
    counters: StreamCounters
    groups: tuple[dict[str, object], ...]


class MirrorHub:
    """Mirrors of all ranks of one engine. Start once, stop once; the reading verbs may be called from any thread."""

    def __init__(
        self,
        sources: Sequence[RankEvents],
        index: PrefixIndex,
        settings: Settings,
        *,
        host: str,
        events_port_base: int,
        replay_port_base: int,
        replay_limit_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open every socket; nothing is read before `start`.

        Args:
            sources: The engine's event sockets, by rank.
            index: Where the mirrors keep their blocks; nobody else writes to it.
            settings: Shared by all mirrors.
            host: Interface of the mirror's own sockets.
            events_port_base: Port of rank 0's mirrored events; 0 takes a free run.
            replay_port_base: Port of rank 0's replays; 0 takes a free run.
            replay_limit_s: Longest wait for the next message of the engine's replay.
            clock: Monotonic time.

        Raises:
            OSError: An address cannot be used.
        """
        self._index = index
        self._replay_limit_s = replay_limit_s
        self._clock = clock
        self._lock = threading.Lock()
        self._mirrors = [
            RankMirror(rank, index, settings, replay_available=source.replay_endpoint is not None, wall_clock=time.time)
            for rank, source in enumerate(sources)
        ]
        self._deadlines: dict[int, float] = {}
        #: When a rank that lost events for good is read anew.
        self._retries: dict[int, float] = {}
        self._stopping = False
        #: Called with the lock held when something was published; must not wait.
        self.on_news: Callable[[], None] = lambda: None
        self._waker, self._woken = socket.socketpair()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._upstreams: list[Upstream] = []
        try:
            self._downstream = Downstream(
                self._context,
                host=host,
                rank_count=len(sources),
                events_port_base=events_port_base,
                replay_port_base=replay_port_base,
                queue_messages=settings.buffer_batches,
            )
            self._upstreams.extend(Upstream(self._context, source) for source in sources)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._poller = zmq.Poller()
        self._owners: dict[Any, tuple[int, str]] = {}
        self._thread = threading.Thread(target=self._run, name="dovecote-mirror", daemon=True)

    @property
    def ports(self) -> Ports:
        """Where subscribers connect."""
        return self._downstream.ports

    @property
    def rank_count(self) -> int:
        """Ranks that are mirrored."""
        return len(self._mirrors)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which closes every socket."""
        self._stopping = True
        self._waker.send(b"\0")
        if self._thread.is_alive():
            self._thread.join()
        self._waker.close()
        self._woken.close()

    def take_snapshot(self, dp_rank: int) -> list[bytes]:
        """Frames of a rank's snapshot, all of one moment: events wait until they are made."""
        mirror = self._mirrors[dp_rank]
        with self._lock:
            return list(encode_snapshot(mirror.describe_snapshot(), mirror.dump()))

    def read_journal(self, dp_rank: int, start_seq: int) -> Sequence[Entry]:
        """Batches of a rank from a number on, as far as they are kept for replay."""
        with self._lock:
            return self._mirrors[dp_rank].journal.replay_from(start_seq)

    def block_sizes(self) -> set[int]:
        """Tokens a block, for every size that ranks told of."""
        with self._lock:
            return self._index.block_sizes()

    def to_views(self) -> list[RankView]:
        """Every rank as it is now."""
        with self._lock:
            told = zip(self._mirrors, self._downstream.cut_short, strict=True)
            return [_view(mirror, cut_short) for mirror, cut_short in told]

    def _run(self) -> None:
        self._watch(self._woken, -1, "stop")
        for rank, upstream in enumerate(self._upstreams):
            self._watch(upstream.events, rank, "events")
            self._watch(upstream.monitor, rank, "monitor")
            self._watch(self._downstream.routers[rank], rank, "replay request")
        try:
            while not self._stopping:
                for ready, _ in self._poller.poll(int(_POLL_S * 1_000)):
                    self._serve(ready)
                self._expire()
        finally:
            for upstream in self._upstreams:
                upstream.close()
            self._downstream.close()
            self._context.destroy(linger=0)

    def _serve(self, ready: Any) -> None:
        owner = self._owners.get(ready if not isinstance(ready, int) else self._woken)
        if owner is None or owner[1] == "stop":
            return
        rank, kind = owner
        try:
            self._read(rank, kind)
        except Exception:  # noqa: BLE001
            # One rank's defect must not end the mirrors of all others.
            _log.exception("mirror_failed dp_rank=%d", rank)
            with self._mirror(rank) as mirror:
                self._carry_out(rank, mirror.on_lost(self._clock()))

    def _read(self, rank: int, kind: str) -> None:
        upstream = self._upstreams[rank]
        if kind == "replay request":
            self._answer(rank)
        elif kind == "monitor":
            self._read_monitor(rank, upstream)
        elif kind == "events":
            for frames in read_frames(upstream.events):
                with self._mirror(rank) as mirror:
                    self._carry_out(rank, mirror.on_live(frames, self._clock()))
        elif upstream.replay is not None:
            self._read_replay(rank, upstream.replay)

    def _read_replay(self, rank: int, source: "zmq.Socket[bytes]") -> None:
        for frames in read_frames(source):
            with self._mirror(rank) as mirror:
                before_seq = mirror.stream.last_seq
                outcome = mirror.on_replay(frames, self._clock())
                # Messages that bring nothing new do not keep a replay alive.
                if mirror.stream.last_seq != before_seq and rank in self._deadlines:
                    self._deadlines[rank] = self._clock() + self._replay_limit_s
                if not mirror.stream.is_replaying:
                    self._deadlines.pop(rank, None)
                self._carry_out(rank, outcome)
            if outcome.ask_replay_from is not None:
                return

    def _read_monitor(self, rank: int, upstream: Upstream) -> None:
        lost, stands = upstream.read_news()
        with self._mirror(rank) as mirror:
            if lost:
                _log.warning("engine_connection_lost dp_rank=%d", rank)
                self._deadlines.pop(rank, None)
                self._carry_out(rank, mirror.on_lost(self._clock()))
            if stands:
                self._carry_out(rank, mirror.on_connected(self._clock()))

    def _answer(self, rank: int) -> None:
        """Serve one replay request; one of the wrong shape is left unanswered."""
        identity, *request = self._downstream.routers[rank].recv_multipart()
        start_seq = parse_replay_request(request)
        if isinstance(start_seq, Malformed):
            return
        with self._mirror(rank) as mirror:
            entries = mirror.journal.replay_from(start_seq)
        self._downstream.answer(rank, identity, entries)

    def _carry_out(self, rank: int, outcome: Outcome) -> None:
        """Publish, and ask the engine for what is missing; the lock is held, so that snapshots see both or none."""
        self._publish(rank, outcome)
        upstream = self._upstreams[rank]
        while outcome.ask_replay_from is not None:
            self._forget_replay(upstream)
            if upstream.ask_replay(outcome.ask_replay_from):
                self._watch(upstream.replay, rank, "replay")
                self._deadlines[rank] = self._clock() + self._replay_limit_s
                return
            outcome = self._mirrors[rank].on_replay_failed(self._clock())
            self._publish(rank, outcome)

    def _publish(self, rank: int, outcome: Outcome) -> None:
        self._downstream.publish(rank, outcome.entries)
        if outcome.entries:
            self.on_news()

    def _expire(self) -> None:
        """Give up replays that are overdue."""
        now_s = self._clock()
        for rank in [rank for rank, deadline_s in self._deadlines.items() if deadline_s <= now_s]:
            _log.warning("engine_replay_failed dp_rank=%d", rank)
            del self._deadlines[rank]
            self._forget_replay(self._upstreams[rank])
            with self._mirror(rank) as mirror:
                self._carry_out(rank, mirror.on_replay_failed(now_s))
        for rank in range(len(self._mirrors)):
            self._retry(rank, now_s)

    def _retry(self, rank: int, now_s: float) -> None:
        """A rank whose missing events the engine may still have is read from the start after a while."""
        with self._mirror(rank) as mirror:
            if not mirror.stream.is_stuck:
                self._retries.pop(rank, None)
            elif self._retries.setdefault(rank, now_s + _RETRY_PAUSE_S) <= now_s:
                del self._retries[rank]
                self._carry_out(rank, mirror.on_lost(now_s))
                self._carry_out(rank, mirror.on_connected(now_s))

    @contextmanager
    def _mirror(self, rank: int) -> Iterator[RankMirror]:
        with self._lock:
            yield self._mirrors[rank]

    def _watch(self, watched: Any, rank: int, kind: str) -> None:
        self._poller.register(watched, zmq.POLLIN)
        self._owners[watched] = (rank, kind)

    def _forget_replay(self, upstream: Upstream) -> None:
        if upstream.replay is not None:
            self._poller.unregister(upstream.replay)
            del self._owners[upstream.replay]
            upstream.close_replay()


def _view(mirror: RankMirror, replays_cut_short: int) -> RankView:
    return RankView(
        dp_rank=mirror.dp_rank,
        trust=mirror.stream.trust,
        engine_seq=mirror.stream.last_seq,
        next_seq=mirror.journal.next_seq,
        engine_lives=mirror.engine_lives,
        blocks=mirror.block_count,
        buffer_bytes=mirror.journal.size_bytes,
        replays_cut_short=replays_cut_short,
        counters=mirror.stream.counters,
        groups=tuple(msgspec.structs.asdict(group) for group in mirror.groups),
    )
