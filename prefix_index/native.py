"""The index in C++: the same answers as `naive`, from events as values or from wire bytes in one call a list.

Takes what `PrefixIndex` takes. Everything that takes long runs with the interpreter's lock released, so other
threads go on; a lock of its own lets several threads share one index.
"""

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, ClassVar

import msgspec

from prefix_index.base import FEATURES, Alternative, BlockChain, Change, CopyRule, IndexSize, Load, Reach
from prefix_index.components import STANDARD, Registry
from prefix_index.core_components import CoreComponents
from prefix_index.layout import GroupLayout, Layout, find_declared, find_size_bytes
from prefix_index.runs import RunOutcome
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from wire.ids import Target
from wire.malformed import Malformed
from wire.snapshot import CHUNK_RECORDS, BlockRun

#: Blocks that an index holds unless told otherwise, some 2 to 5 GB, and those of one holder or pool.
MAX_BLOCKS = 64 << 20
MAX_HOLDER_BLOCKS = 4 << 20
_REACHES = list(Reach)


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
    refused: int = 0
    #: Canonical hashes in the order of the changes; empty unless asked for.
    stored: list[int] = msgspec.field(default_factory=list)
    removed: list[int] = msgspec.field(default_factory=list)


class IndexCounters(msgspec.Struct, frozen=True):
    """Size of an index, for metrics."""

    #: Blocks of holders and places of pools, and those forgotten by age since the start because there were too many.
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
    #: Entries, blocks and places looked at one after another since the start, where there may be many.
    steps: int


class _Registration(msgspec.Struct, frozen=True):
    """A holder that is attached."""

    #: What the core calls it.
    number: int
    generation: int
    #: What the worker declared of each group; of one without a number, of its first prefix group.
    declared: dict[int | None, GroupLayout]


class NativePrefixIndex:
    """`PrefixIndex` in C++.

    Cost: 0.2 to 0.6 us a stored block from wire bytes, some us an event given as a value; a match a few look-ups
    for each change of the holders along the prompt, and for a holder with windows or checkpoints those of its last
    blocks. Memory: 25 to 75 bytes a block and holder, at most `max_blocks` of them and `max_holder_blocks` a holder:
    above, those that were not stored for longest are forgotten, whole chains first.

    `RankStream` applies runs of payloads that simply follow each other in one call each. Whoever has lists of
    payloads in order and no stream (a recording) uses `apply_payloads`.
    """

    supports: ClassVar[frozenset[str]] = FEATURES

    def __init__(
        self,
        *,
        secret: int = 0,
        name_key: int = 0,
        max_orphans: int = 65_536,
        max_holder_blocks: int = MAX_HOLDER_BLOCKS,
        max_blocks: int = MAX_BLOCKS,
        registry: Registry = STANDARD,
    ) -> None:
        """Start without holders. A component of a kind that the core has no rule for is asked in Python.

        Args:
            secret: Start of every block's hash; those who exchange snapshots have the same.
            name_key: Spreads engines' names over tables, so that none can choose names that meet there; at random
                where engines are not trusted.
            max_orphans: Most parked blocks of a rank and block size.
            max_holder_blocks: Most blocks of a rank, and places of a pool.
            max_blocks: Most of all together.
            registry: Kinds of cache groups.
        """
        self._registry, self._components = registry, CoreComponents(registry)
        #: The compiled object; its verbs take numbers of holders.
        self.core: Any = import_module("prefix_index._core").Index(
            max_blocks, max_holder_blocks, self._components.find, self._components.find_start
        )
        self._secret = secret & 0xFFFF_FFFF_FFFF_FFFF
        self._name_key = name_key & 0xFFFF_FFFF_FFFF_FFFF
        self._max_orphans = max_orphans
        self._holders: dict[Target, _Registration] = {}
        self._generation = 0

    def attach(
        self,
        holder: Target,
        *,
        model: str,
        host: str | None = None,
        pools: tuple[str, ...] = (),
        layout: Layout | None = None,
        rule: CopyRule = CopyRule.COUNTED,
        bigram: bool = False,
    ) -> int:
        """See `PrefixIndex`."""
        self.drop(holder)
        self._generation += 1
        groups = layout.groups if layout is not None else ()
        number = self.core.attach(
            holder, model, rule is CopyRule.REFRESHED, bigram, self._secret, self._name_key, self._max_orphans, host,
            list(pools),
            [(each.kind, each.window_tokens, each.checkpoint_tokens or 0, each.is_offloaded) for each in groups],
        )  # fmt: skip
        self._holders[holder] = _Registration(number, self._generation, find_declared(layout, self._registry))
        return self._generation

    def drop(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held."""
        known = self._holders.pop(holder, None)
        return 0 if known is None else int(self.core.detach(known.number))

    def clear(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held."""
        known = self._holders.get(holder)
        return 0 if known is None else int(self.core.clear(known.number))

    def doubt(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held."""
        known = self._holders.get(holder)
        return 0 if known is None else int(self.core.doubt(known.number))

    def drop_pool(self, pool: str) -> int:
        """See `PrefixIndex`. Cost: proportional to what the pool held."""
        return int(self.core.drop_pool(pool))

    def apply(self, holder: Target, event: Event, *, generation: int | None = None) -> Change:
        """See `PrefixIndex`."""
        known = self._holders.get(holder)
        if known is None or generation not in (None, known.generation):
            return Change()
        match event:
            case BlockStored():
                return _to_change(self.core.apply_stored(known.number, event))
            case BlockRemoved():
                return _to_change(self.core.apply_removed(known.number, event))
            case AllBlocksCleared():
                self.core.apply_cleared(known.number)
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
        known = self._holders.get(holder)
        listed = list(payloads)
        done = 0
        while known is not None and done < len(listed):
            done, *sums, stored, removed = self.core.apply_payloads(known.number, listed, done, with_changes)
            outcome.batches += sums[0]
            outcome.stores += sums[1]
            outcome.removals += sums[2]
            outcome.clears += sums[3]
            outcome.orphaned += sums[4]
            outcome.unknown_removals += sums[5]
            outcome.refused += sums[6]
            outcome.stored += stored
            outcome.removed += removed
            if done < len(listed):
                self._apply_slowly(holder, listed[done], outcome, with_changes=with_changes)
                done += 1
        return outcome

    def apply_run(self, holder: Target, payloads: Sequence[bytes], dp_rank: int | None) -> RunOutcome:
        """See `PayloadRuns`: one native call, the interpreter's lock released while bytes are read."""
        known = self._holders.get(holder)
        if known is None:
            return RunOutcome()
        return RunOutcome(*self.core.apply_run(known.number, list(payloads), dp_rank))

    def find_reuse(self, chain: BlockChain) -> dict[Target, int]:
        """See `PrefixIndex`. The chain must be one: each hash made from the one before it."""
        found: dict[Target, int] = self.core.find_reuse(_to_chains(chain), max(0, chain.token_count - 1))
        return found

    def find_alternatives(self, chain: BlockChain, holder: Target) -> tuple[Alternative, ...]:
        """See `PrefixIndex`. Cost: a look-up a block and tier, from the prompt's start."""
        known = self._holders.get(holder)
        if known is None:
            return ()
        limit_tokens = max(0, chain.token_count - 1)
        told = self.core.find_alternatives(known.number, _to_chains(chain), limit_tokens)
        return tuple(self._to_alternative(known, each) for each in told)

    def correct(self, holder: Target, chain: BlockChain, cached_tokens: int) -> int:
        """See `PrefixIndex`."""
        known = self._holders.get(holder)
        if known is None:
            return 0
        limit_tokens = max(0, chain.token_count - 1)
        return int(self.core.correct(known.number, _to_chains(chain), limit_tokens, max(0, cached_tokens)))

    def dump(self, holder: Target) -> Iterator[BlockRun]:
        """See `PrefixIndex`. Cost: some 0.3 us a block."""
        known = self._holders.get(holder)
        if known is not None:
            yield from (BlockRun(*run) for run in self.core.dump(known.number, CHUNK_RECORDS))

    def load(self, holder: Target, runs: Iterable[BlockRun]) -> int:
        """See `PrefixIndex`. Cost: some 0.3 us a block."""
        known = self._holders.get(holder)
        if known is None:
            return 0
        return sum(self.core.load(known.number, msgspec.structs.astuple(run)) for run in runs if run.is_whole)

    def block_count(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        known = self._holders.get(holder)
        return 0 if known is None else int(self.core.block_count(known.number))

    def block_sizes(self) -> set[int]:
        """See `PrefixIndex`."""
        return set(self.core.block_sizes())

    def is_modelled(self, holder: Target) -> bool:
        """See `PrefixIndex`."""
        known = self._holders.get(holder)
        return known is not None and bool(self.core.is_modelled(known.number))

    def size(self) -> IndexSize:
        """See `PrefixIndex`."""
        now = self.count()
        return IndexSize(blocks=now.entries, parked_blocks=now.parked_entries, evicted_blocks=now.evicted_entries)

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
            outcome.refused += change.refused
            if with_changes:
                outcome.stored += change.stored
                outcome.removed += change.removed
        if isinstance(batch, Malformed) or "malformed" in batch.skipped:
            self.doubt(holder)
            outcome.losses += 1

    def _to_alternative(self, known: _Registration, told: tuple[int, int, int, int, list[Any]]) -> Alternative:
        reach, reuse_tokens, window_tokens, replay_tokens, loads = told
        found = tuple(
            Load(
                group_idx,
                self._components.find_name(number),
                _REACHES[source],
                tokens,
                find_size_bytes(known.declared.get(group_idx), tokens),
            )
            for group_idx, number, source, tokens in loads
        )
        return Alternative(
            _REACHES[reach], reuse_tokens, found, window_tokens=window_tokens, replay_tokens=replay_tokens
        )


def _to_chains(chain: BlockChain) -> list[tuple[int, tuple[int, ...], int]]:
    """For the core: tokens a block, hashes, tokens of the whole prompt."""
    chains = [(chain.block_tokens, chain.hashes, chain.token_count)]
    chains += [(other.block_tokens, other.hashes, other.token_count) for other in chain.others]
    return chains


def _to_change(told: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int, int]) -> Change:
    stored, removed, touched, orphaned, unknown, refused = told
    return Change(
        stored=stored, removed=removed, touched=touched, orphaned=orphaned, unknown_removals=unknown, refused=refused
    )
