"""The index in plain Python: a set of holders for every place of full attention, exact, holes included.

The oracle of the native core, and what serves where that was not built. Window and recurrent groups, other tiers
and pools are looked up for each rank by the rules of `reuse`.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import ClassVar

from msgspec.structs import replace

from prefix_index.base import FEATURES, Alternative, BlockChain, Change, IndexSize
from prefix_index.components import STANDARD, Registry
from prefix_index.delta import Delta
from prefix_index.fleet import Fleet, Holder
from prefix_index.layout import Layout
from prefix_index.residency import CopyRule, Terms
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from wire.ids import Target
from wire.snapshot import BlockRecord


class NaivePrefixIndex:
    """`PrefixIndex` in plain Python.

    Cost: a few us a stored block; a match is one dictionary look-up a block, until nobody is left.
    Memory: bounded by the caps; at most `max_orphans` parked blocks a rank.
    """

    supports: ClassVar[frozenset[str]] = FEATURES

    def __init__(
        self,
        *,
        secret: int = 0,
        max_orphans: int = 65_536,
        max_holder_blocks: int = 4 << 20,
        max_blocks: int = 64 << 20,
        registry: Registry = STANDARD,
    ) -> None:
        """Start without holders. Above a cap, the block that was stored longest ago is forgotten."""
        self._terms = Terms(model="", secret=secret, max_orphans=max_orphans, registry=registry)
        self._fleet = Fleet(max_holder_blocks=max_holder_blocks, max_blocks=max_blocks)
        #: Place of full attention -> bits of the holders that have it on their device.
        self._masks: dict[int, int] = {}

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
        """See `PrefixIndex`; `rule` and `bigram` say what the holder's dialect and engine do."""
        self.drop(holder)
        terms = replace(self._terms, model=model, rule=rule, bigram=bigram, layout=layout)
        return self._fleet.add(holder, terms, host=host, pools=pools)

    def drop(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held."""
        count = self.clear(holder)
        self._fleet.remove(holder)
        return count

    def clear(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        return self._forget(holder, lambda state: state.blocks.clear())

    def doubt(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held."""
        return self._forget(holder, lambda state: state.blocks.doubt())

    def drop_pool(self, pool: str) -> int:
        """See `PrefixIndex`."""
        return self._fleet.drop_pool(pool)

    def apply(self, holder: Target, event: Event, *, generation: int | None = None) -> Change:
        """See `PrefixIndex`."""
        state = self._fleet.holders.get(holder)
        if state is None or generation not in (None, state.generation):
            return Change()
        match event:
            case BlockStored():
                return self._note(state, state.blocks.store(event))
            case BlockRemoved():
                return self._note(state, state.blocks.remove(event))
            case AllBlocksCleared():
                self._forget(holder, lambda state: state.blocks.empty())
                return Change(cleared=True)

    def find_reuse(self, chain: BlockChain) -> dict[Target, int]:
        """See `PrefixIndex`. Cost: about 60 ns a block while a holder is left; more for each hybrid holder."""
        found: dict[Target, int] = {}
        for each in (chain, *chain.others):
            for holder, tokens in self._walk(each):
                found[holder] = min(tokens, found.get(holder, tokens))
        chains, limit = chain.by_size, chain.token_count - 1
        for state in self._fleet.find_others(found):
            full_tokens = found.pop(state.target, None)
            tokens = state.find_device_reuse(chains, limit, full_tokens)
            if tokens:
                found[state.target] = tokens
        return found

    def find_alternatives(self, chain: BlockChain, holder: Target) -> tuple[Alternative, ...]:
        """See `PrefixIndex`. Cost: some us a block, for it asks every tier."""
        return self._fleet.find_alternatives(holder, chain.by_size, chain.token_count - 1)

    def correct(self, holder: Target, chain: BlockChain, cached_tokens: int) -> int:
        """See `PrefixIndex`."""
        state = self._fleet.holders.get(holder)
        return state.correct(chain.by_size, chain.token_count - 1, cached_tokens) if state else 0

    def dump(self, holder: Target) -> Iterator[BlockRecord]:
        """See `PrefixIndex`."""
        return state.dump() if (state := self._fleet.holders.get(holder)) else iter(())

    def load(self, holder: Target, records: Iterable[BlockRecord]) -> int:
        """See `PrefixIndex`."""
        state = self._fleet.holders.get(holder)
        return sum(self._load(state, record) for record in records) if state else 0

    def block_count(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        return state.block_count if (state := self._fleet.holders.get(holder)) else 0

    def block_sizes(self) -> set[int]:
        """See `PrefixIndex`."""
        return {size for state in self._fleet.holders.values() for size in state.blocks.block_sizes}

    def is_modelled(self, holder: Target) -> bool:
        """See `PrefixIndex`."""
        return (state := self._fleet.holders.get(holder)) is not None and state.blocks.is_modelled

    def size(self) -> IndexSize:
        """See `PrefixIndex`."""
        return self._fleet.size()

    def check_invariants(self) -> None:
        """See `PrefixIndex`."""
        masks: dict[int, int] = {}
        for state in self._fleet.holders.values():
            for place in state.blocks.places():
                masks[place] = masks.get(place, 0) | state.bit
        if masks != self._masks:
            raise AssertionError(f"masks differ at {len(masks.items() ^ self._masks.items())} places")
        self._fleet.check_invariants()

    def _walk(self, chain: BlockChain) -> Iterator[tuple[Target, int]]:
        """Every holder with the first block in full attention, and tokens up to its first hole."""
        limit, alive = chain.reusable_blocks, 0
        for depth, held in enumerate(map(self._masks.get, islice(chain.hashes, limit))):
            still = (alive if depth else -1) & (held or 0)
            if depth and still != alive:
                yield from ((holder, depth * chain.block_tokens) for holder in self._fleet.at_bits(alive & ~still))
            alive = still
            if not alive:
                return
        yield from ((holder, limit * chain.block_tokens) for holder in self._fleet.at_bits(alive))

    def _note(self, state: Holder, delta: Delta) -> Change:
        """Keep masks and caps after what one event did."""
        lost, gained = delta.settle()
        self._unmark(state, lost)
        for place in gained:
            self._masks[place] = self._masks.get(place, 0) | state.bit
        state.full_places += len(gained)
        evicted = [place for victim, lost in self._fleet.evict(state) for place in self._unmark(victim, lost)]
        return delta.to_change(evicted)

    def _load(self, state: Holder, record: BlockRecord) -> bool:
        delta = Delta()
        is_taken = state.load(record, delta)
        self._note(state, delta)
        return is_taken

    def _forget(self, holder: Target, how: Callable[[Holder], object]) -> int:
        """Take a holder's credit, then do what else is to be forgotten; blocks it held."""
        state = self._fleet.holders.get(holder)
        if state is None:
            return 0
        count = state.block_count
        self._unmark(state, tuple(state.blocks.places()))
        how(state)
        return count

    def _unmark(self, state: Holder, places: Iterable[int]) -> Iterable[int]:
        for place in places:
            left = self._masks[place] & ~state.bit
            if left:
                self._masks[place] = left
            else:
                del self._masks[place]
            state.full_places -= 1
        return places
