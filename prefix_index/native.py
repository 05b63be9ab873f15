"""The index in C++: the same answers as `naive`, from events as values or from wire bytes in one call a list.

Takes what `PrefixIndex` takes. Everything that takes long runs with the interpreter's lock released, so other
threads go on; a lock of its own lets several threads share one index.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar

import msgspec

from prefix_index.base import BlockChain, Change
from prefix_index.residency import CopyRule
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from wire.ids import Target
from wire.malformed import Malformed

#: Entries of (block, holder, group) that an index holds unless told otherwise: some 2 to 5 GB.
MAX_ENTRIES = 64 << 20


class PayloadsOutcome(msgspec.Struct):
    """What a list of payloads changed, summed up."""

    #: Batches applied, and the events in them by type.
    batches: int = 0
    stores: int = 0
    removals: int = 0
    clears: int = 0
    #: Events and batches left out, by reason, as `RankStream` counts them.
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    #: Times that blocks were doubted because a batch or an event of a known type could not be read.
    losses: int = 0
    orphaned: int = 0
    unknown_removals: int = 0
    #: Canonical hashes in the order of the changes; empty unless asked for.
    stored: list[int] = msgspec.field(default_factory=list)
    removed: list[int] = msgspec.field(default_factory=list)


class IndexCounters(msgspec.Struct, frozen=True):
    """Size of an index, for metrics."""

    #: (block, holder, group) entries, and those forgotten by age since the start because there were too many.
    entries: int
    evicted_entries: int
    #: Entries that wait for their parent.
    parked_entries: int
    #: Different blocks, and different sets of holders they have.
    nodes: int
    holder_sets: int
    #: Blocks whose descendants are still to be told of a hole that opened or closed.
    unsettled_edges: int
    #: Memory that the structures take.
    size_bytes: int


class NativePrefixIndex:
    """`PrefixIndex` in C++.

    Cost: 0.2 to 0.6 us a stored block from wire bytes, some us an event given as a value; a match a few look-ups
    for each change of the holders along the prompt. Memory: 25 to 75 bytes a block and holder, at most `max_entries`
    of them: above, those that were not stored for longest are forgotten, whole chains first.

    `RankStream` applies event by event, for what it reports as changed must be told apart by event. Whoever has
    whole lists of payloads in order (a snapshot, a recording, a mirror) uses `apply_payloads`.
    """

    supports: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, *, secret: int = 0, max_orphans: int = 65_536, max_entries: int = MAX_ENTRIES) -> None:
        #: The compiled object; its verbs take numbers of holders.
        self.core: Any = import_module("prefix_index._core").Index(max_entries)
        self._secret = secret & 0xFFFF_FFFF_FFFF_FFFF
        self._max_orphans = max_orphans
        self._numbers: dict[Target, int] = {}

    def attach(self, holder: Target, *, model: str, rule: CopyRule = CopyRule.COUNTED, bigram: bool = False) -> None:
        """See `PrefixIndex`; `rule` and `bigram` say what the holder's dialect and engine do."""
        self.drop(holder)
        self._numbers[holder] = self.core.attach(
            holder, model, rule is CopyRule.REFRESHED, bigram, self._secret, self._max_orphans
        )

    def drop(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held."""
        number = self._numbers.pop(holder, None)
        return 0 if number is None else int(self.core.detach(number))

    def clear(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held."""
        number = self._numbers.get(holder)
        return 0 if number is None else int(self.core.clear(number))

    def doubt(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held.

        Differs from `naive` in one thing: where a holder has two names for one place, blocks below it prove no more
        than their own parent, for which of the two is the parent's parent is not kept.
        """
        number = self._numbers.get(holder)
        return 0 if number is None else int(self.core.doubt(number))

    def apply(self, holder: Target, event: Event) -> Change:
        """See `PrefixIndex`."""
        number = self._numbers.get(holder)
        if number is None:
            return Change()
        match event:
            case BlockStored():
                return _to_change(self.core.apply_stored(number, event))
            case BlockRemoved():
                return _to_change(self.core.apply_removed(number, event))
            case AllBlocksCleared():
                self.core.clear(number)
                return Change(cleared=True)

    def apply_payloads(
        self, holder: Target, payloads: Sequence[bytes], *, with_changes: bool = False
    ) -> PayloadsOutcome:
        """Decode and apply batches as they came off the wire, in order, in one native call.

        What the native decoder does not read (damaged bytes, unknown types, rare forms) is read by `wire.dialects`,
        so that the same is refused for the same reason. Like `RankStream`, doubts the holder at the end of a batch
        that was damaged. Of a holder that is not attached it applies nothing.
        """
        outcome = PayloadsOutcome()
        number = self._numbers.get(holder)
        done = 0 if number is not None else len(payloads)
        listed = list(payloads)
        while done < len(listed):
            done, *sums, stored, removed = self.core.apply_payloads(number, listed, done, with_changes)
            outcome.batches += sums[0]
            outcome.stores += sums[1]
            outcome.removals += sums[2]
            outcome.clears += sums[3]
            outcome.orphaned += sums[4]
            outcome.unknown_removals += sums[5]
            outcome.stored += stored
            outcome.removed += removed
            if done < len(listed):
                self._apply_slowly(holder, listed[done], outcome, with_changes=with_changes)
                done += 1
        return outcome

    def store_hashes(
        self, holder: Target, hashes: Sequence[int], *, block_tokens: int, parent: int | None = None
    ) -> Change:
        """Blocks given by ready canonical hashes, in chain order; `parent` is the canonical hash before the first.

        For sources that carry block ids and no tokens. Where no holder has the parent, the blocks are left out and
        counted as orphaned.
        """
        number = self._numbers.get(holder)
        if number is None:
            return Change()
        return _to_change(self.core.store_places(number, hashes, parent, block_tokens))

    def remove_hashes(self, holder: Target, hashes: Sequence[int]) -> Change:
        """One copy each of blocks that `store_hashes` stored."""
        number = self._numbers.get(holder)
        return Change() if number is None else _to_change(self.core.remove_places(number, hashes))

    def find_reuse(self, chain: BlockChain) -> dict[Target, int]:
        """See `PrefixIndex`. The chain must be one: each hash made from the one before it."""
        found: dict[Target, int] = self.core.find_reuse(chain.hashes, chain.reusable_blocks, chain.block_tokens)
        return found

    def block_count(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        number = self._numbers.get(holder)
        return 0 if number is None else int(self.core.block_count(number))

    def block_sizes(self) -> set[int]:
        """See `PrefixIndex`."""
        return set(self.core.block_sizes())

    def is_modelled(self, holder: Target) -> bool:
        """See `PrefixIndex`."""
        number = self._numbers.get(holder)
        return number is not None and bool(self.core.is_modelled(number))

    def check_invariants(self) -> None:
        """See `PrefixIndex`. Cost: proportional to the whole index."""
        found: str = self.core.find_contradiction()
        if found:
            raise AssertionError(found)

    def count(self) -> IndexCounters:
        """Sizes now."""
        return IndexCounters(**self.core.counters())

    def _apply_slowly(self, holder: Target, payload: bytes, outcome: PayloadsOutcome, *, with_changes: bool) -> None:
        """One payload through `wire.dialects`, which says what is wrong with it."""
        batch = decode_batch(payload)
        outcome.batches += 1
        reasons = ("malformed batch",) if isinstance(batch, Malformed) else batch.skipped
        for reason in reasons:
            outcome.skipped[reason] = outcome.skipped.get(reason, 0) + 1
        for event in () if isinstance(batch, Malformed) else batch.events:
            change = self.apply(holder, event)
            outcome.stores += isinstance(event, BlockStored)
            outcome.removals += isinstance(event, BlockRemoved)
            outcome.clears += change.cleared
            outcome.orphaned += change.orphaned
            outcome.unknown_removals += change.unknown_removals
            if with_changes:
                outcome.stored += change.stored
                outcome.removed += change.removed
        if isinstance(batch, Malformed) or "malformed" in batch.skipped:
            self.doubt(holder)
            outcome.losses += 1


def _to_change(told: tuple[tuple[int, ...], tuple[int, ...], int, int]) -> Change:
    stored, removed, orphaned, unknown = told
    return Change(stored=stored, removed=removed, orphaned=orphaned, unknown_removals=unknown)
