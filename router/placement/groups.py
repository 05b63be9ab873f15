"""Ranks of one pool in groups that look alike, in the order of what they cost at least.

What a group costs at least is known without asking (`floor`): a query scales it and adds its own prefill. Two rows
are kept. Ranks without work ahead stand by their floor. Ranks with work ahead stand by floor and the moment that work
can be done at the earliest, so that their order holds while time goes by.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from msgspec.structs import astuple

from router.policy.base import RankView
from wire.ids import Target

Entry = tuple[float, int, "Group"]


class Group:
    """Ranks that look alike: any of them costs a query the same, to the last bit."""

    __slots__ = ("entry", "idle_at_s", "key", "members", "view")

    def __init__(self, view: RankView, idle_at_s: float | None, key: tuple[object, ...]) -> None:
        self.view = view
        #: When the work ahead can be done at the earliest; None where there is none.
        self.idle_at_s = idle_at_s
        self.key = key
        self.members: dict[Target, None] = {}
        self.entry: Entry


class RankGroups:
    """The groups of a pool in order.

    Args:
        find: View of a rank and when its work ahead can be done; None for a rank that is not of the pool.
        floor: What a rank costs at least, its wait left out.
        wait_weight: Weight of waiting in the costs.
    """

    def __init__(
        self,
        *,
        find: Callable[[Target], tuple[RankView, float | None] | None],
        floor: Callable[[RankView], float],
        wait_weight: float,
    ) -> None:
        self._find = find
        self._floor = floor
        self._wait_weight = wait_weight
        self._groups: dict[tuple[object, ...], Group] = {}
        self._group_of: dict[Target, Group] = {}
        self._touched: set[Target] = set()
        self._idle: list[Entry] = []
        self._busy: list[Entry] = []
        self._serial = 0
        #: Some floor is no number, so that the order means nothing.
        self.is_broken = False

    def __len__(self) -> int:
        return len(self._groups)

    def touch(self, target: Target) -> None:
        """A rank looks different, came or went."""
        self._touched.add(target)

    def refresh(self) -> None:
        """Puts every rank that was touched into its place."""
        for target in self._touched:
            found = self._find(target)
            if found is None:
                self._remove(target)
            else:
                self._put(target, *found)
        self._touched.clear()

    def _put(self, target: Target, view: RankView, idle_at_s: float | None) -> None:
        key = (*astuple(view)[1:], idle_at_s)
        before = self._group_of.get(target)
        if before is not None:
            if before.key == key:
                return
            self._remove(target)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._add_group(view, idle_at_s, key)
        group.members[target] = None
        self._group_of[target] = group

    def _add_group(self, view: RankView, idle_at_s: float | None, key: tuple[object, ...]) -> Group:
        group = Group(view, idle_at_s, key)
        floor_s = self._floor(view)
        place_s = floor_s if idle_at_s is None else floor_s + self._wait_weight * idle_at_s
        if not 0.0 <= floor_s < float("inf") or not abs(place_s) < float("inf"):
            self.is_broken, place_s = True, 0.0
        self._serial += 1
        group.entry = (place_s, self._serial, group)
        insort(self._idle if idle_at_s is None else self._busy, group.entry)
        return group

    def _remove(self, target: Target) -> None:
        group = self._group_of.pop(target, None)
        if group is None:
            return
        del group.members[target]
        if not group.members:
            del self._groups[group.key]
            row = self._idle if group.idle_at_s is None else self._busy
            del row[bisect_left(row, group.entry)]

    def walk(self, now_s: float) -> Iterator[tuple[float, Group]]:
        """Groups with what each costs at least before scaling, the lowest first."""
        idle, busy = self._idle, self._busy
        waited_s = self._wait_weight * now_s
        i = j = 0
        while i < len(idle) or j < len(busy):
            idle_s = idle[i][0] if i < len(idle) else float("inf")
            busy_s = max(0.0, busy[j][0] - waited_s) if j < len(busy) else float("inf")
            if idle_s <= busy_s and i < len(idle):
                yield idle_s, idle[i][2]
                i += 1
            else:
                yield busy_s, busy[j][2]
                j += 1

    def check_invariants(self) -> None:
        """Raises AssertionError when rows, groups and members disagree."""
        listed = sorted(target for group in self._groups.values() for target in group.members)
        if listed != sorted(self._group_of):
            raise AssertionError(f"in groups {listed}, known {sorted(self._group_of)}")
        rows = [*self._idle, *self._busy]
        if sorted(entry[1] for entry in rows) != sorted(group.entry[1] for group in self._groups.values()):
            raise AssertionError("rows and groups differ")
        if any(row != sorted(row) for row in (self._idle, self._busy)):
            raise AssertionError("a row is out of order")
