"""One rank of the feed: its stream, what changed lately, and what it asks of its sockets. No socket here.

All calls hold the feed's lock. Adds to `RankStream` what only an edge knows: the time limit of a replay, what a
snapshot must be of, and how long a stream that lost events stays so.
"""

from collections.abc import Sequence

import msgspec

from prefix_index.base import Change, PrefixIndex
from prefix_index.counters import StreamCounters
from prefix_index.stream import RankStream, StreamReport
from prefix_index.trust import Trust
from router.events.changes import ChangeLog
from router.fleet.source import RankSource
from router.metrics import StreamView
from wire.block_hash import namespace_seed
from wire.events import BlockStored, Medium
from wire.snapshot import BlockRun, SnapshotHeader, SnapshotPart

#: Messages taken in at once, at most, and bytes of them, at least.
MAX_RUN_MESSAGES = 256
LEAST_RUN_BYTES = 16_384
#: What a reset looks like to those who ask what changed.
CLEARED = Change(cleared=True)


class Wish(msgspec.Struct, frozen=True):
    """What a stream wants from outside; one of the two."""

    #: Everything from this number on, out of the publisher's buffer.
    replay_from: int | None = None
    #: A snapshot, to be handed back with this ticket.
    snapshot: int | None = None


class FedRank:
    """State of one rank between its sockets and the index."""

    def __init__(
        self,
        source: RankSource,
        index: PrefixIndex,
        *,
        replay_limit_s: float,
        retry_pause_s: float,
        due_limit_s: float = 10.0,
        before: "FedRank | None" = None,
    ) -> None:
        """Start without credit.

        Args:
            source: Where the events come from.
            index: Where they go.
            replay_limit_s: Longest wait for the next message of a replay.
            retry_pause_s: How long a stream that lost events stays so before its buffer is read again.
            due_limit_s: How long a rank may be silent about blocks that it must have stored.
            before: The rank as it was followed elsewhere; its counters and its log of changes go on.
        """
        self.source = source
        self.changes: ChangeLog = ChangeLog() if before is None else before.changes
        self._index = index
        self._replay_limit_s = replay_limit_s
        self._retry_pause_s = retry_pause_s
        #: When a stuck stream is read again; None while it is not stuck.
        self._retry_s: float | None = None
        #: More of it than its device cache counts: other tiers, windows, checkpoints, or a declared layout.
        self.is_tiered = source.layout is not None
        index.attach(
            source.target,
            model=source.model,
            host=source.host,
            pools=source.pools,
            layout=source.layout,
            bigram=source.is_bigram,
        )
        self._stream = RankStream(
            source.target,
            index,
            replay_available=source.replay_endpoint is not None,
            snapshot_available=source.snapshot_url is not None and "dump" in index.supports,
            due_limit_s=due_limit_s,
        )
        if before is not None:
            self._stream.counters = before.counters
        #: Sockets of this rank are being opened (again): what older ones still deliver is not its own.
        self.is_waiting_for_sockets = True
        #: Records of a snapshot, and bytes of live messages, to take over at once; the table's, which measures.
        self.records_a_hold = 64
        self.bytes_a_hold = LEAST_RUN_BYTES
        #: Live messages to try at once.
        self._run_messages = MAX_RUN_MESSAGES
        #: When a running replay is given up; None while none runs.
        self.deadline_s: float | None = None

    @property
    def counters(self) -> StreamCounters:
        """What the rank's streams have seen in all."""
        return self._stream.counters

    @property
    def trust(self) -> Trust:
        """How far this rank's credit can be believed."""
        return self._stream.trust if self._index_is_modelled() else Trust.LOST

    def find_credit_tokens(self, found_tokens: int, block_tokens: int, now_s: float) -> int:
        """The part of a resident prefix that the stream's trust lets count, in whole blocks."""
        ratio = self.credit_ratio(now_s)
        return found_tokens if ratio == 1 else int(found_tokens * ratio) // block_tokens * block_tokens

    def credit_ratio(self, now_s: float) -> float:
        """Share of what the index says that the rank may be credited with."""
        return self._stream.credit_ratio(now_s) if self._index_is_modelled() else 0.0

    def wants_snapshot(self, ticket: int) -> bool:
        """Whether the snapshot of this ticket is still awaited."""
        return self._stream.wants_snapshot(ticket)

    def _index_is_modelled(self) -> bool:
        return self._index.is_modelled(self.source.target)

    def on_live(self, frames: Sequence[bytes], now_s: float) -> Wish | None:
        """A live message."""
        return self._take(self._stream.on_live(frames, now_s), now_s)

    def on_live_run(self, messages: Sequence[Sequence[bytes]], now_s: float) -> tuple[int, Wish | None]:
        """The first of these live messages: how many were taken in, at least one."""
        run = self._stream.on_live_run(messages[: self._run_messages], now_s)
        if not run.payloads:
            # As many as were in vain are not tried again for every single message.
            self._run_messages = 1
            return 1, self.on_live(messages[0], now_s)
        self._run_messages = min(2 * max(self._run_messages, run.payloads), MAX_RUN_MESSAGES)
        self.changes.record_run(run, now_s)
        self.is_tiered = self.is_tiered or bool(run.gained or run.lost)
        return run.payloads, None

    def on_replay(self, frames: Sequence[bytes], now_s: float) -> Wish | None:
        """A message of the replay socket."""
        before_seq = self._stream.last_seq
        wish = self._take(self._stream.on_replay(frames, now_s), now_s)
        # Messages that bring nothing new do not keep a replay alive.
        if self.deadline_s is not None and self._stream.last_seq != before_seq:
            self.deadline_s = now_s + self._replay_limit_s
        return wish

    def on_connected(self, now_s: float) -> Wish | None:
        """The event socket is connected."""
        return self._take(self._stream.on_connected(now_s), now_s)

    def on_replay_failed(self, now_s: float) -> Wish | None:
        """The replay under way has no answer in time, or could not be asked for."""
        self.deadline_s = None
        return self._take(self._stream.on_replay_failed(now_s), now_s)

    def on_snapshot(self, part: SnapshotPart | None, ticket: int, now_s: float) -> Wish | None:
        """A part of the snapshot asked for under `ticket`, in order; None where it failed."""
        if isinstance(part, tuple):
            self.is_tiered = self.is_tiered or any(map(_is_beyond_plain, part))
            self._stream.on_snapshot_records(part, ticket)
            return None
        if isinstance(part, SnapshotHeader):
            if not self._is_of_this_rank(part):
                return self._take(self._stream.on_snapshot_failed(ticket, now_s), now_s)
            self.changes.record(CLEARED, now_s)
            return self._take(self._stream.on_snapshot_started(part, ticket, now_s), now_s)
        if part is None:
            return self._take(self._stream.on_snapshot_failed(ticket, now_s), now_s)
        # What came with it is not listed: evidence from before it is as good as gone.
        self.changes.record(CLEARED, now_s)
        return self._take(self._stream.on_snapshot_ended(ticket, now_s), now_s)

    def on_served(self, new_blocks: int, position: int, now_s: float) -> None:
        """The rank computed blocks for a request that was placed at change `position`: it must have told of some."""
        if self.changes.position == position:
            self._stream.on_due_blocks(new_blocks, now_s)

    def find_retry(self, now_s: float) -> Wish | None:
        """Time passes. A rank that lost events for good has no credit anyway: its buffer is read from the start."""
        self._stream.on_tick(now_s)
        if not self._stream.is_stuck:
            self._retry_s = None
            return None
        if self._retry_s is None:
            self._retry_s = now_s + self._retry_pause_s
        if now_s < self._retry_s:
            return None
        self.on_lost(now_s)
        return self.on_connected(now_s)

    def on_silence(self, now_s: float, *, is_silent: bool) -> None:
        """What carries the events cannot be reached, or can be again; says nothing of the engine."""
        self._stream.on_silence(now_s, is_silent=is_silent)

    def on_lag(self, now_s: float, *, is_behind: bool) -> None:
        """More messages were there than are read in one go, or all were read."""
        self._stream.on_lag(now_s, is_behind=is_behind)

    def on_lost(self, now_s: float) -> None:
        """The worker, or the connection to it, is gone: no credit until events come again."""
        self.deadline_s = None
        if not self._stream.is_fresh:
            self._take(self._stream.on_lost(now_s), now_s)

    def to_view(self, now_s: float) -> StreamView:
        """What metrics and the workers page show."""
        counters, last_s = self.counters, self._stream.last_batch_s
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
            failed_replays=counters.failed_replays,
            resets=counters.resets,
            losses=counters.losses,
            snapshots_asked=counters.snapshots_asked,
            snapshots_loaded=counters.snapshots_loaded,
            snapshots_failed=counters.snapshots_failed,
            overdue=counters.overdue,
            orphans=counters.orphans,
            unknown_removals=counters.unknown_removals,
            lag_s=self._stream.lag_s(now_s),
            last_batch_age_s=None if last_s is None else max(0.0, now_s - last_s),
        )

    def _is_of_this_rank(self, header: SnapshotHeader) -> bool:
        """Whether a snapshot's blocks are this rank's, named as the router names them."""
        source = self.source
        return (header.dp_rank, header.model, header.seed) == (
            source.target.dp_rank,
            source.model,
            namespace_seed(source.model, bigram=source.is_bigram),
        )

    def _take(self, report: StreamReport, now_s: float) -> Wish | None:
        events = (event for batch in report.applied for event in batch.events)
        for change, event in zip(report.changes, events, strict=True):
            self.changes.record(change, now_s, is_gain=isinstance(event, BlockStored))
            self.is_tiered = self.is_tiered or bool(change.touched)
        if report.reset_reason is not None or report.doubted:
            # After lost events nothing that was known before is sure, which is as good as gone.
            self.changes.record(CLEARED, now_s)
        if report.ask_replay_from is not None:
            self.deadline_s = now_s + self._replay_limit_s
        elif not self._stream.is_replaying:
            self.deadline_s = None
        if report.ask_replay_from is None and report.ask_snapshot is None:
            return None
        return Wish(report.ask_replay_from, report.ask_snapshot)


def _is_beyond_plain(run: BlockRun) -> bool:
    """Whether blocks lie in another tier, or belong to a group beside the first."""
    return run.medium != Medium.DEVICE or run.group_idx not in (None, 0)
