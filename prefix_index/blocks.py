"""Values of the index in Python: a rank's terms, its blocks by name, what one event changed."""

import msgspec

from prefix_index.base import Change, CopyRule
from prefix_index.components import STANDARD, Registry
from prefix_index.layout import Layout
from prefix_index.namespace import Keys
from wire.events import Medium

#: Tokens in the block, and the engine's hash folded to 64 bits.
Name = tuple[int, int]
#: Group and tier that a copy is in.
Slot = tuple[int | None, Medium]
#: Place -> the place before it, None at a prompt's start, and how many blocks are before it.
Tree = dict[int, tuple[int | None, int]]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How the events of one rank are to be read."""

    model: str
    rule: CopyRule = CopyRule.COUNTED
    bigram: bool = False
    secret: int = 0
    max_orphans: int = 65_536
    layout: Layout | None = None
    registry: Registry = STANDARD


class Delta(msgspec.Struct):
    """What one event changed; `lost` happened before `gained`."""

    gained: list[int] = msgspec.field(default_factory=list)
    lost: list[int] = msgspec.field(default_factory=list)
    touched: list[int] = msgspec.field(default_factory=list)
    orphaned: int = 0
    unknown: int = 0
    refused: int = 0

    def to_change(self) -> Change:
        """As callers see it."""
        places = (tuple(self.gained), tuple(self.lost), tuple(self.touched))
        return Change(*places, orphaned=self.orphaned, unknown_removals=self.unknown, refused=self.refused)


class Block(msgspec.Struct):
    """One name. Copies are never 0; those that were there when events were lost are doubted instead."""

    #: Canonical hash; None while it is not known.
    place: int | None = None
    copies: dict[Slot, int] = {}
    doubted: frozenset[Slot] = frozenset()


class Parked(msgspec.Struct):
    """A block that waits for its parent: tokens from the parent's end to its own, content keys of the block."""

    parent: Name
    token_ids: tuple[int, ...]
    keys: Keys
