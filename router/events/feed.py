"""The thread that reads all event sockets and feeds the index.

Sources come in from the control plane; out go reuse, trust and evidence, each read under the one lock that the
index has. A stimulus takes the lock for one message at a time, so that matching never waits for a replay.
A socket that fails loses its rank's credit, never the thread.
"""

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import zmq

from prefix_index.base import BlockChain, PrefixIndex
from prefix_index.trust import Trust
from router.events.changes import Evidence
from router.events.link import RankLink, RankSource, read_frames
from router.events.rank import FedRank, Wish
from router.events.snapshots import SnapshotFetcher
from router.metrics import StreamView
from wire.ids import Target, WorkerId
from wire.snapshot import SnapshotPart

_log = logging.getLogger("dovecote.events")
#: Longest sleep of the thread, so that deadlines are seen in time.
_POLL_S = 0.2
_REOPEN_PAUSE_S = 0.2
#: Records of a snapshot that are taken over in one hold of the lock: matching waits no longer than that.
_RECORDS_A_HOLD = 512


class EventFeed:
    """Event streams of a fleet. Start once, stop once; the other verbs may be called from any thread."""

    def __init__(
        self,
        index: PrefixIndex,
        *,
        replay_limit_s: float = 5.0,
        retry_pause_s: float = 30.0,
        snapshot_limit_s: float = 10.0,
        due_limit_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        on_reconnect: Callable[[WorkerId], None] = lambda _worker: None,
    ) -> None:
        """Make the thread; nothing runs before `start`.

        Args:
            index: Where events go; nobody else writes to it.
            replay_limit_s: Longest wait for the next message of a replay.
            retry_pause_s: How long a stream that lost events stays so before its buffer is read again.
            snapshot_limit_s: Longest wait for the next piece of a snapshot.
            due_limit_s: How long a rank may be silent about blocks that it must have stored.
            clock: Monotonic time.
            on_reconnect: Called in the feed's thread when a worker's event connection breaks or stands anew.
        """
        self._index = index
        self._on_reconnect = on_reconnect
        self._retry_pause_s = retry_pause_s
        self._replay_limit_s = replay_limit_s
        self._due_limit_s = due_limit_s
        self._snapshots = SnapshotFetcher(limit_s=snapshot_limit_s)
        self._clock = clock
        self._lock = threading.Lock()
        self._ranks: dict[Target, FedRank] = {}
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dovecote-events", daemon=True)
        # What follows belongs to the thread alone.
        self._poller = zmq.Poller()
        self._links: dict[Target, RankLink] = {}
        #: Ranks whose sockets could not be opened, and when to try again.
        self._refused: dict[Target, tuple[RankSource, float]] = {}
        self._owners: dict[Any, tuple[Target, str]] = {}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close every socket and end the thread; returns when it has ended."""
        self._stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        self._snapshots.stop()
        self._waker.close()
        self._woken.close()

    def connect(self, source: RankSource) -> None:
        """Follow a rank; one that is followed from the same place already stays as it is."""
        with self._lock:
            known = self._ranks.get(source.target)
            if known is not None and known.source == source:
                return
            if known is not None:
                known.on_lost(self._clock())
            self._ranks[source.target] = FedRank(
                source,
                self._index,
                replay_limit_s=self._replay_limit_s,
                retry_pause_s=self._retry_pause_s,
                due_limit_s=self._due_limit_s,
                before=known,
            )
        self._command(lambda: self._open(source))

    def follow(
        self,
        target: Target,
        *,
        model: str,
        endpoint: str,
        replay_endpoint: str | None,
        topic: str,
        binds: bool,
        snapshot_url: str | None = None,
    ) -> None:
        """`connect`, for callers that know no `RankSource`."""
        self.connect(
            RankSource(
                target=target,
                model=model,
                endpoint=endpoint,
                replay_endpoint=replay_endpoint,
                topic=topic,
                binds=binds,
                snapshot_url=snapshot_url,
            )
        )

    def disconnect(self, target: Target) -> None:
        """Stop following a rank; what it held is forgotten at once."""
        with self._lock:
            if self._ranks.pop(target, None) is None:
                return
            self._index.drop(target)
        self._command(lambda: self._close(target))

    def lose(self, target: Target) -> None:
        """The rank's engine is gone or was replaced: forget what it held at once, and connect anew."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is None:
                return
            rank.on_lost(self._clock())
            rank.is_waiting_for_sockets = True
            source = rank.source
        self._command(lambda: self._open(source))

    def find_reuse(self, chains: Iterable[BlockChain]) -> dict[Target, int]:
        """Tokens of a prompt that each rank can be credited with: the index's, as far as its trust allows."""
        reuse: dict[Target, int] = {}
        now_s = self._clock()
        with self._lock:
            for chain in chains:
                for target, found_tokens in self._index.find_reuse(chain).items():
                    rank = self._ranks.get(target)
                    tokens = 0 if rank is None else rank.find_credit_tokens(found_tokens, chain.block_tokens, now_s)
                    if tokens > reuse.get(target, 0):
                        reuse[target] = tokens
        return reuse

    def find_trust(self, target: Target) -> Trust:
        """Trust of a rank now; LOST for one that is not followed."""
        with self._lock:
            rank = self._ranks.get(target)
            return Trust.LOST if rank is None else rank.trust

    def find_position(self, target: Target) -> int:
        """Number of the rank's next change, for `find_evidence` later."""
        with self._lock:
            rank = self._ranks.get(target)
            return 0 if rank is None else rank.changes.position

    def find_evidence(self, target: Target, position: int, until_s: float) -> Evidence:
        """What changed on a rank from `position` on and not after `until_s`."""
        with self._lock:
            rank = self._ranks.get(target)
            return Evidence(cleared=True) if rank is None else rank.changes.find_since(position, until_s)

    def expect_blocks(self, target: Target, new_blocks: int, position: int) -> None:
        """A request placed at change `position` made a rank compute so many full blocks: it must tell of them."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is not None:
                rank.on_served(new_blocks, position, self._clock())

    def block_sizes(self) -> set[int]:
        """Tokens a block, for every size that ranks report."""
        with self._lock:
            return self._index.block_sizes()

    def to_views(self) -> list[StreamView]:
        """Every rank's stream as it is now."""
        with self._lock:
            return [rank.to_view() for _, rank in sorted(self._ranks.items())]

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.put(command)
        self._wake()

    def _wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except (BlockingIOError, OSError):
            # Already awake, or already stopped.
            return

    def _run(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context = context
        self._poller.register(self._woken, zmq.POLLIN)
        try:
            while not self._stopping:
                for ready, _ in self._poller.poll(int(_POLL_S * 1_000)):
                    self._serve(ready)
                self._expire()
        finally:
            for target in list(self._links):
                self._close(target)
            context.destroy(linger=0)

    def _serve(self, ready: Any) -> None:
        if ready == self._woken.fileno():
            self._carry_out_commands()
            return
        owner = self._owners.get(ready)
        if owner is None:
            return
        target, kind = owner
        try:
            self._read(target, kind)
        except Exception:  # noqa: BLE001
            # One rank's defect must not end the stream of all others.
            _log.exception("event_stream_failed worker=%s dp_rank=%d", target.worker, target.dp_rank)
            self._lose_credit(target)

    def _read(self, target: Target, kind: str) -> None:
        link = self._links[target]
        if kind == "monitor":
            self._read_monitor(target, link)
            return
        source = link.events if kind == "events" else link.replay
        if source is None:
            return
        for frames in read_frames(source):
            with self._lock:
                rank = self._ranks.get(target)
                if rank is None or rank.is_waiting_for_sockets:
                    return
                stimulus = rank.on_live if kind == "events" else rank.on_replay
                wish = stimulus(frames, self._clock())
            self._ask(target, link, wish)
            if wish is not None and kind == "replay":
                return

    def _read_monitor(self, target: Target, link: RankLink) -> None:
        lost, connected = link.read_news()
        with self._lock:
            rank = self._ranks.get(target)
            if rank is None or rank.is_waiting_for_sockets:
                return
            if lost:
                rank.on_lost(self._clock())
            wish = rank.on_connected(self._clock()) if connected else None
        if lost:
            _log.warning("event_connection_lost worker=%s dp_rank=%d", target.worker, target.dp_rank)
        self._on_reconnect(target.worker)
        self._ask(target, link, wish)

    def _ask(self, target: Target, link: RankLink, wish: Wish | None) -> None:
        """Carry out a stream's wish, and its next one where that fails."""
        while wish is not None:
            self._forget_replay(link)
            if wish.replay_from is None:
                self._ask_snapshot(target, wish.snapshot)
                return
            if link.ask_replay(wish.replay_from):
                self._watch(link.replay, target, "replay")
                where = (target.worker, target.dp_rank, wish.replay_from)
                _log.info("event_replay_asked worker=%s dp_rank=%d from_seq=%d", *where)
                return
            with self._lock:
                rank = self._ranks.get(target)
                wish = None if rank is None else rank.on_replay_failed(self._clock())

    def _ask_snapshot(self, target: Target, ticket: int | None) -> None:
        with self._lock:
            rank = self._ranks.get(target)
        if rank is None or rank.source.snapshot_url is None or ticket is None:
            return
        _log.info("snapshot_asked worker=%s dp_rank=%d", target.worker, target.dp_rank)
        self._snapshots.fetch(rank.source.snapshot_url, lambda part: self._take_snapshot(rank, ticket, part))

    def _take_snapshot(self, rank: FedRank, ticket: int, part: SnapshotPart | None) -> bool:
        """A part of a snapshot, in a fetcher's thread; says whether more of it is wanted."""
        target = rank.source.target
        pieces: Iterable[SnapshotPart | None] = [part]
        if isinstance(part, tuple):
            pieces = (part[start : start + _RECORDS_A_HOLD] for start in range(0, len(part), _RECORDS_A_HOLD))
        for piece in pieces:
            with self._lock:
                if self._ranks.get(target) is not rank or not rank.wants_snapshot(ticket):
                    return False
                wish = rank.on_snapshot(piece, ticket, self._clock())
            if wish is not None:
                self._command(lambda wish=wish: self._ask_later(target, wish))  # type: ignore[misc]
        return rank.wants_snapshot(ticket)

    def _ask_later(self, target: Target, wish: Wish) -> None:
        link = self._links.get(target)
        if link is not None:
            self._ask(target, link, wish)

    def _expire(self) -> None:
        """Give up replays that are overdue, and try again where one, or a socket, was given up long ago."""
        now_s = self._clock()
        for source, retry_at_s in list(self._refused.values()):
            if retry_at_s <= now_s:
                self._open(source)
        for target, link in list(self._links.items()):
            with self._lock:
                rank = self._ranks.get(target)
                if rank is None:
                    continue
                is_overdue = rank.deadline_s is not None and rank.deadline_s <= now_s
                wish = rank.on_replay_failed(now_s) if is_overdue else rank.find_retry(now_s)
            if is_overdue:
                _log.warning("event_replay_failed worker=%s dp_rank=%d", target.worker, target.dp_rank)
                self._forget_replay(link)
            self._ask(target, link, wish)

    def _lose_credit(self, target: Target) -> None:
        with self._lock:
            rank = self._ranks.get(target)
            if rank is not None:
                rank.on_lost(self._clock())

    def _carry_out_commands(self) -> None:
        try:
            self._woken.recv(4_096)
        except BlockingIOError:
            return
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _open(self, source: RankSource) -> None:
        is_repeated = self._refused.get(source.target, (None, 0.0))[0] == source
        self._close(source.target)
        try:
            link = RankLink(self._context, source)
        except (zmq.ZMQError, ValueError) as error:
            # A bound address is free only a moment after its last socket was closed.
            self._refused[source.target] = (source, self._clock() + _REOPEN_PAUSE_S)
            if not is_repeated:
                _log.error(
                    "event_socket_refused worker=%s dp_rank=%d endpoint=%a error=%a",
                    source.target.worker, source.target.dp_rank, source.endpoint, str(error),
                )  # fmt: skip
            return
        with self._lock:
            rank = self._ranks.get(source.target)
            if rank is not None and rank.source == source:
                rank.is_waiting_for_sockets = False
        self._links[source.target] = link
        self._watch(link.events, source.target, "events")
        self._watch(link.monitor, source.target, "monitor")

    def _close(self, target: Target) -> None:
        self._refused.pop(target, None)
        link = self._links.pop(target, None)
        if link is None:
            return
        self._forget_replay(link)
        for watched in (link.events, link.monitor):
            self._poller.unregister(watched)
            del self._owners[watched]
        link.close()

    def _watch(self, watched: Any, target: Target, kind: str) -> None:
        self._poller.register(watched, zmq.POLLIN)
        self._owners[watched] = (target, kind)

    def _forget_replay(self, link: RankLink) -> None:
        if link.replay is not None:
            self._poller.unregister(link.replay)
            del self._owners[link.replay]
            link.close_replay()
