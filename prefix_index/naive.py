"""The index in plain Python: a set of holders for every place, exact, holes included.

Only device copies of full-attention groups count; `residency` keeps other tiers and groups apart.
"""

from collections.abc import Iterator
from itertools import islice

from prefix_index.base import BlockChain, Change
from prefix_index.residency import CopyRule, HolderBlocks
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from wire.ids import Target


class _Holder:
    """One attached holder: its bit in every mask, its blocks, how many places it holds."""

    def __init__(self, bit: int, blocks: HolderBlocks) -> None:
        self.bit = bit
        self.blocks = blocks
        self.place_count = 0


class NaivePrefixIndex:
    """`PrefixIndex` in plain Python.

    Cost: a few us a stored block; a match is one dictionary look-up a block, until nobody is left.
    Memory: bounded by what the holders hold, plus `max_orphans` parked blocks a holder and group.
    """

    def __init__(self, *, secret: int = 0, max_orphans: int = 65_536) -> None:
        self._secret = secret
        self._max_orphans = max_orphans
        self._holders: dict[Target, _Holder] = {}
        self._at_bit: dict[int, Target] = {}
        #: Place -> bits of the holders that have it.
        self._masks: dict[int, int] = {}

    def attach(self, holder: Target, *, model: str, rule: CopyRule = CopyRule.COUNTED, bigram: bool = False) -> None:
        """See `PrefixIndex`; `rule` and `bigram` say what the holder's dialect and engine do."""
        self.drop(holder)
        bit = next(bit for bit in range(len(self._at_bit) + 1) if bit not in self._at_bit)
        blocks = HolderBlocks(model=model, rule=rule, bigram=bigram, secret=self._secret, max_orphans=self._max_orphans)
        self._at_bit[bit] = holder
        self._holders[holder] = _Holder(1 << bit, blocks)

    def drop(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held."""
        count = self.clear(holder)
        state = self._holders.pop(holder, None)
        if state is not None:
            del self._at_bit[state.bit.bit_length() - 1]
        return count

    def clear(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        state = self._holders.get(holder)
        if state is None:
            return 0
        count = state.place_count
        for place in state.blocks.places():
            self._unmark(state, place)
        state.blocks.clear()
        return count

    def doubt(self, holder: Target) -> int:
        """See `PrefixIndex`. Cost: proportional to what the holder held."""
        state = self._holders.get(holder)
        if state is None:
            return 0
        count = state.place_count
        for place in state.blocks.doubt():
            self._unmark(state, place)
        return count

    def apply(self, holder: Target, event: Event) -> Change:
        """See `PrefixIndex`."""
        state = self._holders.get(holder)
        if state is None:
            return Change()
        match event:
            case BlockStored():
                return self._store(state, event)
            case BlockRemoved():
                removed, unknown = state.blocks.remove(event)
                for place in removed:
                    self._unmark(state, place)
                return Change(removed=tuple(removed), unknown_removals=unknown)
            case AllBlocksCleared():
                self.clear(holder)
                return Change(cleared=True)

    def find_reuse(self, chain: BlockChain) -> dict[Target, int]:
        """See `PrefixIndex`. Cost: about 60 ns a block while a holder is left."""
        limit = chain.reusable_blocks
        found: dict[Target, int] = {}
        alive = self._masks.get(chain.hashes[0], 0) if limit else 0
        for depth, held in enumerate(map(self._masks.get, islice(chain.hashes, limit))):
            if held == alive:
                continue
            still = alive & (held or 0)
            if still != alive:
                tokens = depth * chain.block_tokens
                found.update((holder, tokens) for holder in self._targets(alive & ~still))
                alive = still
            if not alive:
                break
        found.update((holder, limit * chain.block_tokens) for holder in self._targets(alive))
        return found

    def block_count(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        state = self._holders.get(holder)
        return 0 if state is None else state.place_count

    def block_sizes(self) -> set[int]:
        """See `PrefixIndex`."""
        return {size for state in self._holders.values() for size in state.blocks.block_sizes}

    def is_modelled(self, holder: Target) -> bool:
        """See `PrefixIndex`."""
        state = self._holders.get(holder)
        return state is not None and state.blocks.is_modelled

    def check_invariants(self) -> None:
        """See `PrefixIndex`."""
        masks: dict[int, int] = {}
        for holder, state in self._holders.items():
            state.blocks.check_invariants()
            places = set(state.blocks.places())
            for place in places:
                masks[place] = masks.get(place, 0) | state.bit
            if len(places) != state.place_count or self._at_bit[state.bit.bit_length() - 1] != holder:
                raise AssertionError(f"{holder}: {len(places)} places are held, {state.place_count} counted")
        if masks != self._masks:
            raise AssertionError(f"masks differ at {len(masks.items() ^ self._masks.items())} places")

    def _store(self, state: _Holder, event: BlockStored) -> Change:
        stored, removed, orphaned = state.blocks.store(event)
        for place in removed:
            self._unmark(state, place)
        for place in stored:
            self._masks[place] = self._masks.get(place, 0) | state.bit
        state.place_count += len(stored)
        return Change(stored=tuple(stored), removed=tuple(removed), orphaned=orphaned)

    def _unmark(self, state: _Holder, place: int) -> None:
        left = self._masks[place] & ~state.bit
        if left:
            self._masks[place] = left
        else:
            del self._masks[place]
        state.place_count -= 1

    def _targets(self, mask: int) -> Iterator[Target]:
        while mask:
            bit = mask.bit_length() - 1
            yield self._at_bit[bit]
            mask ^= 1 << bit
