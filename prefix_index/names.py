"""What a rank calls its blocks: engine hash -> place in its chain, copies by group and tier, orphans.

An engine's hash is opaque and only resolves parents and removals. Equal hashes of one block size name one block,
whatever its groups. A block whose parent is unknown is parked, bounded, and takes its place when the parent
turns up. Blocks stand in the order in which they were stored last, so that the oldest can be forgotten.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterator

from prefix_index.namespace import Keys, chain_hashes
from wire.events import EngineHash, Medium

#: Tokens in the block, and the engine's hash.
Name = tuple[int, EngineHash]
#: Group and tier that a copy is in.
Slot = tuple[int | None, Medium]
#: A parked block: the name it waits for, tokens from there to the block's end, content keys of the block.
Parked = tuple[Name, "array[int]", Keys]
#: Most tokens that parked blocks may hold together.
MAX_PARKED_TOKENS = 4 << 20


class Block:
    """One engine hash of one block size."""

    __slots__ = ("copies", "doubted", "parent", "place", "position")

    def __init__(self) -> None:
        #: Canonical hash; None while the block's place is unknown.
        self.place: int | None = None
        #: Blocks before it in its chain; means nothing without a place.
        self.position = 0
        #: Engine hash of the block before it; None at the start of a prompt, or where it has no name.
        self.parent: EngineHash | None = None
        #: Copies, never 0.
        self.copies: dict[Slot, int] = {}
        #: Copies that were there when events were lost.
        self.doubted: set[Slot] = set()

    @property
    def is_gone(self) -> bool:
        """True when nothing is known to hold it."""
        return not self.copies and not self.doubted


class Names:
    """Blocks of one rank by name."""

    def __init__(self, *, max_orphans: int) -> None:
        self._max_orphans = max_orphans
        #: Oldest store first.
        self.blocks: OrderedDict[Name, Block] = OrderedDict()
        #: Blocks without a place, oldest first.
        self.parked: OrderedDict[Name, Parked] = OrderedDict()
        self._parked_tokens = 0
        #: Parent -> parked blocks that wait for it, oldest first.
        self.waiting: dict[Name, dict[Name, None]] = {}

    def find_oldest(self) -> Name:
        """The block that was stored longest ago."""
        return next(iter(self.blocks))

    def touch(self, name: Name) -> Block:
        """The block of that name, made where there is none, as the youngest."""
        block = self.blocks.get(name)
        if block is None:
            block = self.blocks[name] = Block()
        else:
            self.blocks.move_to_end(name)
        return block

    def forget(self, name: Name) -> None:
        """Drop a block and its wait."""
        self.unpark(name)
        del self.blocks[name]

    def park(self, name: Name, parked: Parked) -> None:
        """Put a block aside; the oldest parked ones are forgotten when there are too many."""
        if name in self.parked:
            return
        self.parked[name] = parked
        self._parked_tokens += len(parked[1])
        self.waiting.setdefault(parked[0], {})[name] = None
        while len(self.parked) > self._max_orphans or (self._parked_tokens > MAX_PARKED_TOKENS and self.parked):
            self.forget(next(iter(self.parked)))

    def unpark(self, name: Name) -> Parked | None:
        """Take a block off the parked ones; None where it was not parked."""
        parked = self.parked.pop(name, None)
        if parked is not None:
            self._parked_tokens -= len(parked[1])
            siblings = self.waiting[parked[0]]
            del siblings[name]
            if not siblings:
                del self.waiting[parked[0]]
        return parked

    def link(self, name: Name) -> Iterator[Block]:
        """Give everything that waits for a block, and for what waits for that, its place; the blocks placed."""
        ready = [name]
        while ready:
            parent = ready.pop()
            for child in tuple(self.waiting.get(parent, ())):
                parked, block, above = self.unpark(child), self.blocks[child], self.blocks[parent]
                if parked is None or above.place is None:
                    continue
                _, tokens, keys = parked
                count = len(tokens) // child[0]
                block.parent = parent[1] if count == 1 else None
                block.position = above.position + count
                padded = (*((),) * (count - 1), keys) if keys else None
                block.place = chain_hashes(above.place, tokens, child[0], padded)[-1]
                yield block
                ready.append(child)

    def check_invariants(self) -> None:
        """Raise AssertionError where parked blocks and those that have copies contradict each other."""
        waiting = {child: parent for parent, children in self.waiting.items() for child in children}
        if waiting != {name: parked[0] for name, parked in self.parked.items()}:
            raise AssertionError("parked blocks and what they wait for differ")
        if sum(len(parked[1]) for parked in self.parked.values()) != self._parked_tokens:
            raise AssertionError("tokens of parked blocks are miscounted")
        if len(self.parked) > self._max_orphans or not self.parked.keys() <= self.blocks.keys():
            raise AssertionError("parked blocks are unbounded or unknown")
        for name, block in self.blocks.items():
            if block.is_gone or not all(block.copies.values()):
                raise AssertionError(f"{name!r} is kept without a copy")
            if (block.place is None) != (name in self.parked):
                raise AssertionError(f"{name!r} has no place and does not wait for one, or has and waits")
