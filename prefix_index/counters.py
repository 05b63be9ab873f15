"""What a stream has seen since it began."""

from collections.abc import Iterable

import msgspec

from prefix_index.base import Change
from prefix_index.runs import RunOutcome
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event


class StreamCounters(msgspec.Struct):
    """Counts of one rank's stream; they only grow."""

    #: Batches applied, and the events in them.
    batches: int = 0
    events: int = 0
    #: Events by type name, among those applied.
    kinds: dict[str, int] = msgspec.field(default_factory=dict)
    #: What was left out, by reason: `unknown_type`, `malformed`, `malformed batch`, `other rank`, `frame ...`.
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    #: Breaks in the numbering, replays asked for, failed replays, resets of the rank's part of the index.
    gaps: int = 0
    replays: int = 0
    failed_replays: int = 0
    resets: int = 0
    #: Snapshots asked for, taken over, and not to be had.
    snapshots_asked: int = 0
    snapshots_loaded: int = 0
    snapshots_failed: int = 0
    #: Times that events were lost for good.
    losses: int = 0
    #: Times that blocks were due and none came.
    overdue: int = 0
    #: Blocks parked because their parent was unknown, and removals of unknown blocks.
    orphans: int = 0
    unknown_removals: int = 0

    def skip(self, reasons: Iterable[str]) -> None:
        """Things that were left out."""
        for reason in reasons:
            self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def record(self, event: Event, change: Change) -> None:
        """An event that was applied."""
        kind = type(event).__name__
        self.events += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.orphans += change.orphaned
        self.unknown_removals += change.unknown_removals

    def record_run(self, run: RunOutcome) -> None:
        """Batches that were applied in one go."""
        self.batches += run.payloads
        for event, count in ((BlockStored, run.stores), (BlockRemoved, run.removals), (AllBlocksCleared, run.clears)):
            if count:
                kind = event.__name__
                self.events += count
                self.kinds[kind] = self.kinds.get(kind, 0) + count
        self.orphans += run.orphaned
        self.unknown_removals += run.unknown_removals
