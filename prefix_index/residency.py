"""The blocks of one holder: copies by tier and group, places in their chains, orphans.

Takes that holder's events, gives the places (canonical hashes) gained and lost in its device
cache. An engine's hash is opaque and only resolves parents and removals. A block whose parent is
unknown is parked, bounded, and takes its place when the parent turns up. A block that is doubted
counts for nothing until one stored below it proves that it is there.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice

from prefix_index import namespace
from wire.events import BlockRemoved, BlockStored, EngineHash, Medium


class CopyRule(StrEnum):
    """What a second store of the same block means in a dialect."""

    #: One more physical copy, with a removal of its own.
    COUNTED = "counted"
    #: The same copy said again: one removal drops it.
    REFRESHED = "refreshed"


#: Most tiers besides the device that a block is counted in; dialects have three.
MAX_TIERS = 8


class Block:
    """One engine hash of one group."""

    __slots__ = ("device", "others", "parent", "place")

    def __init__(self) -> None:
        #: Canonical hash; None while the block's place is unknown.
        self.place: int | None = None
        #: Engine hash of the block before it; None at the start of a prompt.
        self.parent: EngineHash | None = None
        #: Copies in the device cache.
        self.device = 0
        #: Copies in other tiers; None where there never was one.
        self.others: dict[str, int] | None = None

    def count_copies(self, medium: str) -> int:
        """Copies in one tier."""
        return self.device if medium == Medium.DEVICE else (self.others or {}).get(medium, 0)

    def add_copy(self, medium: str) -> None:
        """One more copy in a tier."""
        if medium == Medium.DEVICE:
            self.device += 1
        else:
            self.others = self.others or {}
            if medium not in self.others and len(self.others) >= MAX_TIERS:
                return
            self.others[medium] = self.others.get(medium, 0) + 1

    def take_copy(self, medium: str) -> bool:
        """One copy less in a tier; False where it had none."""
        if self.count_copies(medium) == 0:
            return False
        if medium == Medium.DEVICE:
            self.device -= 1
        elif self.others is not None:
            self.others[medium] -= 1
        return True

    @property
    def is_gone(self) -> bool:
        """True when no tier has a copy."""
        return self.device == 0 and not any((self.others or {}).values())


#: A parked block: parent, tokens, content keys.
Parked = tuple[EngineHash, "array[int]", namespace.Keys]
#: Most tokens that a group's parked blocks may hold together.
MAX_PARKED_TOKENS = 4 << 20
#: Most groups of one holder; engines have a handful.
MAX_GROUPS = 64
#: Most blocks known of one group, and most doubted ones; some 10 times what a large engine holds.
MAX_BLOCKS = 4 << 20
MAX_DOUBTED = 1 << 20


class Group:
    """Blocks of one cache group of a holder."""

    def __init__(self) -> None:
        self.blocks: dict[EngineHash, Block] = {}
        #: Place -> how many device-resident engine hashes stand there.
        self.resident: dict[int, int] = {}
        #: Blocks without a place, oldest first.
        self.parked: OrderedDict[EngineHash, Parked] = OrderedDict()
        self._parked_tokens = 0
        #: Parent -> parked blocks that wait for it, oldest first.
        self.waiting: dict[EngineHash, dict[EngineHash, None]] = {}
        #: Blocks with a place that were resident when events were lost.
        self.doubted: dict[EngineHash, Block] = {}

    def park(self, engine_hash: EngineHash, parked: Parked, max_parked: int) -> None:
        """Put a block aside; the oldest parked ones are forgotten when there are too many."""
        if engine_hash in self.parked:
            return
        self.parked[engine_hash] = parked
        self._parked_tokens += len(parked[1])
        self.waiting.setdefault(parked[0], {})[engine_hash] = None
        while len(self.parked) > max_parked or (self._parked_tokens > MAX_PARKED_TOKENS and len(self.parked) > 1):
            oldest = next(iter(self.parked))
            self.unpark(oldest)
            del self.blocks[oldest]

    def unpark(self, engine_hash: EngineHash) -> Parked | None:
        """Take a block off the parked ones; None where it was not parked."""
        parked = self.parked.pop(engine_hash, None)
        if parked is not None:
            self._parked_tokens -= len(parked[1])
            siblings = self.waiting[parked[0]]
            del siblings[engine_hash]
            if not siblings:
                del self.waiting[parked[0]]
        return parked

    def doubt(self) -> None:
        """Count no block any more; keep those whose place is known, for what is stored below them."""
        self.doubted |= {name: block for name, block in self.blocks.items() if block.place is not None}
        self.blocks, self.resident, self.parked, self.waiting = {}, {}, OrderedDict(), {}
        self._parked_tokens = 0
        for name in tuple(islice(self.doubted, max(0, len(self.doubted) - MAX_DOUBTED))):
            del self.doubted[name]

    def prove(self, engine_hash: EngineHash | None) -> Iterator[int]:
        """A block and those before it are in the device cache after all; their places, the last one first."""
        while engine_hash is not None and (block := self.doubted.pop(engine_hash, None)) is not None:
            block.device, block.others = 1, None
            self.blocks[engine_hash] = block
            if block.place is not None:
                yield block.place
            engine_hash = block.parent


class HolderBlocks:
    """Everything one holder reported."""

    def __init__(self, *, model: str, rule: CopyRule, bigram: bool, secret: int, max_orphans: int) -> None:
        self._model, self._rule, self._bigram = model, rule, bigram
        self._secret, self._max_orphans = secret, max_orphans
        self.clear()

    def clear(self) -> None:
        """Forget all blocks."""
        self.groups: dict[int | None, Group] = {}
        #: Groups whose blocks count; a place is reusable when every one of them has it.
        self.full: list[Group] = []
        self.block_sizes: set[int] = set()
        #: False once a group was seen that decides hits by other rules.
        self.is_modelled = True

    def places(self) -> Iterable[int]:
        """Places resident in every full group."""
        if not self.full:
            return ()
        return (place for place in self.full[0].resident if self._in_all(place))

    def store(self, event: BlockStored) -> tuple[list[int], list[int], int]:
        """Take in a store: places gained, places lost (to a new full group), blocks parked."""
        lost: list[int] = []
        group = self.groups.get(event.group_idx)
        if group is None:
            if len(self.groups) >= MAX_GROUPS:
                self.is_modelled = False
                return [], lost, 0
            group = self.groups[event.group_idx] = Group()
        if len(group.blocks) + len(event.block_hashes) > MAX_BLOCKS:
            return [], lost, len(event.block_hashes)
        if not namespace.is_full_attention(event):
            self.is_modelled = False
            self._add_copies(group, event)
            return [], lost, 0
        if group not in self.full:
            lost = list(self.places()) if self.full else []
            self.full.append(group)
        if not namespace.has_block_tokens(event):
            self._add_copies(group, event)
            return [], lost, len(event.block_hashes)
        if event.medium == Medium.DEVICE:
            self.block_sizes.add(event.block_tokens)
        gained, orphaned = self._store_full(group, event)
        return gained, lost, orphaned

    def remove(self, event: BlockRemoved) -> tuple[list[int], int]:
        """Take in a removal: places lost, and hashes of which the tier had no copy."""
        group = self.groups.get(event.group_idx)
        if group is None:
            return [], len(event.block_hashes)
        lost: list[int] = []
        unknown = 0
        for engine_hash in event.block_hashes:
            if event.medium == Medium.DEVICE and group.doubted.pop(engine_hash, None) is not None:
                continue
            block = group.blocks.get(engine_hash)
            if block is None or not block.take_copy(event.medium):
                unknown += 1
                continue
            if event.medium == Medium.DEVICE and block.device == 0 and block.place is not None:
                self._lose(group, block.place, lost)
            if block.is_gone:
                group.unpark(engine_hash)
                del group.blocks[engine_hash]
        return lost, unknown

    def _store_full(self, group: Group, event: BlockStored) -> tuple[list[int], int]:
        adds_copy = not self._is_repeated(group, event)
        keys = namespace.content_keys(event)
        gained: list[int] = []
        if event.medium == Medium.DEVICE:
            for place in group.prove(event.parent_block_hash):
                self._gain(group, place, gained)
        parent = self._find_parent(group, event)
        places: Sequence[int | None] = [None] * len(event.block_hashes)
        if parent is not None:
            places = namespace.chain_hashes(parent, event.token_ids, event.block_tokens, keys)
        for index, engine_hash in enumerate(event.block_hashes):
            block = group.blocks.get(engine_hash)
            if block is None:
                block = group.blocks[engine_hash] = Block()
                group.doubted.pop(engine_hash, None)
            was_counted = block.device > 0 and block.place is not None
            if adds_copy or block.count_copies(event.medium) == 0:
                block.add_copy(event.medium)
            if block.place is None:
                self._find_place(group, event, index, places[index], keys)
            if block.place is not None and block.device > 0 and not was_counted:
                self._gain(group, block.place, gained)
            if block.place is not None and engine_hash in group.waiting:
                self._link(group, engine_hash, gained)
        orphaned = 0 if parent is not None else sum(name in group.parked for name in event.block_hashes)
        return gained, orphaned

    def _find_place(
        self, group: Group, event: BlockStored, index: int, place: int | None, keys: tuple[namespace.Keys, ...] | None
    ) -> None:
        """Give the event's `index`-th block its place, or park it while nobody knows its parent's."""
        engine_hash = event.block_hashes[index]
        parent = event.block_hashes[index - 1] if index else event.parent_block_hash
        if place is None and parent is not None:
            start = index * event.block_tokens
            tokens = event.token_ids[start : start + event.block_tokens]
            own_keys = keys[index] if keys and index < len(keys) else ()
            known = group.blocks.get(parent)
            if known is None or known.place is None:
                group.park(engine_hash, (parent, array("I", tokens), own_keys), self._max_orphans)
                return
            place = namespace.chain_hashes(known.place, tokens, len(tokens), (own_keys,) if own_keys else None)[0]
        block = group.blocks[engine_hash]
        block.place, block.parent = place, parent
        group.unpark(engine_hash)

    def _is_repeated(self, group: Group, event: BlockStored) -> bool:
        """True when the event says again what is known, without new copies.

        vLLM with `kv_cache_report_mode: full` reports a reused prefix again, from the prompt's start.
        A real second copy starts inside a chain (a recomputed last block, equal answers in flight),
        brings a new block too, or comes from a model whose window groups forced a recompute. A prompt
        of one block is recomputed whole, so a single block is a copy.
        """
        if self._rule is CopyRule.REFRESHED:
            return True
        if event.parent_block_hash is not None or len(event.block_hashes) < 2 or not self.is_modelled:
            return False
        blocks = group.blocks
        return all(
            engine_hash in blocks and blocks[engine_hash].count_copies(event.medium)
            for engine_hash in event.block_hashes
        )

    def _find_parent(self, group: Group, event: BlockStored) -> int | None:
        if event.parent_block_hash is None:
            return namespace.find_seed(event, self._model, bigram=self._bigram, secret=self._secret)
        parent = group.blocks.get(event.parent_block_hash) or group.doubted.get(event.parent_block_hash)
        return None if parent is None else parent.place

    def _link(self, group: Group, parent: EngineHash, gained: list[int]) -> None:
        """Give everything that waits for `parent`, and for what waits for that, its place."""
        ready = [parent]
        while ready:
            parent = ready.pop()
            for engine_hash in tuple(group.waiting.get(parent, ())):
                parked, block = group.unpark(engine_hash), group.blocks[engine_hash]
                place = group.blocks[parent].place
                if parked is None or place is None:
                    continue
                block.parent, tokens, keys = parked
                block.place = namespace.chain_hashes(place, tokens, len(tokens), (keys,) if keys else None)[0]
                if block.device > 0:
                    self._gain(group, block.place, gained)
                ready.append(engine_hash)

    def doubt(self) -> list[int]:
        """Count no block any more until it is proved; places lost."""
        lost = list(self.places())
        for group in self.groups.values():
            group.doubt()
        return lost

    @staticmethod
    def _add_copies(group: Group, event: BlockStored) -> None:
        """Count copies of blocks that never get a place."""
        for engine_hash in event.block_hashes:
            group.blocks.setdefault(engine_hash, Block()).add_copy(event.medium)

    def _gain(self, group: Group, place: int, gained: list[int]) -> None:
        count = group.resident.get(place, 0)
        group.resident[place] = count + 1
        if count == 0 and self._in_all(place):
            gained.append(place)

    def _lose(self, group: Group, place: int, lost: list[int]) -> None:
        if group.resident[place] == 1:
            if self._in_all(place):
                lost.append(place)
            del group.resident[place]
        else:
            group.resident[place] -= 1

    def _in_all(self, place: int) -> bool:
        return len(self.full) == 1 or all(place in group.resident for group in self.full)

    def check_invariants(self) -> None:
        """Raise AssertionError where counts, places and parked blocks contradict each other."""
        for group in self.groups.values():
            resident: dict[int, int] = {}
            for engine_hash, block in group.blocks.items():
                if block.is_gone:
                    raise AssertionError(f"{engine_hash!r} is kept without a copy")
                if block.place is not None and block.device:
                    resident[block.place] = resident.get(block.place, 0) + 1
            waiting = sorted((hash_ for hashes in group.waiting.values() for hash_ in hashes), key=repr)
            if resident != group.resident or waiting != sorted(group.parked, key=repr):
                raise AssertionError("resident or parked blocks differ from what the events left")
            if len(group.parked) > self._max_orphans or not group.parked.keys() <= group.blocks.keys():
                raise AssertionError("parked blocks are unbounded or unknown")
            if not group.doubted.keys().isdisjoint(group.blocks):
                raise AssertionError("a block is doubted and counted")
