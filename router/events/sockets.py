"""The thread that reads all event sockets.

Opens, polls, reads and closes; what a message means is its ranks' business (`FedRanks`), which may wish for a replay
or a snapshot. A socket that fails loses its rank's credit, never the thread.

Reads in rounds: of every socket that has something, a share of what a round may take, all at once. What comes faster
than that waits in the sockets, bounded (`link.QUEUE_MESSAGES`); beyond, the publisher drops and a gap is mended.
"""

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from router.events.link import RankLink, read_messages
from router.events.rank import Wish
from router.events.table import FedRanks
from router.fleet.source import RankSource
from wire.ids import Target, WorkerId

_log = logging.getLogger("dovecote.events")
#: Longest sleep of the thread, so that deadlines are seen in time.
_POLL_S = 0.2
_REOPEN_PAUSE_S = 0.2
#: Pause between two looks at deadlines.
_EXPIRE_S = 0.05
#: Pause after a round that read something, in times of the round: what comes meanwhile is taken in together, which
#: costs a fraction, and requests have the interpreter. At least so long; from so long on, as long as the round.
_PAUSE_ROUNDS = 4.0
_LEAST_PAUSE_S, _LONG_PAUSE_S = 0.002, 0.01
#: Messages read in a round, and of one socket in each round at least and at most.
MESSAGES_A_ROUND = 1_024
_LEAST_MESSAGES, _MOST_MESSAGES = 16, 256


class SocketThread:
    """Sockets of all ranks. Start once, stop once; commands may come from any thread."""

    def __init__(
        self,
        ranks: FedRanks,
        fetch_snapshot: Callable[[Target, int], None],
        *,
        clock: Callable[[], float],
        on_reconnect: Callable[[WorkerId], None],
    ) -> None:
        """Make the thread.

        Args:
            ranks: Whom to tell.
            fetch_snapshot: Fetches a rank's snapshot soon, under a ticket.
            clock: Monotonic time.
            on_reconnect: Called in the thread when a worker's event connection breaks or stands anew.
        """
        self._ranks = ranks
        self._fetch_snapshot = fetch_snapshot
        self._clock = clock
        self._on_reconnect = on_reconnect
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        #: Wakes the thread, and where it hears that: there from the start on, so that what never starts holds nothing.
        self._waker: socket.socket | None = None
        self._woken: socket.socket | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dovecote-events", daemon=True)
        # What follows belongs to the thread alone.
        self._poller = zmq.Poller()
        self._links: dict[Target, RankLink] = {}
        #: Ranks whose sockets could not be opened, and when to try again.
        self._refused: dict[Target, tuple[RankSource, float]] = {}
        self._owners: dict[Any, tuple[Target, str]] = {}
        #: Messages of one socket in this round, and ranks of which live ones were read.
        self._share = MESSAGES_A_ROUND
        self._heard: set[Target] = set()
        #: Ranks whose sockets had more than their share when they were read last.
        self._behind: set[Target] = set()
        self._expire_at_s = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        # For what was asked before.
        self._wake()
        self._thread.start()

    def stop(self) -> None:
        """Close every socket and end the thread; returns when it has ended."""
        self._stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for end in (self._waker, self._woken):
            if end is not None:
                end.close()

    def open(self, source: RankSource) -> None:
        """Open the sockets of a rank soon, anew where there are some."""
        self._command(lambda: self._open(source))

    def close(self, target: Target) -> None:
        """Close the sockets of a rank soon."""
        self._command(lambda: self._close(target))

    def ask(self, target: Target, wish: Wish) -> None:
        """Carry out a rank's wish soon."""
        self._command(lambda: self._ask(target, wish))

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.put(command)
        self._wake()

    def _wake(self) -> None:
        if self._waker is None:
            return
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
                self._go_round()
        finally:
            for target in list(self._links):
                self._close(target)
            context.destroy(linger=0)

    def _go_round(self) -> None:
        ready = self._poller.poll(int(_POLL_S * 1_000))
        self._share = min(max(_LEAST_MESSAGES, MESSAGES_A_ROUND // max(1, len(ready))), _MOST_MESSAGES)
        # CPU time: a round that only waited for the machine is no reason to wait longer.
        began_s = time.thread_time()
        self._heard.clear()
        for watched, _ in ready:
            self._serve(watched)
        for target in self._behind - self._heard:
            self._see_lag(target, is_behind=False)
        self._expire()
        if self._heard:
            time.sleep(find_pause_s(time.thread_time() - began_s))

    def _serve(self, ready: Any) -> None:
        if self._woken is not None and ready == self._woken.fileno():
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
            self._ranks.on_defect(target)

    def _read(self, target: Target, kind: str) -> None:
        link = self._links[target]
        if kind == "monitor":
            self._read_monitor(target, link)
            return
        if kind == "events":
            self._read_live(target, link)
        elif link.replay is not None:
            self._read_replay(target, link.replay)

    def _read_live(self, target: Target, link: RankLink) -> None:
        messages: Sequence[Sequence[bytes]] = read_messages(link.events, self._share)
        self._heard.add(target)
        self._see_lag(target, is_behind=len(messages) == self._share)
        while messages:
            taken, wish = self._ranks.on_live(target, messages)
            self._ask(target, wish)
            messages = messages[taken:]

    def _read_replay(self, target: Target, source: "zmq.Socket[bytes]") -> None:
        for frames in read_messages(source, self._share):
            wish = self._ranks.on_frames(target, frames, is_replay=True)
            self._ask(target, wish)
            if wish is not None:
                return

    def _see_lag(self, target: Target, *, is_behind: bool) -> None:
        """Tell of ranks that are behind, and once of those that are not any more."""
        if is_behind or target in self._behind:
            self._ranks.on_lag(target, is_behind=is_behind)
        (self._behind.add if is_behind else self._behind.discard)(target)

    def _read_monitor(self, target: Target, link: RankLink) -> None:
        lost, stands = link.read_news()
        wish = self._ranks.on_connection(target, lost=lost, stands=stands)
        self._on_reconnect(target.worker)
        self._ask(target, wish)

    def _ask(self, target: Target, wish: Wish | None) -> None:
        """Carry out a rank's wish, and its next one where that fails."""
        link = self._links.get(target)
        while wish is not None and link is not None:
            self._forget_replay(link)
            if wish.snapshot is not None:
                self._fetch_snapshot(target, wish.snapshot)
                return
            start_seq = wish.replay_from or 0
            if link.ask_replay(start_seq):
                self._watch(link.replay, target, "replay")
                _log.info(
                    "event_replay_asked worker=%s dp_rank=%d from_seq=%d", target.worker, target.dp_rank, start_seq
                )
                return
            wish = self._ranks.on_replay_failed(target)

    def _expire(self) -> None:
        """Give up replays that are overdue, and try again where one, or a socket, was given up long ago."""
        now_s = self._clock()
        if now_s < self._expire_at_s:
            return
        self._expire_at_s = now_s + _EXPIRE_S
        for source, retry_at_s in list(self._refused.values()):
            if retry_at_s <= now_s:
                self._open(source)
        for target, link in list(self._links.items()):
            is_overdue, wish = self._ranks.on_tick(target)
            if is_overdue:
                _log.warning("event_replay_failed worker=%s dp_rank=%d", target.worker, target.dp_rank)
                self._forget_replay(link)
            self._ask(target, wish)

    def _carry_out_commands(self) -> None:
        if self._woken is None:
            return
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
        self._ranks.on_opened(source)
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


def find_pause_s(took_s: float) -> float:
    """Pause after a round: at most half of the time goes to events, whatever comes."""
    return max(took_s, min(_PAUSE_ROUNDS * took_s, _LONG_PAUSE_S), _LEAST_PAUSE_S)
