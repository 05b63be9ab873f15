"""The blocks of one rank in plain Python: what its events say of every cache group and tier.

Takes that rank's events, keeps names, copies and shelves, and says which places of its device cache came and
went. An engine's hash is opaque and only resolves parents and removals; equal hashes of one block size name one
block, whatever its groups. A block whose parent is unknown is parked, bounded, and takes its place when the parent
turns up. A block that is doubted counts for nothing until one stored below it proves that it is there.
"""

from collections.abc import Iterable, Iterator, Sequence

from prefix_index import namespace
from prefix_index.base import CopyRule
from prefix_index.blocks import Block, Delta, Name, Parked, Slot, Terms, Tree
from prefix_index.modelled import Modelled
from prefix_index.shelves import POOL_TIERS, Group, Pool
from wire.block_hash import fold_name
from wire.events import BlockRemoved, BlockStored, Medium

#: Most groups of one holder; engines have a handful.
MAX_GROUPS = 64
#: Most ends of unnamed runs that are remembered.
MAX_TAILS = 64
#: Most tokens that parked blocks may hold together.
MAX_PARKED_TOKENS = 4 << 20


class HolderBlocks:
    """Everything one rank reported."""

    def __init__(self, terms: Terms, pool: Pool | None, tree: Tree) -> None:
        self.terms, self.pool, self.tree = terms, pool, tree
        self.block_sizes: set[int] = set()
        self.clear()

    def clear(self) -> None:
        """Forget all blocks and groups, as for a new process. What went into a pool stays there."""
        self.groups: dict[int | None, Group] = {}
        self.modelled = Modelled(self.terms.layout, self.terms.registry)
        #: False once a group was seen whose rule is not known.
        self.is_modelled = self.modelled.is_known
        self.empty()

    def empty(self) -> None:
        """Forget all blocks but not what groups the model has: the cache was cleared, the engine is the same."""
        #: Oldest store first.
        self.blocks: dict[Name, Block] = {}
        self.parked: dict[Name, Parked] = {}
        #: Block size -> places at which a run ended whose last block was not named, latest last.
        self._tails: dict[int, list[int]] = {}
        #: Names with doubted copies, by block size and place.
        self._doubtful: dict[tuple[int, int], set[Name]] = {}
        for group in (*self.groups.values(), *self.modelled.groups.values()):
            group.empty()

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
        if tier is Medium.DEVICE and group.is_prefix and event.parent_block_hash is not None:
            self._prove((event.block_tokens, fold_name(event.parent_block_hash)), slot, delta)
        self._store_blocks(event, slot, unlisted or 0, delta)
        return delta

    def remove(self, event: BlockRemoved) -> Delta:
        """Take in a removal: one copy less of each block; a doubted one goes first, and counts for nothing."""
        delta = Delta()
        group, tier = self.groups.get(event.group_idx), namespace.find_tier(event.medium)
        size = None if group is None or tier is None else group.block_tokens.get(tier)
        if group is None or tier is None or size is None:
            is_ignored = group is not None and (group.component is None or tier is None)
            delta.unknown = 0 if is_ignored else len(event.block_hashes)
            return delta
        slot = (event.group_idx, tier)
        for name in ((size, fold_name(each)) for each in event.block_hashes):
            block = self.blocks.get(name)
            if block is None or not (block.copies.get(slot) or slot in block.doubted):
                delta.unknown += 1
                continue
            left = {**block.copies, slot: block.copies.get(slot, 1) - 1}
            copies = {key: count for key, count in left.items() if count}
            self.change(name, block.place, copies, block.doubted - {slot}, delta)
        return delta

    def doubt(self) -> None:
        """Count no block any more until it is proved."""
        for name in tuple(self.parked):
            self.forget(name, Delta())
        for name, block in self.blocks.items():
            self.change(name, block.place, {}, block.doubted | block.copies.keys(), Delta())
        self._tails = {}

    def forget(self, name: Name, delta: Delta) -> None:
        """A block goes, all its copies."""
        self.change(name, self.blocks[name].place, {}, frozenset(), delta)

    def find_group(self, group_idx: int | None, kind: str | None, window_tokens: int | None) -> Group | None:
        """The group of that number; None where there are too many, or it is known as another kind."""
        group = self.groups.get(group_idx)
        if group is None and len(self.groups) < MAX_GROUPS:
            component = self.terms.registry.find(kind, group_idx, window_tokens)
            group = self.groups[group_idx] = Group(kind, window_tokens, component)
            self.is_modelled &= component is not None
            self.modelled.forget_group(group_idx)
        elif group is None:
            self.is_modelled = False
        is_known = group is not None and (group.kind, group.window_tokens) == (kind, window_tokens)
        return group if is_known else None

    def open_shelf(self, group: Group, tier: Medium, block_tokens: int, delta: Delta) -> bool:
        """Make the shelf of a tier; a new full-attention group takes the credit of those before it."""
        if tier is Medium.DEVICE and group.is_prefix and tier not in group.block_tokens:
            delta.lost += self.places(block_tokens)
        is_open = group.open_shelf(tier, block_tokens)
        self.block_sizes.add(group.block_tokens[tier])
        return is_open

    def _store_blocks(self, event: BlockStored, slot: Slot, unlisted: int, delta: Delta) -> None:
        size, adds_copy = event.block_tokens, not self._is_repeated(event, slot)
        keys = namespace.content_keys(event)
        names = [(size, fold_name(each)) for each in event.block_hashes]
        is_known, places = self._find_places(event, unlisted, keys, is_named=bool(names))
        for index, name in enumerate(names):
            block = self.blocks.pop(name, None) or Block()
            self.blocks[name] = block
            copies = dict(block.copies)
            if adds_copy or slot not in copies:
                copies[slot] = copies.get(slot, 0) + 1
            place, parked = block.place, None
            if is_known and (place is None or not unlisted):
                place = places[unlisted + index]
            elif place is None:
                parked = self._make_parked(event, names, index, unlisted, keys)
                place = self._extend(parked, size)
            if self._is_pooled(slot[1]) and slot in block.copies and place is not None and place == block.place:
                # The pool may have lost it since to another rank's removal.
                self.gain(slot, place, delta)
            self.change(name, place, copies, block.doubted - {slot}, delta)
            self.link(name, delta)
            if place is None and parked is not None:
                self._park(name, parked)
        delta.orphaned = 0 if is_known else sum(name in self.parked for name in names)
        if names:
            self._model(event, slot, names[-1], delta)

    def _find_places(
        self, event: BlockStored, unlisted: int, keys: tuple[namespace.Keys, ...] | None, *, is_named: bool
    ) -> tuple[bool, list[int]]:
        """Whether it is known what the event's tokens follow, and the places of its blocks then."""
        size, terms = event.block_tokens, self.terms
        above: int | None = None
        if event.parent_block_hash is None:
            seed = namespace.find_seed(event, terms.model, bigram=terms.bigram, secret=terms.secret)
        else:
            above = self._find_parent((size, fold_name(event.parent_block_hash)))
            if above is None:
                return False, []
            seed = above
        padded = (*((),) * unlisted, *keys) if keys else None
        places = namespace.chain_hashes(seed, event.token_ids, size, padded)
        self._hang(above, places)
        if places and not is_named:
            tails = self._tails.setdefault(size, [])
            tails.append(places[-1])
            del tails[:-MAX_TAILS]
        return True, places

    def _find_parent(self, name: Name) -> int | None:
        """Place of an event's parent; None where it is not known."""
        block, tails = self.blocks.get(name), self._tails.get(name[0])
        if block is not None:
            return block.place
        # Where every layer has a window, a run may have ended in a block that no event names.
        return tails.pop() if tails and not self._full else None

    def _hang(self, above: int | None, places: Sequence[int]) -> None:
        """Say what consecutive places follow."""
        for place in places:
            self.tree[place] = (above, 0 if above is None else self.tree[above][1] + 1)
            above = place

    def _make_parked(
        self, event: BlockStored, names: list[Name], index: int, unlisted: int, keys: tuple[namespace.Keys, ...] | None
    ) -> Parked:
        size = event.block_tokens
        parent = names[index - 1] if index else (size, fold_name(event.parent_block_hash or 0))
        start = (unlisted + index) * size if index else 0
        own_keys = keys[index] if keys and index < len(keys) else ()
        return Parked(parent, event.token_ids[start : (unlisted + index + 1) * size], own_keys)

    def _extend(self, parked: Parked, size: int) -> int | None:
        """Place of a block by its own parent's; None where that is not known."""
        above = self.blocks.get(parked.parent)
        if above is None or above.place is None:
            return None
        count = len(parked.token_ids) // size
        keys = (*((),) * (count - 1), parked.keys) if parked.keys else None
        places = namespace.chain_hashes(above.place, parked.token_ids, size, keys)
        self._hang(above.place, places)
        return places[-1]

    def _park(self, name: Name, parked: Parked) -> None:
        """Put a block aside; the oldest parked ones of its size are forgotten when there are too many."""
        self.parked.setdefault(name, parked)
        same = [each for each in self.parked if each[0] == name[0]]
        tokens = sum(len(self.parked[each].token_ids) for each in same)
        while same and (len(same) > self.terms.max_orphans or tokens > MAX_PARKED_TOKENS):
            tokens -= len(self.parked[same[0]].token_ids)
            self.forget(same.pop(0), Delta())

    def change(
        self, name: Name, place: int | None, copies: dict[Slot, int], doubted: frozenset[Slot], delta: Delta
    ) -> None:
        """A block's place and copies are these now: all that follows of it."""
        block = self.blocks[name]
        before = [] if block.place is None else [(slot, block.place) for slot in block.copies]
        after = [] if place is None else [(slot, place) for slot in copies]
        self._note_doubt(name, block, place, doubted)
        block.place, block.copies, block.doubted = place, copies, doubted
        for slot, old in before:
            if (slot, old) not in after:
                self._lose(slot, old, delta)
        for slot, new in after:
            if (slot, new) not in before:
                self.gain(slot, new, delta)
        if place is not None or not copies:
            self.parked.pop(name, None)
        if not copies and not doubted:
            del self.blocks[name]

    def link(self, name: Name, delta: Delta) -> None:
        """Give everything that waits for a block, and for what waits for that, its place."""
        ready = [name]
        while ready and self.parked:
            parent = ready.pop()
            for child in [each for each, parked in self.parked.items() if parked.parent == parent]:
                place = self._extend(self.parked[child], child[0])
                if place is not None:
                    self.change(child, place, self.blocks[child].copies, frozenset(), delta)
                    ready.append(child)

    def _note_doubt(self, name: Name, block: Block, place: int | None, doubted: frozenset[Slot]) -> None:
        if block.doubted and block.place is not None:
            self._doubtful[name[0], block.place].discard(name)
        if doubted and place is not None:
            self._doubtful.setdefault((name[0], place), set()).add(name)

    def _is_repeated(self, event: BlockStored, slot: Slot) -> bool:
        """True when the event says again what is known, without new copies.

        vLLM with `kv_cache_report_mode: full` reports a reused prefix again, from the prompt's start.
        A real second copy starts inside a chain (a recomputed last block, equal answers in flight),
        brings a new block too, or comes from a model whose window groups forced a recompute. A prompt
        of one block is recomputed whole, so a single block is a copy. A pool keeps one copy of a block.
        """
        if self.terms.rule is CopyRule.REFRESHED or self._is_pooled(slot[1]):
            return True
        is_inside = event.parent_block_hash is not None or len(event.block_hashes) < 2
        if is_inside or len(self._full) < len(self.groups):
            return False
        blocks = (self.blocks.get((event.block_tokens, fold_name(each))) for each in event.block_hashes)
        return all(block is not None and slot in block.copies for block in blocks)

    def _prove(self, name: Name, slot: Slot, delta: Delta) -> None:
        """A block and all before it are in the device cache after all.

        Up to a place that several doubted names claim: which of them is there is not known.
        """
        while (block := self.blocks.get(name)) is not None and slot in block.doubted and block.place is not None:
            self.change(name, block.place, block.copies | {slot: 1}, block.doubted - {slot}, delta)
            above = self.tree[block.place][0]
            names = self._doubtful.get((name[0], above), set()) if above is not None else set()
            if len(names) != 1:
                return
            (name,) = names

    def gain(self, slot: Slot, place: int, delta: Delta) -> None:
        """A place has its first copy in a slot, of one name."""
        group, tier = self.groups[slot[0]], slot[1]
        if self.pool is not None and self._is_pooled(tier):
            self.pool.store(slot[0], group, tier, place)
            delta.touched.append(place)
        elif group.put(tier, place):
            counts = tier is Medium.DEVICE and group.is_prefix
            if not counts or self._is_in_all(group, place):
                (delta.gained if counts else delta.touched).append(place)

    def _lose(self, slot: Slot, place: int, delta: Delta) -> None:
        group, tier = self.groups[slot[0]], slot[1]
        if self.pool is not None and self._is_pooled(tier):
            self.pool.remove(slot[0], tier, place)
            delta.touched.append(place)
            return
        did_count = tier is Medium.DEVICE and group.is_prefix and self._is_in_all(group, place)
        if group.take(tier, place):
            (delta.lost if did_count else delta.touched).append(place)
            if group.is_prefix:
                self.modelled.forget(tier, place)

    def _model(self, event: BlockStored, slot: Slot, last: Name, delta: Delta) -> None:
        """Believe of groups that the dialect does not report what the worker's layout lets expect."""
        block = self.blocks.get(last)
        if slot[0] is not None or not self.groups[None].is_prefix or block is None or block.place is None:
            return
        run = self._walk_back(block.place, self.groups[None].places[slot[1]], event.block_tokens)
        delta.touched.extend(self.modelled.believe(run, len(event.block_hashes), slot[1], event.block_tokens))

    def _walk_back(self, place: int | None, held: Iterable[int], size: int) -> Iterator[tuple[int, int]]:
        """A place and those before it that are held, with their ends in tokens."""
        while place is not None and place in held:
            above, position = self.tree[place]
            yield place, (position + 1) * size
            place = above

    @property
    def _full(self) -> list[Group]:
        """Groups of full attention."""
        return [group for group in self.groups.values() if group.is_prefix]

    def _is_pooled(self, tier: Medium) -> bool:
        """True where what is reported of a tier belongs to a shared pool."""
        return self.pool is not None and tier in POOL_TIERS

    def _peers(self, block_tokens: int) -> list[Group]:
        """Full-attention groups with device blocks of one size."""
        return [
            group for group in self._full if group.block_tokens.get(Medium.DEVICE, block_tokens + 1) == block_tokens
        ]

    def _is_in_all(self, group: Group, place: int) -> bool:
        peers = self._peers(group.block_tokens[Medium.DEVICE])
        return all(place in peer.places[Medium.DEVICE] for peer in peers)

    def places(self, block_tokens: int) -> list[int]:
        """Places of the device cache that every full-attention group of the block size has."""
        peers = self._peers(block_tokens)
        return [place for place in peers[0].places[Medium.DEVICE] if self._is_in_all(peers[0], place)] if peers else []

    def known_places(self) -> Iterator[int]:
        """Places of all blocks, and of the ends of runs."""
        yield from (block.place for block in self.blocks.values() if block.place is not None)
        yield from (place for places in self._tails.values() for place in places)

    @property
    def block_count(self) -> int:
        """Places on the device: those of full attention, or of any group where there is none."""
        if self._full:
            return sum(len(self.places(size)) for size in self.block_sizes)
        return len({place for group in self.groups.values() for place in group.places.get(Medium.DEVICE, ())})

    def check_invariants(self) -> None:
        """Raise AssertionError where names and shelves contradict each other."""
        shelves: dict[Slot, dict[int, int]] = {}
        for name, block in self.blocks.items():
            if not block.copies and not block.doubted:
                raise AssertionError(f"{name} is kept without a copy")
            if (block.place is None) != (name in self.parked):
                raise AssertionError(f"{name} has no place and does not wait, or has one and waits")
            for slot in block.copies if block.place is not None else ():
                places = shelves.setdefault(slot, {})
                places[block.place or 0] = places.get(block.place or 0, 0) + 1
        if not self.parked.keys() <= self.blocks.keys():
            raise AssertionError("a parked block is unknown")
        for group_idx, group in self.groups.items():
            for tier, places in group.places.items():
                if dict(places) != ({} if self._is_pooled(tier) else shelves.get((group_idx, tier), {})):
                    raise AssertionError(f"group {group_idx}, {tier}: places differ from what the names say")
        for number, group in self.modelled.groups.items():
            for tier, places in group.places.items():
                if not places.keys() <= {place for each in self._full for place in each.places.get(tier, ())}:
                    raise AssertionError(f"group {number}, {tier}: belief beyond full attention")
