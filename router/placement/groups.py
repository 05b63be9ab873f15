"""Ranks of one pool in groups that look alike, in the order of what they cost at least.

A group is written down in numbers once (`sketch`), and what it costs a query is then quickly reckoned at a glance.
Even so thousands are too many to be glanced at for each query. So they are kept in order of what they cost a query of
which everything is a little less: one that asks for more costs at least as much on each. Some such orders are kept, for
short prompts and long ones; one is made where none fits.

Two rows make an order. Ranks without work ahead stand by that cost. Ranks with work ahead stand by cost and the moment
that work can be done at the earliest, so that their order holds while time goes by.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator

from msgspec.structs import astuple

from router.policy.base import RankView
from router.policy.glance import Sketch, Stakes, glance_s
from router.policy.ties import hash_target
from wire.ids import Target

Entry = tuple[float, int, "Group"]

#: Orders kept for one pool.
MAX_ORDERS = 4
#: What an order is made for, as a share of the query that it is made at, and the most that a query may exceed it by.
REFERENCE_RATIO = 0.5
MAX_EXCESS = 4.0


class Group:
    """Ranks that look alike: any of them costs a query the same, to the last bit."""

    __slots__ = ("idle_at_s", "key", "members", "serial", "sketch")

    def __init__(self, sketch: Sketch, idle_at_s: float | None, key: tuple[object, ...], serial: int) -> None:
        self.sketch = sketch
        #: When the work ahead can be done at the earliest; None where there is none.
        self.idle_at_s = idle_at_s
        self.key = key
        self.serial = serial
        #: With what stands for each in a tie.
        self.members: dict[Target, int] = {}


class Order:
    """Groups by what they cost a query of which everything is less."""

    def __init__(self, reference: Stakes, wait_weight: float) -> None:
        self.reference = reference
        self._wait_weight = wait_weight
        self._idle: list[Entry] = []
        self._busy: list[Entry] = []
        #: Some cost is no number, so that the order means nothing.
        self.is_broken = False

    def fits(self, stakes: Stakes) -> bool:
        """Whether costs here are at most those of the query, and not much less."""
        pairs = zip(self.reference, stakes, strict=True)
        return all(least <= asked <= least * MAX_EXCESS for least, asked in pairs)

    def fill(self, groups: Iterator[Group]) -> None:
        """All groups at once."""
        for group in groups:
            self._row(group).append(self._entry(group))
        self._idle.sort()
        self._busy.sort()

    def add(self, group: Group) -> None:
        """One more group."""
        insort(self._row(group), self._entry(group))

    def remove(self, group: Group) -> None:
        """It is gone."""
        row = self._row(group)
        del row[bisect_left(row, self._entry(group))]

    def _row(self, group: Group) -> list[Entry]:
        return self._idle if group.idle_at_s is None else self._busy

    def _entry(self, group: Group) -> Entry:
        place_s = glance_s(self.reference, group.sketch)
        if group.idle_at_s is not None:
            place_s += self._wait_weight * group.idle_at_s
        if not abs(place_s) < float("inf"):
            self.is_broken, place_s = True, 0.0
        return place_s, group.serial, group

    def walk(self, now_s: float, more_s: float) -> Iterator[tuple[float, Group]]:
        """Groups with what each costs at least, the lowest first; `more_s` is added to all."""
        idle, busy = self._idle, self._busy
        waited_s = self._wait_weight * now_s
        i = j = 0
        while i < len(idle) or j < len(busy):
            idle_s = idle[i][0] if i < len(idle) else float("inf")
            busy_s = busy[j][0] - waited_s if j < len(busy) else float("inf")
            if idle_s <= busy_s and i < len(idle):
                yield idle_s + more_s, idle[i][2]
                i += 1
            else:
                yield busy_s + more_s, busy[j][2]
                j += 1

    def check_invariants(self, groups: list[Group]) -> None:
        """Raises AssertionError when rows and groups disagree."""
        rows = [*self._idle, *self._busy]
        if sorted(entry[1] for entry in rows) != sorted(group.serial for group in groups):
            raise AssertionError("rows and groups differ")
        if any(row != sorted(row) for row in (self._idle, self._busy)):
            raise AssertionError("a row is out of order")


class RankGroups:
    """The groups of a pool.

    Args:
        find: View of a rank and when its work ahead can be done; None for a rank that is not of the pool.
        sketch: A rank in numbers.
        wait_weight: Weight of waiting in the costs.
    """

    def __init__(
        self,
        *,
        find: Callable[[Target], tuple[RankView, float | None] | None],
        sketch: Callable[[RankView], Sketch],
        wait_weight: float,
    ) -> None:
        self._find = find
        self._sketch = sketch
        self._wait_weight = wait_weight
        self._groups: dict[tuple[object, ...], Group] = {}
        self._group_of: dict[Target, Group] = {}
        self._touched: dict[Target, None] = {}
        self._orders: OrderedDict[Stakes, Order] = OrderedDict()
        self._serial = 0

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def find(self, target: Target) -> Group | None:
        """The group of a rank."""
        return self._group_of.get(target)

    def touch(self, target: Target) -> None:
        """A rank looks different, came or went."""
        self._touched[target] = None

    def refresh(self) -> None:
        """Puts every rank that was touched into its place."""
        for target in self._touched:
            found = self._find(target)
            if found is None:
                self._remove(target)
            else:
                self._put(target, *found)
        self._touched.clear()

    def order(self, stakes: Stakes) -> Order:
        """Groups in an order that fits a query."""
        for reference, order in self._orders.items():
            if order.fits(stakes):
                self._orders.move_to_end(reference)
                return order
        order = Order(Stakes(*(REFERENCE_RATIO * asked for asked in stakes)), self._wait_weight)
        order.fill(iter(self._groups.values()))
        self._orders[order.reference] = order
        if len(self._orders) > MAX_ORDERS:
            self._orders.popitem(last=False)
        return order

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
        group.members[target] = hash_target(target)
        self._group_of[target] = group

    def _add_group(self, view: RankView, idle_at_s: float | None, key: tuple[object, ...]) -> Group:
        self._serial += 1
        group = Group(self._sketch(view), idle_at_s, key, self._serial)
        for order in self._orders.values():
            order.add(group)
        return group

    def _remove(self, target: Target) -> None:
        group = self._group_of.pop(target, None)
        if group is None:
            return
        del group.members[target]
        if not group.members:
            del self._groups[group.key]
            for order in self._orders.values():
                order.remove(group)

    def check_invariants(self) -> None:
        """Raises AssertionError when rows, groups and members disagree."""
        listed = sorted(target for group in self._groups.values() for target in group.members)
        if listed != sorted(self._group_of):
            raise AssertionError(f"in groups {listed}, known {sorted(self._group_of)}")
        for order in self._orders.values():
            order.check_invariants(list(self._groups.values()))
