"""Ranks of one pool in numbers, each written down once: enough for pools that are quickly glanced at rank by rank."""

from collections.abc import Callable
from typing import NamedTuple

from router.policy.base import RankView
from router.policy.glance import Sketch
from router.policy.ties import hash_target
from wire.ids import Target


class Row(NamedTuple):
    """One rank."""

    sketch: Sketch
    #: When the work ahead can be done at the earliest; None where there is none.
    idle_at_s: float | None
    #: The rank alone, with what stands for it in a tie.
    members: dict[Target, int]


class RankSketches:
    """The ranks of a pool.

    Args:
        find: View of a rank and when its work ahead can be done; None for a rank that is not of the pool.
        sketch: A rank in numbers.
    """

    def __init__(
        self,
        *,
        find: Callable[[Target], tuple[RankView, float | None] | None],
        sketch: Callable[[RankView], Sketch],
    ) -> None:
        self._find = find
        self._sketch = sketch
        self._touched: dict[Target, None] = {}
        self.rows: dict[Target, Row] = {}

    def touch(self, target: Target) -> None:
        """A rank looks different, came or went."""
        self._touched[target] = None

    def refresh(self) -> None:
        """Writes every rank down anew that was touched."""
        for target in self._touched:
            found = self._find(target)
            if found is None:
                self.rows.pop(target, None)
            else:
                self.rows[target] = Row(self._sketch(found[0]), found[1], {target: hash_target(target)})
        self._touched.clear()

    def check_invariants(self) -> None:
        """Raises AssertionError when a rank that was not touched stands otherwise than written down."""
        for target in self.rows.keys() - self._touched.keys():
            found = self._find(target)
            # As text, since what is no number differs from itself.
            if found is None or repr(self.rows[target].sketch) != repr(self._sketch(found[0])):
                raise AssertionError(f"{target} stands as {found}, written down is {self.rows[target]}")
