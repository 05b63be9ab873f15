"""Which places a holder has: one shelf for each cache group and tier; and the pools that ranks share.

A place is the canonical hash of a block in its chain. A shelf counts what stands at each place; a pool keeps one
copy of a block whoever reports it.
"""

from collections import OrderedDict
from collections.abc import Iterator

from prefix_index.components import Component, is_prefix
from wire.events import Medium

#: Tiers that a shared pool is.
POOL_TIERS = frozenset({Medium.DISK, Medium.EXTERNAL})
#: Place -> how many blocks of a holder stand there.
Places = OrderedDict[int, int]


class Group:
    """One cache group of a rank or pool: its rule, and a shelf for each tier."""

    def __init__(self, kind: str | None, window_tokens: int | None, component: Component | None) -> None:
        self.kind = kind
        self.window_tokens = window_tokens
        #: None where the rule is not known: nothing is kept then.
        self.component = component
        self.is_prefix = component is not None and is_prefix(component)
        #: Tokens a block in each tier; the first event settles it.
        self.block_tokens: dict[Medium, int] = {}
        self.places: dict[Medium, Places] = {}

    @property
    def grain_tokens(self) -> int:
        """Distance of the boundaries at which the group's blocks end."""
        return self.block_tokens.get(Medium.DEVICE) or max(self.block_tokens.values(), default=1)

    def open_shelf(self, tier: Medium, block_tokens: int) -> bool:
        """Make the tier's shelf; False where it has blocks of another size."""
        if self.block_tokens.setdefault(tier, block_tokens) != block_tokens:
            return False
        self.places.setdefault(tier, OrderedDict())
        return True

    def put(self, tier: Medium, place: int) -> bool:
        """One block more at a place; True when it is the first."""
        places = self.places[tier]
        count = places.get(place, 0)
        places[place] = count + 1
        return count == 0

    def take(self, tier: Medium, place: int) -> bool:
        """One block less at a place; True when it was the last."""
        places = self.places[tier]
        count = places.get(place, 0)
        if count > 1:
            places[place] = count - 1
            return False
        return places.pop(place, None) is not None

    def empty(self) -> None:
        """Nothing stands anywhere; rule and block sizes stay."""
        for places in self.places.values():
            places.clear()


class Pool:
    """A shared pool as one model sees it; blocks in the order in which they were stored last."""

    def __init__(self) -> None:
        self.groups: dict[int | None, Group] = {}

    def __len__(self) -> int:
        return sum(len(places) for _, _, places in self._shelves())

    def store(self, group_idx: int | None, like: Group, tier: Medium, place: int) -> bool:
        """Keep a place, as the youngest; False where the pool has blocks of another size or kind there."""
        group = self.groups.get(group_idx)
        if group is None:
            group = self.groups[group_idx] = Group(like.kind, like.window_tokens, like.component)
        if (group.kind, group.window_tokens) != (like.kind, like.window_tokens):
            return False
        if not group.open_shelf(tier, like.block_tokens[tier]):
            return False
        places = group.places[tier]
        places.pop(place, None)
        places[place] = 1
        return True

    def has(self, group_idx: int | None, tier: Medium, place: int) -> bool:
        """True where the place is kept."""
        group = self.groups.get(group_idx)
        return group is not None and place in group.places.get(tier, ())

    def remove(self, group_idx: int | None, tier: Medium, place: int) -> bool:
        """Drop a place; False where it was not kept."""
        group = self.groups.get(group_idx)
        return group is not None and place in group.places.get(tier, ()) and group.places[tier].pop(place) > 0

    def remove_oldest(self) -> None:
        """Drop the oldest place of the fullest shelf."""
        _, _, places = max(self._shelves(), key=lambda shelf: len(shelf[2]))
        places.popitem(last=False)

    def known_places(self) -> Iterator[int]:
        """Every place that is kept."""
        return (place for _, _, places in self._shelves() for place in places)

    def _shelves(self) -> Iterator[tuple[int | None, Medium, Places]]:
        for group_idx, group in self.groups.items():
            for tier, places in group.places.items():
                yield group_idx, tier, places
