"""Payloads of one rank that follow each other, applied in one go: what they changed, and where a stream must look.

A run ends before the first payload that is more than a batch in order: one of which anything is left out (so that a
better copy may be asked for), or of another rank. That payload is the stream's business.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol, runtime_checkable

import msgspec

from prefix_index.base import PrefixIndex
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from wire.ids import Target
from wire.malformed import Malformed


class RunOutcome(msgspec.Struct, frozen=True):
    """What the payloads of a run changed, summed up; places are canonical hashes in the order of the changes."""

    #: Payloads applied, and the events in them by type.
    payloads: int = 0
    stores: int = 0
    removals: int = 0
    clears: int = 0
    #: As in `Change`.
    orphaned: int = 0
    unknown_removals: int = 0
    refused: int = 0
    #: Blocks that became resident in the device cache, and those whose last copy went.
    stored: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    #: Places of a window or recurrent group, or of another tier: touched by stores, touched by removals.
    gained: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()

    @property
    def is_change(self) -> bool:
        """Whether anything is different now, as far as `Change` would tell."""
        return bool(self.stored or self.removed or self.gained or self.lost or self.clears)


@runtime_checkable
class PayloadRuns(Protocol):
    """What can apply runs of payloads."""

    def apply_run(self, holder: Target, payloads: Sequence[bytes], dp_rank: int | None) -> RunOutcome:
        """Apply payloads in order, up to the first that is not whole or names another rank than `dp_rank`.

        Of a holder that is not attached it applies nothing.
        """


class EventwiseRuns:
    """Runs for an index that takes single events."""

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index

    def apply_run(self, holder: Target, payloads: Sequence[bytes], dp_rank: int | None) -> RunOutcome:
        """See `PayloadRuns`."""
        batches: list[EventBatch] = []
        for payload in payloads:
            batch = decode_batch(payload)
            if isinstance(batch, Malformed) or batch.skipped or batch.dp_rank not in (None, dp_rank):
                break
            batches.append(batch)
        return self._apply(holder, batches)

    def _apply(self, holder: Target, batches: Sequence[EventBatch]) -> RunOutcome:
        events = [event for batch in batches for event in batch.events]
        changes = [self._index.apply(holder, event) for event in events]
        are_stores = [isinstance(event, BlockStored) for event in events]
        told = list(zip(changes, are_stores, strict=True))
        return RunOutcome(
            payloads=len(batches),
            stores=sum(are_stores),
            removals=sum(isinstance(event, BlockRemoved) for event in events),
            clears=sum(isinstance(event, AllBlocksCleared) for event in events),
            orphaned=sum(change.orphaned for change in changes),
            unknown_removals=sum(change.unknown_removals for change in changes),
            refused=sum(change.refused for change in changes),
            stored=_join(change.stored for change in changes),
            removed=_join(change.removed for change in changes),
            gained=_join(change.touched for change, is_store in told if is_store),
            lost=_join(change.touched for change, is_store in told if not is_store),
        )


def _join(places: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(chain.from_iterable(places))


def find_runs(index: PrefixIndex) -> PayloadRuns:
    """The index itself where it can apply runs, else event by event."""
    return index if isinstance(index, PayloadRuns) else EventwiseRuns(index)
