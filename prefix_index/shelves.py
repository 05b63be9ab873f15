"""Cache groups and what stands where in each of their tiers. A place is the canonical hash of a block in its chain."""

from collections import Counter

import msgspec

from prefix_index.base import Reach
from prefix_index.components import Component, is_prefix
from wire.events import Medium

#: Group and tier.
Slot = tuple[int | None, Medium]
#: How far each tier is; what lies in POOLS is a shared pool's where the rank names one.
REACHES = {Medium.DEVICE: Reach.DEVICE, Medium.HOST: Reach.HOST, Medium.DISK: Reach.POOLS, Medium.EXTERNAL: Reach.POOLS}


class Group(msgspec.Struct, eq=False):
    """One cache group."""

    kind: str | None
    window_tokens: int | None
    #: None where the rule is not known: nothing is kept then.
    component: Component | None
    #: Tokens a block in each tier; the first event settles it.
    sizes: dict[Medium, int] = {}

    @property
    def is_prefix(self) -> bool:
        """True where a block counts only with all before it."""
        return self.component is not None and is_prefix(self.component)

    def is_like(self, kind: str | None, window_tokens: int | None) -> bool:
        """True where a kind and window told again are this group's."""
        return (self.kind, self.window_tokens) == (kind, window_tokens)


class Store(msgspec.Struct, eq=False):
    """What a rank reported, what is believed of it, or a shared pool as one model sees it."""

    groups: dict[int | None, Group] = {}
    #: Blocks at each place, never 0; in a pool one, in the order in which they were stored last.
    held: Counter[tuple[Slot, int]] = msgspec.field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.held)

    def keep(self, slot: Slot, place: int, like: Group) -> None:
        """Into a pool whoever stores it, as the youngest; not where it has blocks of another size or kind there."""
        number, tier = slot
        group = self.groups.setdefault(number, Group(like.kind, like.window_tokens, like.component))
        is_like = group.is_like(like.kind, like.window_tokens)
        if is_like and group.sizes.setdefault(tier, like.sizes[tier]) == like.sizes[tier]:
            self.held.pop((slot, place), None)
            self.held[slot, place] = 1

    def clear(self) -> int:
        """Forget everything; says how many places there were."""
        count = len(self)
        self.groups, self.held = {}, Counter()
        return count

    def evict(self) -> None:
        """Forget the place stored longest ago."""
        del self.held[next(iter(self.held))]
