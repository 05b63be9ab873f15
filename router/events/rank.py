"""One rank of the feed: its stream, what changed lately, and what it asks of its sockets. No socket here.

All calls hold the feed's lock. Adds to `RankStream` what only an edge knows: the catch-up after a connection
came about, the time limit of a replay, and frames that no stream could own.
"""

from collections.abc import Sequence

from prefix_index.base import Change, PrefixIndex
from prefix_index.stream import RankStream, StreamCounters, StreamReport
from prefix_index.trust import Trust
from router.events.changes import ChangeLog
from router.events.link import RankSource
from router.metrics import StreamView
from wire.frames import ReplayEnd, ReplayFrame, encode_live, parse_live, parse_replay

#: What a reset looks like to those who ask what changed.
CLEARED = Change(cleared=True)


class FedRank:
    """State of one rank between its sockets and the index."""

    def __init__(
        self,
        source: RankSource,
        index: PrefixIndex,
        *,
        replay_limit_s: float,
        retry_pause_s: float,
        before: "FedRank | None" = None,
    ) -> None:
        """Start without credit.

        Args:
            source: Where the events come from.
            index: Where they go.
            replay_limit_s: Longest wait for the next message of a replay.
            retry_pause_s: How long a stream that lost events stays so before its buffer is read again.
            before: The rank as it was followed elsewhere; its counters and its log of changes go on.
        """
        self.source = source
        self.changes: ChangeLog = ChangeLog() if before is None else before.changes
        self._index = index
        self._replay_limit_s = replay_limit_s
        self._retry_pause_s = retry_pause_s
        #: When a stuck stream is read again; None while it is not stuck.
        self._retry_s: float | None = None
        index.attach(source.target, model=source.model)
        self._stream = RankStream(source.target, index, replay_available=source.replay_endpoint is not None)
        if before is not None:
            self._stream.counters = before.counters
        #: Sockets of this rank are being opened (again): what older ones still deliver is not its own.
        self.is_waiting_for_sockets = True
        #: When a running replay or catch-up is given up; None while none runs.
        self.deadline_s: float | None = None
        #: A catch-up runs: the buffer is read although no gap was seen, because a connection came about.
        self._is_catching_up = False
        #: Highest number read in the last catch-up; the live socket may say it once more.
        self._caught_up_seq: int | None = None

    @property
    def counters(self) -> StreamCounters:
        """What the rank's streams have seen in all."""
        return self._stream.counters

    @property
    def trust(self) -> Trust:
        """How far this rank's credit can be believed."""
        return self._stream.trust if self._index_is_modelled() else Trust.LOST

    def _index_is_modelled(self) -> bool:
        return self._index.is_modelled(self.source.target)

    def on_live(self, frames: Sequence[bytes], now_s: float) -> int | None:
        """A live message; gives the number to ask a replay from, None for none."""
        if self._is_repeated(frames):
            return None
        if self._is_catching_up:
            # The first live batch decides: in order it goes on from here, else the stream asks by itself.
            self._end_catch_up()
        return self._take(self._stream.on_live(frames, now_s), now_s)

    def on_replay(self, frames: Sequence[bytes], now_s: float) -> int | None:
        """A message of the replay socket; gives the number to ask the next replay from, None for none."""
        before_seq = self._stream.last_seq
        start_seq = self._catch_up(frames, now_s) if self._is_catching_up else self._replay(frames, now_s)
        # Messages that bring nothing new do not keep a replay alive.
        if self.deadline_s is not None and self._stream.last_seq != before_seq:
            self.deadline_s = now_s + self._replay_limit_s
        return start_seq

    def _replay(self, frames: Sequence[bytes], now_s: float) -> int | None:
        return self._take(self._stream.on_replay(frames, now_s), now_s)

    def _catch_up(self, frames: Sequence[bytes], now_s: float) -> int | None:
        frame = parse_replay(frames)
        if isinstance(frame, ReplayFrame):
            live = encode_live(self.source.topic, frame.seq, frame.payload)
            report = self._stream.on_live(live, now_s)
            self._caught_up_seq = self._stream.last_seq
            if report.ask_replay_from is not None:
                # The buffer starts late; the stream's own replay takes it from here.
                self._is_catching_up = False
            return self._take(report, now_s)
        if isinstance(frame, ReplayEnd):
            self._end_catch_up()
        else:
            self._stream.on_replay(frames, now_s)
        return None

    def on_connected(self, now_s: float) -> int | None:
        """The event socket is connected; gives the number to start a catch-up from, None for none."""
        if self.source.replay_endpoint is None or self._stream.last_seq is not None or self._stream.is_replaying:
            return None
        self._is_catching_up = True
        self._caught_up_seq = None
        self.deadline_s = now_s + self._replay_limit_s
        return 0

    def on_replay_failed(self, now_s: float) -> int | None:
        """The replay under way has no answer in time, or could not be asked for."""
        if self._is_catching_up:
            self._end_catch_up()
            return None
        self.deadline_s = None
        return self._take(self._stream.on_replay_failed(now_s), now_s)

    def find_retry(self, now_s: float) -> int | None:
        """A rank that lost events for good has no credit anyway: now and then its buffer is read from the start."""
        is_stuck = self._stream.trust is Trust.STALE and not self._stream.is_replaying and not self._is_catching_up
        if not is_stuck:
            self._retry_s = None
            return None
        if self._retry_s is None:
            self._retry_s = now_s + self._retry_pause_s
        if now_s < self._retry_s:
            return None
        self.on_lost(now_s)
        return self.on_connected(now_s)

    def on_lost(self, now_s: float) -> None:
        """The worker, or the connection to it, is gone: no credit until events come again."""
        self._end_catch_up()
        self._caught_up_seq = None
        if self._stream.last_seq is not None or self._stream.is_replaying:
            self._take(self._stream.on_lost(now_s), now_s)

    def to_view(self) -> StreamView:
        """What metrics and the workers page show."""
        counters = self.counters
        return StreamView(
            target=self.source.target,
            trust=self.trust,
            last_seq=self._stream.last_seq,
            blocks=self._index.block_count(self.source.target),
            batches=counters.batches,
            events=dict(counters.kinds),
            skipped=dict(counters.skipped),
            gaps=counters.gaps,
            replays=counters.replays,
            resets=counters.resets,
        )

    def _is_repeated(self, frames: Sequence[bytes]) -> bool:
        """Whether a live message was in the catch-up already; the first later one ends the question."""
        if self._caught_up_seq is None:
            return False
        frame = parse_live(frames)
        seq = getattr(frame, "seq", None)
        if seq is not None and seq <= self._caught_up_seq:
            return True
        self._caught_up_seq = None
        return False

    def _end_catch_up(self) -> None:
        self._is_catching_up = False
        self.deadline_s = None

    def _take(self, report: StreamReport, now_s: float) -> int | None:
        for change in report.changes:
            self.changes.record(change, now_s)
        if report.reset_reason is not None or report.doubted:
            # After lost events nothing that was known before is sure, which is as good as gone.
            self.changes.record(CLEARED, now_s)
        if report.ask_replay_from is not None:
            self.deadline_s = now_s + self._replay_limit_s
        elif not self._stream.is_replaying and not self._is_catching_up:
            self.deadline_s = None
        return report.ask_replay_from
