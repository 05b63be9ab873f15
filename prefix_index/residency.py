"""One rank in plain Python: its blocks by the names that its events give them, and what follows of them.

An engine's hash is opaque and only resolves parents and removals; equal hashes of one block size name one block,
whatever its groups. A block whose parent is unknown is parked, bounded, and takes its place when the parent turns
up. A doubted block counts for nothing until one stored below it proves that it is there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from prefix_index import namespace
from prefix_index.base import CopyRule, Reach
from prefix_index.components import STANDARD, Registry
from prefix_index.layout import Layout, find_declared
from prefix_index.reuse import Declared
from prefix_index.shelves import REACHES, Group, Slot, Store
from wire.block_hash import fold_name
from wire.events import BlockRemoved, BlockStored, Medium

#: Most groups, most ends of unnamed runs that are remembered, most tokens that parked blocks hold together.
MAX_GROUPS, MAX_TAILS, MAX_PARKED_TOKENS = 64, 64, 4 << 20
#: Tokens in the block, and the engine's hash folded to 64 bits.
Name = tuple[int, int]


class Place(NamedTuple):
    """Canonical hashes of a block and of the one before it, None at a prompt's start; blocks before it."""

    hash: int
    above: int | None
    position: int


class Block(NamedTuple):
    """One name. Copies are never 0; those that were there when events were lost are doubted instead."""

    #: None while it is not known.
    place: Place | None = None
    copies: Mapping[Slot, int] = {}
    doubted: frozenset[Slot] = frozenset()

    @property
    def held(self) -> list[tuple[Slot, int]]:
        """Where it counts."""
        return [(slot, self.place.hash) for slot in self.copies] if self.place is not None else []


class Parked(NamedTuple):
    """A block that waits for its parent: tokens from the parent's end to its own, content keys of the block."""

    parent: Name
    token_ids: tuple[int, ...]
    keys: namespace.Keys


class News(msgspec.Struct):
    """What changed since the last event; see `Change`."""

    stored: list[int] = []
    removed: list[int] = []
    touched: list[int] = []
    orphaned: int = 0
    unknown_removals: int = 0
    refused: int = 0


class Rank(msgspec.Struct, eq=False, kw_only=True):
    """How the events of one rank are to be read, and everything that they reported; see `PrefixIndex.attach`."""

    generation: int = 0
    model: str = ""
    host: str | None = None
    #: The first is written.
    pools: list[Store] = []
    layout: Layout | None = None
    rule: CopyRule = CopyRule.COUNTED
    bigram: bool = False
    secret: int = 0
    max_orphans: int = 65_536
    registry: Registry = STANDARD
    block_sizes: set[int] = set()
    #: Oldest store first.
    blocks: dict[Name, Block] = {}
    parked: dict[Name, Parked] = {}
    #: Places at which a run ended whose last block was not named, by block size, latest last.
    tails: dict[int, list[Place]] = {}
    told: Store = msgspec.field(default_factory=Store)
    #: Groups that the dialect does not report: what the layout and the reported ones imply.
    beliefs: Store = msgspec.field(default_factory=Store)
    #: False once a group was seen whose rule is not known.
    is_modelled: bool = True
    news: News = msgspec.field(default_factory=News)

    def __post_init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return len(self.blocks)

    def clear(self) -> int:
        """Forget all blocks and groups, as for a new process; says how many counted. What is in a pool stays there."""
        count = self.count()
        self.told, self.beliefs = Store(), Store()
        groups = {n: self._make_group(n, each.kind, each.window_tokens) for n, each in self.declared.items()}
        self.is_modelled = all(group.component for group in groups.values())
        self.beliefs.groups = {n: each for n, each in groups.items() if each.component and not each.is_prefix}
        self.empty()
        return count

    def empty(self) -> None:
        """Forget all blocks but not what groups the model has: the cache was cleared, the engine is the same."""
        for each in (self.blocks, self.parked, self.tails, self.told.held, self.beliefs.held):
            each.clear()

    def store(self, event: BlockStored) -> None:
        """Take in a store."""
        tier, unlisted, size = namespace.find_tier(event.medium), namespace.count_unlisted(event), event.block_tokens
        group = self.find_group(event.group_idx, event.group_kind, event.window_tokens)
        if group is not None and group.component is None:
            return
        is_whole = group is not None and unlisted is not None and not (unlisted and group.is_prefix)
        if group is None or tier is None or not is_whole or not self.open_tier(group, tier, size):
            self.news.refused = len(event.block_hashes)
            return
        names = [(size, fold_name(each)) for each in event.block_hashes]
        parent = None if event.parent_block_hash is None else (size, fold_name(event.parent_block_hash))
        if parent is not None and tier is Medium.DEVICE and group.is_prefix:
            self._prove(parent, (event.group_idx, tier))
        self._store(event, (event.group_idx, tier), unlisted or 0, parent, names)
        if names and event.group_idx is None and group.is_prefix:
            self._believe(len(names), tier, self.blocks.get(names[-1], Block()).place, size)

    def remove(self, event: BlockRemoved) -> None:
        """Take in a removal: one copy less of each block; a doubted one goes first, and counts for nothing."""
        group, tier = self.told.groups.get(event.group_idx), namespace.find_tier(event.medium)
        if group is not None and (group.component is None or tier is None):
            return
        size = group.sizes.get(tier, 0) if group is not None and tier is not None else 0
        slot = (event.group_idx, tier or Medium.DEVICE)
        for name in ((size, fold_name(each)) for each in event.block_hashes):
            block = self.blocks.get(name, Block())
            if slot in block.copies or slot in block.doubted:
                count = block.copies.get(slot, 1) - 1
                others = {each: copies for each, copies in block.copies.items() if each != slot}
                self.put(name, Block(block.place, others | ({slot: count} if count else {}), block.doubted - {slot}))
            else:
                self.news.unknown_removals += 1

    def doubt(self) -> int:
        """Count no block any more until it is proved; says how many counted."""
        count = self.count()
        self.tails.clear()
        for name, block in tuple(self.blocks.items()):
            doubted = block.doubted | block.copies.keys() if block.place is not None else frozenset()
            self.put(name, Block(block.place, {}, doubted))
        return count

    def evict(self) -> None:
        """Forget the block stored longest ago."""
        self.put(next(iter(self.blocks)), Block())

    def correct(self, chains: Mapping[int, tuple[int, ...]], full_tokens: int, cached_tokens: int) -> None:
        """The engine reused `cached_tokens` of a prompt of which full attention has the first `full_tokens`."""
        for number, group in self.beliefs.groups.items():
            size, slot = group.sizes.get(Medium.DEVICE, 0), (number, Medium.DEVICE)
            if size not in chains or group.component is None:
                continue
            for place in chains[size][cached_tokens // size : full_tokens // size]:
                self.beliefs.held.pop((slot, place), None)
            if cached_tokens % size == 0 and cached_tokens <= full_tokens:
                start = max(0, group.component.find_start(cached_tokens))
                for place in chains[size][start // size : cached_tokens // size]:
                    self.beliefs.held[slot, place] = 1

    def find_group(self, number: int | None, kind: str | None, window_tokens: int | None) -> Group | None:
        """The group of that number; None where there are too many, or it is known as another kind."""
        group = self.told.groups.get(number)
        if group is None and len(self.told.groups) < MAX_GROUPS:
            group = self.told.groups[number] = self._make_group(number, kind, window_tokens)
            # An engine that numbers its groups reports them all: nothing is believed any more.
            self.beliefs = self.beliefs if number is None else Store()
        self.is_modelled &= group is not None and group.component is not None
        return group if group is not None and group.is_like(kind, window_tokens) else None

    def open_tier(self, group: Group, tier: Medium, block_tokens: int) -> bool:
        """Whether a tier takes blocks of that size; a new full-attention group takes the credit of those before it."""
        if tier is Medium.DEVICE and group.is_prefix and tier not in group.sizes:
            self.news.removed += self.find_counted(block_tokens)
        self.block_sizes.add(group.sizes.setdefault(tier, block_tokens))
        return group.sizes[tier] == block_tokens

    def put(self, name: Name, block: Block) -> None:
        """A name means this now: all that follows of it."""
        before, after = self.blocks.get(name, Block()).held, block.held
        self.blocks[name] = block
        for slot, place in (each for each in before if each not in after):
            self._lose(slot, place)
        for slot, place in (each for each in after if each not in before):
            self._gain(slot, place)
        if block.place is not None or not block.copies:
            self.parked.pop(name, None)
        if not block.copies and not block.doubted:
            del self.blocks[name]

    def link(self, name: Name) -> None:
        """Give everything that waits for a block, and for what waits for that, its place."""
        ready = [name]
        while ready and self.parked:
            parent = ready.pop()
            for child in [each for each, parked in self.parked.items() if parked.parent == parent]:
                if (place := self._extend(self.parked[child], child[0])) is not None:
                    self.put(child, Block(place, self.blocks[child].copies))
                    ready.append(child)

    def count(self) -> int:
        """Places on the device: those of full attention, or of any group where there is none."""
        if self.full:
            return sum(len(self.find_counted(size)) for size in self.block_sizes)
        return len({place for (_, tier), place in self.told.held if tier is Medium.DEVICE})

    def find_counted(self, block_tokens: int) -> list[int]:
        """Places of the device cache that every full-attention group of the block size has."""
        first = next((slot for slot, size in self.full.items() if size == block_tokens), None)
        return [place for slot, place in self.told.held if slot == first and self._is_counted(block_tokens, place)]

    def check_invariants(self) -> None:
        """Raise AssertionError where places contradict what names say."""
        said = Counter(each for block in self.blocks.values() for each in block.held)
        if self.told.held != {each: said[each] for each in said if self.find_store(each[0][1]) is self.told}:
            raise AssertionError("places differ from what the names say")
        idle = {name for name, block in self.blocks.items() if not block.copies and not block.doubted}
        if idle or self.parked.keys() != {name for name, block in self.blocks.items() if block.place is None}:
            raise AssertionError("a name is kept without a copy, or what waits is not what has no place")
        full = {(tier, place) for (n, tier), place in self.told.held if self.told.groups[n].is_prefix}
        if not {(tier, place) for (_, tier), place in self.beliefs.held} <= full:
            raise AssertionError("belief beyond full attention")

    @property
    def declared(self) -> Declared:
        """What the worker says of each group."""
        return find_declared(self.layout, self.registry)

    @property
    def full(self) -> dict[Slot, int | None]:
        """Groups of full attention on the device, and the tokens of their blocks."""
        groups = self.told.groups.items()
        return {(n, Medium.DEVICE): group.sizes.get(Medium.DEVICE) for n, group in groups if group.is_prefix}

    def find_store(self, tier: Medium) -> Store:
        """Where what is reported of a tier is kept: a shared pool takes what lies as far as pools."""
        return next(iter(self.pools), self.told) if REACHES[tier] is Reach.POOLS else self.told

    def _make_group(self, number: int | None, kind: str | None, window_tokens: int | None) -> Group:
        return Group(kind, window_tokens, self.registry.find(kind, number, window_tokens))

    def _store(self, event: BlockStored, slot: Slot, unlisted: int, parent: Name | None, names: Sequence[Name]) -> None:
        size, keys = event.block_tokens, namespace.content_keys(event) or ()
        adds_copy, start = not self._is_repeated(parent, names, slot), self._find_start(event, parent)
        places = _chain(start, event.token_ids, size, unlisted, keys) if start is not None else []
        if places and not names:
            self.tails[size] = [*self.tails.get(size, ()), places[-1]][-MAX_TAILS:]
        for index, name in enumerate(names, unlisted):
            block, is_first = self.blocks.get(name, Block()), index == unlisted
            tokens = event.token_ids[0 if is_first else index * size : (index + 1) * size]
            above = (parent or name) if is_first else names[index - unlisted - 1]
            parked = Parked(above, tokens, next(iter(keys[index - unlisted :]), ()))
            place = block.place
            if places and (place is None or not unlisted):
                place = places[index]
            elif place is None:
                place = self._extend(parked, size)
            if self.find_store(slot[1]) is not self.told and place is not None and (slot, place.hash) in block.held:
                # The pool may have lost it since to another rank's removal.
                self._gain(slot, place.hash)
            copies = {**block.copies, slot: block.copies.get(slot, 0) + (adds_copy or slot not in block.copies)}
            self.put(name, Block(place, copies, block.doubted - {slot}))
            self.blocks[name] = self.blocks.pop(name)
            self.link(name)
            if place is None:
                self._park(name, parked)
        self.news.orphaned = sum(name in self.parked for name in names) if start is None else 0

    def _is_repeated(self, parent: Name | None, names: Sequence[Name], slot: Slot) -> bool:
        """True when the event says again what is known, without new copies.

        vLLM with `kv_cache_report_mode: full` reports a reused prefix again, from the prompt's start.
        A real second copy starts inside a chain (a recomputed last block, equal answers in flight),
        brings a new block too, or comes from a model whose window groups forced a recompute. A prompt
        of one block is recomputed whole, so a single block is a copy. A pool keeps one copy of a block.
        """
        if self.rule is CopyRule.REFRESHED or self.find_store(slot[1]) is not self.told:
            return True
        is_inside = parent is not None or len(names) < 2 or len(self.full) < len(self.told.groups)
        return not is_inside and all(slot in self.blocks.get(name, Block()).copies for name in names)

    def _find_start(self, event: BlockStored, parent: Name | None) -> Place | None:
        """What the event's tokens follow; None where it is not known."""
        if parent is None:
            seed = namespace.find_seed(event, self.model, bigram=self.bigram, secret=self.secret)
            return Place(seed, None, -1)
        if parent in self.blocks:
            return self.blocks[parent].place
        # Where every layer has a window, a run may have ended in a block that no event names.
        tails = self.tails.get(parent[0])
        return tails.pop() if tails and not self.full else None

    def _extend(self, parked: Parked, size: int) -> Place | None:
        """Place of a block by its own parent's; None where that is not known."""
        above = self.blocks.get(parked.parent, Block()).place
        unlisted = len(parked.token_ids) // size - 1
        return None if above is None else _chain(above, parked.token_ids, size, unlisted, (parked.keys,))[-1]

    def _park(self, name: Name, parked: Parked) -> None:
        """Put a block aside; the oldest parked ones of its size are forgotten when there are too many."""
        self.parked.setdefault(name, parked)
        same = [(each, len(parked.token_ids)) for each, parked in self.parked.items() if each[0] == name[0]]
        tokens = sum(count for _, count in same)
        while same and (len(same) > self.max_orphans or tokens > MAX_PARKED_TOKENS):
            oldest, count = same.pop(0)
            tokens -= count
            self.put(oldest, Block())

    def _prove(self, name: Name, slot: Slot) -> None:
        """A block and all before it are in the device cache after all.

        Up to a place that several doubted names claim: which of them is there is not known.
        """
        claims: dict[int | None, list[Name]] = {}
        for each, block in self.blocks.items() if slot in self.blocks.get(name, Block()).doubted else ():
            if block.doubted and block.place is not None and each[0] == name[0]:
                claims.setdefault(block.place.hash, []).append(each)
        names = [name] if claims else []
        while len(names) == 1 and slot in (block := self.blocks[names[0]]).doubted and block.place is not None:
            self.put(names[0], Block(block.place, {**block.copies, slot: 1}, block.doubted - {slot}))
            names = claims.get(block.place.above, [])

    def _gain(self, slot: Slot, place: int) -> None:
        """One name more at a place."""
        store, group = self.find_store(slot[1]), self.told.groups[slot[0]]
        if store is not self.told:
            store.keep(slot, place, group)
            self.news.touched.append(place)
            return
        store.held[slot, place] += 1
        size = self.full.get(slot)
        if store.held[slot, place] == 1 and (size is None or self._is_counted(size, place)):
            (self.news.touched if size is None else self.news.stored).append(place)

    def _lose(self, slot: Slot, place: int) -> None:
        """One name less at a place."""
        store, group = self.find_store(slot[1]), self.told.groups[slot[0]]
        if store.held[slot, place] > 1:
            store.held[slot, place] -= 1
            return
        size = self.full.get(slot)
        did_count = size is not None and self._is_counted(size, place)
        (self.news.removed if did_count else self.news.touched).append(place)
        store.held.pop((slot, place), None)
        for number in self.beliefs.groups if group.is_prefix else ():
            self.beliefs.held.pop(((number, slot[1]), place), None)

    def _believe(self, count: int, tier: Medium, last: Place | None, size: int) -> None:
        """What an engine of that layout keeps in the groups it does not report: the end of what a step stored."""
        declared, held = self.declared, self.told.held
        offloads = {n for n in self.beliefs.groups if tier is Medium.DEVICE or declared[n].is_offloaded}
        groups = [each for each in self.beliefs.groups.items() if each[0] in offloads]
        groups = [each for each in groups if each[1].sizes.setdefault(tier, size) == size]
        if not groups:
            return
        placed = {block.place.hash: block.place for block in self.blocks.values() if block.place is not None}
        wanted = max(count, *(-(-(group.window_tokens or 0) // size) for _, group in groups))
        run: list[tuple[int, int]] = []
        while last is not None and held[(None, tier), last.hash] and len(run) < wanted:
            run.append((last.hash, (last.position + 1) * size))
            last = placed.get(last.above) if last.above is not None else None
        for number, group in groups:
            step = declared[number].checkpoint_tokens or 1
            first = next((index for index, (_, end) in enumerate(run[:count]) if end % step == 0), len(run))
            start = group.component.find_start(run[first][1]) if first < len(run) and group.component else 0
            kept = [((number, tier), place) for place, end in run[first:] if end > start]
            new = [each for each in kept if each not in self.beliefs.held]
            self.beliefs.held.update(new)
            self.news.touched += [place for _, place in new]

    def _is_counted(self, block_tokens: int, place: int) -> bool:
        """True where every full-attention group of the block size has a place."""
        return all(self.told.held[slot, place] for slot, size in self.full.items() if size == block_tokens)


def _chain(
    above: Place, token_ids: Sequence[int], size: int, unlisted: int, keys: Iterable[namespace.Keys]
) -> list[Place]:
    """Places of consecutive blocks; the keys are those of the blocks after the first `unlisted`."""
    all_keys = (*((),) * unlisted, *keys)
    hashes = namespace.chain_hashes(above.hash, token_ids, size, all_keys if any(all_keys) else None)
    before = [above.hash if above.position >= 0 else None, *hashes]
    return [Place(each, before[index], above.position + 1 + index) for index, each in enumerate(hashes)]
