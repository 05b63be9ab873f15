"""The blocks of one rank: what its events say of every cache group and tier.

Takes that rank's events, keeps names, copies and shelves, and says which places of its device cache came and
went. A block that is doubted counts for nothing until one stored below it proves that it is there.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from prefix_index import namespace
from prefix_index.components import STANDARD, Registry
from prefix_index.delta import Delta
from prefix_index.layout import Layout
from prefix_index.modelled import Modelled
from prefix_index.names import Block, Names, Slot
from prefix_index.shelves import Group, Pool
from wire.events import BlockRemoved, BlockStored, EngineHash, Medium


class CopyRule(StrEnum):
    """What a second store of the same block means in a dialect."""

    #: One more physical copy, with a removal of its own.
    COUNTED = "counted"
    #: The same copy said again: one removal drops it.
    REFRESHED = "refreshed"


#: Most groups of one holder; engines have a handful.
MAX_GROUPS = 64
#: Most ends of unnamed runs that are remembered.
MAX_TAILS = 64
POOL_TIERS = frozenset({Medium.DISK, Medium.EXTERNAL})


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How the events of one rank are to be read."""

    model: str
    rule: CopyRule = CopyRule.COUNTED
    bigram: bool = False
    secret: int = 0
    max_orphans: int = 65_536
    layout: Layout | None = None
    registry: Registry = STANDARD


class HolderBlocks:
    """Everything one rank reported."""

    def __init__(self, terms: Terms, pool: Pool | None) -> None:
        self.terms = terms
        self.pool = pool
        self.block_sizes: set[int] = set()
        self.clear()

    def clear(self) -> None:
        """Forget all blocks and groups, as for a new process. What went into a pool stays there."""
        self.names = Names(max_orphans=self.terms.max_orphans)
        self.groups: dict[int | None, Group] = {}
        #: Groups of full attention among them.
        self.full: list[Group] = []
        self.modelled = Modelled(self.terms.layout, self.terms.registry)
        #: Block size -> place and position at which a run ended whose last block was not named, latest last.
        self._tails: dict[int, list[tuple[int, int]]] = {}
        #: False once a group was seen whose rule is not known.
        self.is_modelled = self.modelled.is_known

    def empty(self) -> None:
        """Forget all blocks but not what groups the model has: the cache was cleared, the engine is the same."""
        self.names = Names(max_orphans=self.terms.max_orphans)
        self._tails = {}
        for group in (*self.groups.values(), *self.modelled.groups.values()):
            group.empty()

    def places(self) -> Iterable[int]:
        """Places of the device cache that every full-attention group of their block size has."""
        for group in self.full:
            # Each is given once, by the first group of its size.
            if group is self._peers(group.block_tokens.get(Medium.DEVICE))[0]:
                yield from (place for place in group.places.get(Medium.DEVICE, ()) if self._in_all(group, place))

    def store(self, event: BlockStored) -> Delta:
        """Take in a store."""
        delta = Delta()
        tier = namespace.find_tier(event.medium)
        group = self.find_group(event.group_idx, event.group_kind, event.window_tokens)
        if group is not None and group.component is None:
            return delta
        unlisted = namespace.count_unlisted(event)
        is_whole = group is not None and unlisted is not None and not (unlisted and group.is_prefix)
        if group is None or tier is None or not is_whole or not self.open_shelf(group, tier, event.block_tokens, delta):
            delta.refused = len(event.block_hashes)
            return delta
        slot = (event.group_idx, tier)
        if tier is Medium.DEVICE and group.is_prefix:
            self._prove(event, slot, delta)
        self._store_blocks(event, slot, unlisted or 0, delta)
        if group.is_prefix and event.block_hashes:
            self._model(event, tier, delta)
        return delta

    def remove(self, event: BlockRemoved) -> Delta:
        """Take in a removal: one copy less of each block."""
        delta = Delta()
        group, tier = self.groups.get(event.group_idx), namespace.find_tier(event.medium)
        size = None if group is None or tier is None else group.block_tokens.get(tier)
        if group is None or tier is None or size is None:
            is_ignored = group is not None and (group.component is None or tier is None)
            delta.unknown = 0 if is_ignored else len(event.block_hashes)
            return delta
        slot = (event.group_idx, tier)
        for engine_hash in event.block_hashes:
            block = self.names.blocks.get((size, engine_hash))
            if block is None or not self._take_copy(block, slot, delta):
                delta.unknown += 1
            elif block.is_gone:
                self.names.forget((size, engine_hash))
        return delta

    def doubt(self) -> None:
        """Count no block any more until it is proved."""
        for name in tuple(self.names.parked):
            self.names.forget(name)
        for block in self.names.blocks.values():
            for group_idx, tier in block.copies:
                if self.pool is not None and self._is_pooled(tier) and block.place is not None:
                    self.pool.remove(group_idx, tier, block.place)
            block.doubted.update(block.copies)
            block.copies = {}
        self._tails = {}
        for group in (*self.groups.values(), *self.modelled.groups.values()):
            group.empty()

    def forget_oldest(self) -> list[int]:
        """Forget the block that was stored longest ago, all its copies; places lost."""
        delta = Delta()
        name = self.names.find_oldest()
        block = self.names.blocks[name]
        for slot in tuple(block.copies):
            block.copies[slot] = 1
            self._take_copy(block, slot, delta)
        self.names.forget(name)
        return delta.lost

    def find_group(self, group_idx: int | None, kind: str | None, window_tokens: int | None) -> Group | None:
        """The group of that number; None where there are too many, or it is known as another kind."""
        group = self.groups.get(group_idx)
        if group is None and len(self.groups) < MAX_GROUPS:
            component = self.terms.registry.find(kind, group_idx, window_tokens)
            group = self.groups[group_idx] = Group(kind, window_tokens, component)
            self.is_modelled &= component is not None
            self.full.extend([group] if group.is_prefix else [])
            self.modelled.forget_group(group_idx)
        elif group is None:
            self.is_modelled = False
        is_known = group is not None and (group.kind, group.window_tokens) == (kind, window_tokens)
        return group if is_known else None

    def open_shelf(self, group: Group, tier: Medium, block_tokens: int, delta: Delta) -> bool:
        """Make the shelf of a tier; a new full-attention group takes the credit of those before it."""
        if tier is Medium.DEVICE and group.is_prefix and tier not in group.block_tokens:
            for other in self._peers(block_tokens)[:1]:
                delta.lost.extend(place for place in other.places[Medium.DEVICE] if self._in_all(other, place))
        self.block_sizes.add(block_tokens)
        return group.open_shelf(tier, block_tokens)

    def _store_blocks(self, event: BlockStored, slot: Slot, unlisted: int, delta: Delta) -> None:
        size, names = event.block_tokens, self.names
        adds_copy = not self._is_repeated(event, slot)
        keys = namespace.content_keys(event)
        padded = (*((),) * unlisted, *keys) if keys else None
        parent = self._find_parent(event)
        places: Sequence[int] = ()
        if parent is not None:
            places = namespace.chain_hashes(parent[0], event.token_ids, size, padded)
        for index, engine_hash in enumerate(event.block_hashes):
            block = names.touch((size, engine_hash))
            block.doubted.discard(slot)
            copies = block.copies.get(slot, 0)
            if adds_copy or not copies:
                block.copies[slot] = copies + 1
            if parent is not None and (block.place is None or (not unlisted and block.place != places[index])):
                self._place(event, index, places[unlisted + index], parent[1] + unlisted + index, delta)
            elif block.place is None:
                self._place_or_park(event, index, unlisted, keys, delta)
            elif not copies or self._is_pooled(slot[1]):
                # A pool may have lost it since to another rank's removal.
                self.gain(block, slot, delta)
        if parent is not None and not event.block_hashes and places:
            tails = self._tails.setdefault(size, [])
            tails.append((places[-1], parent[1] + len(places)))
            del tails[:-MAX_TAILS]
        if parent is None:
            delta.orphaned = sum((size, engine_hash) in names.parked for engine_hash in event.block_hashes)

    def _place(self, event: BlockStored, index: int, place: int, position: int, delta: Delta) -> None:
        """Give the event's `index`-th named block its place, or another one than it had."""
        name = (event.block_tokens, event.block_hashes[index])
        block = self.names.blocks[name]
        if block.place is not None:
            for slot in block.copies:
                self._lose(block, slot, delta)
        block.place, block.position = place, position
        if index:
            block.parent = event.block_hashes[index - 1]
        else:
            block.parent = event.parent_block_hash if namespace.count_unlisted(event) == 0 else None
        self.names.unpark(name)
        for slot in block.copies:
            self.gain(block, slot, delta)
        for child in self.names.link(name):
            for slot in child.copies:
                self.gain(child, slot, delta)

    def _place_or_park(
        self, event: BlockStored, index: int, unlisted: int, keys: tuple[namespace.Keys, ...] | None, delta: Delta
    ) -> None:
        """Place a block by its own parent's place, which may be known although the event's is not, or park it."""
        size = event.block_tokens
        parent = event.block_hashes[index - 1] if index else event.parent_block_hash
        if parent is None:
            return
        start = (unlisted + index) * size if index else 0
        tokens = event.token_ids[start : (unlisted + index + 1) * size]
        own_keys = keys[index] if keys and index < len(keys) else ()
        known = self.names.blocks.get((size, parent))
        if known is None or known.place is None:
            self.names.park((size, event.block_hashes[index]), ((size, parent), array("I", tokens), own_keys))
            return
        place = namespace.chain_hashes(known.place, tokens, size, (own_keys,) if own_keys else None)[-1]
        self._place(event, index, place, known.position + len(tokens) // size, delta)

    def _is_repeated(self, event: BlockStored, slot: Slot) -> bool:
        """True when the event says again what is known, without new copies.

        vLLM with `kv_cache_report_mode: full` reports a reused prefix again, from the prompt's start.
        A real second copy starts inside a chain (a recomputed last block, equal answers in flight),
        brings a new block too, or comes from a model whose window groups forced a recompute. A prompt
        of one block is recomputed whole, so a single block is a copy. A pool keeps one copy of a block.
        """
        if self.terms.rule is CopyRule.REFRESHED or self._is_pooled(slot[1]):
            return True
        if event.parent_block_hash is not None or len(event.block_hashes) < 2 or not self.is_full_only:
            return False
        blocks = self.names.blocks
        return all(
            (block := blocks.get((event.block_tokens, engine_hash))) is not None and slot in block.copies
            for engine_hash in event.block_hashes
        )

    def _find_parent(self, event: BlockStored) -> tuple[int, int] | None:
        """Place that the event's first tokens follow, and blocks up to there; None where it is not known."""
        if event.parent_block_hash is None:
            terms = self.terms
            return namespace.find_seed(event, terms.model, bigram=terms.bigram, secret=terms.secret), 0
        block = self.names.blocks.get((event.block_tokens, event.parent_block_hash))
        if block is not None and block.place is not None:
            return block.place, block.position + 1
        # Where every layer has a window, a run may have ended in a block that no event names.
        tails = self._tails.get(event.block_tokens)
        return tails.pop() if tails and block is None and not self.full else None

    def _prove(self, event: BlockStored, slot: Slot, delta: Delta) -> None:
        """The event's parent and all before it are in the device cache after all."""
        engine_hash: EngineHash | None = event.parent_block_hash
        while engine_hash is not None:
            block = self.names.blocks.get((event.block_tokens, engine_hash))
            if block is None or slot not in block.doubted:
                return
            block.doubted.discard(slot)
            block.copies[slot] = 1
            self.gain(block, slot, delta)
            engine_hash = block.parent

    def _take_copy(self, block: Block, slot: Slot, delta: Delta) -> bool:
        """One copy less; False where there was none. A doubted copy goes first, and counts for nothing."""
        if slot in block.doubted:
            block.doubted.discard(slot)
            return True
        copies = block.copies.get(slot, 0)
        if copies > 1:
            block.copies[slot] = copies - 1
        elif copies:
            del block.copies[slot]
            if block.place is not None:
                self._lose(block, slot, delta)
        return copies > 0

    def gain(self, block: Block, slot: Slot, delta: Delta) -> None:
        """A placed block has its first copy in a slot."""
        group_idx, tier = slot
        group, place = self.groups[group_idx], block.place
        if place is None:
            return
        if self.pool is not None and self._is_pooled(tier):
            self.pool.store(group_idx, group, tier, place)
            delta.touched.append(place)
        elif group.put(tier, place):
            counts = tier is Medium.DEVICE and group.is_prefix
            if not counts:
                delta.touched.append(place)
            elif self._in_all(group, place):
                delta.gained.append(place)

    def _lose(self, block: Block, slot: Slot, delta: Delta) -> None:
        group_idx, tier = slot
        group, place = self.groups[group_idx], block.place
        if place is None:
            return
        if self.pool is not None and self._is_pooled(tier):
            self.pool.remove(group_idx, tier, place)
            delta.touched.append(place)
            return
        counts = tier is Medium.DEVICE and group.is_prefix
        did_count = counts and self._in_all(group, place)
        if group.take(tier, place):
            (delta.lost if did_count else delta.touched).append(place)
            if group.is_prefix:
                self.modelled.forget(tier, place)

    def _model(self, event: BlockStored, tier: Medium, delta: Delta) -> None:
        """Believe of groups that the dialect does not report what the worker's layout lets expect."""
        if event.group_idx is not None or not self.modelled.groups:
            return
        count = len(event.block_hashes)
        delta.touched.extend(self.modelled.believe(self._walk_back(event), count, tier, event.block_tokens))

    def _walk_back(self, event: BlockStored) -> Iterator[tuple[int, int]]:
        """Place and end in tokens of the event's last block and those before it."""
        engine_hash: EngineHash | None = event.block_hashes[-1]
        while engine_hash is not None:
            block = self.names.blocks.get((event.block_tokens, engine_hash))
            if block is None or block.place is None:
                return
            yield block.place, (block.position + 1) * event.block_tokens
            engine_hash = block.parent

    @property
    def is_full_only(self) -> bool:
        """True when no group but full attention was reported."""
        return all(group.is_prefix for group in self.groups.values())

    def _is_pooled(self, tier: Medium) -> bool:
        """True where what is reported of a tier belongs to a shared pool."""
        return self.pool is not None and tier in POOL_TIERS

    def _peers(self, block_tokens: int | None) -> list[Group]:
        """Full-attention groups with device blocks of one size."""
        return [group for group in self.full if group.block_tokens.get(Medium.DEVICE) == block_tokens]

    def _in_all(self, group: Group, place: int) -> bool:
        if len(self.full) == 1:
            return place in group.places.get(Medium.DEVICE, ())
        peers = self._peers(group.block_tokens.get(Medium.DEVICE))
        return all(place in peer.places.get(Medium.DEVICE, ()) for peer in peers)

    def check_invariants(self) -> None:
        """Raise AssertionError where names and shelves contradict each other."""
        self.names.check_invariants()
        shelves: dict[Slot, dict[int, int]] = {}
        for block in self.names.blocks.values():
            for slot in block.copies if block.place is not None else ():
                places = shelves.setdefault(slot, {})
                places[block.place or 0] = places.get(block.place or 0, 0) + 1
        for group_idx, group in self.groups.items():
            for tier, places in group.places.items():
                if places != ({} if self._is_pooled(tier) else shelves.get((group_idx, tier), {})):
                    raise AssertionError(f"group {group_idx}, {tier}: places differ from what the names say")
        for number, group in self.modelled.groups.items():
            for tier, places in group.places.items():
                if not places.keys() <= {place for full in self.full for place in full.places.get(tier, ())}:
                    raise AssertionError(f"group {number}, {tier}: belief beyond full attention")
