"""Which ranks of a large fleet a policy has to look at: those that could win, and no more.

Looked at are the ranks that hold something of the prompt, the session's home, and of all others one of each group
that looks alike, from the cheapest on until none that follows can cost as little as the best so far, the tie window
included. The choice is the one that looking at every rank gives, to the last bit: a group is left out only by a lower
bound, and of a group only the rank that would win a tie is kept (`tests/models/test_shortlist_model.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from heapq import merge
from typing import Protocol, runtime_checkable

import msgspec

from router.placement.groups import Group, RankGroups
from router.placement.standings import Pool, Standings
from router.policy.base import PlacementQuery, Policy, RankView
from router.policy.ties import find_window_s, pick_by_hash
from wire.ids import Target

#: Bounds and costs are sums of the same figures in different orders; this covers their last bits.
_SLACK_RATIO, _SLACK_S = 1e-9, 1e-12


@runtime_checkable
class BoundedPolicy(Policy, Protocol):
    """A policy that knows what ranks cost at least, so that most need not be looked at."""

    def total_s(self, query: PlacementQuery, rank: RankView) -> float:
        """The figure that `choose` compares; the lowest wins, ties by home and hash."""
        ...

    def floor_s(self, rank: RankView, *, is_new: bool) -> float:
        """What a rank that holds nothing costs any query at least, wait and reuse left out, before scaling."""
        ...

    def floor_ratio(self, query: PlacementQuery, *, is_new: bool) -> float:
        """The scale: 0..1."""
        ...

    def least_reuse_s(self, query: PlacementQuery, prefill_ratio: float) -> float:
        """What prefill on such a rank costs at least, at a worker's pace, less any credit."""
        ...

    @property
    def wait_weight(self) -> float:
        """Factor on seconds of work ahead."""
        ...

    @property
    def reuse_weight(self) -> float:
        """Factor on seconds of prefill."""
        ...


class Found(msgspec.Struct, frozen=True):
    """What there is to choose from."""

    views: list[RankView]
    #: For a rank that stands for others that look alike: how many they are, itself included.
    alike: dict[Target, int]


class Shortlist:
    """The ranks to look at for one query after the other.

    Args:
        policy: Whose costs count.
        standings: Views and groups.
        seed: Of ties.
    """

    def __init__(self, policy: BoundedPolicy, standings: Standings, seed: int) -> None:
        self._policy = policy
        self._standings = standings
        self._seed = seed
        self._floors: dict[bool, Callable[[RankView], float]] = {
            True: lambda view: policy.floor_s(view, is_new=True),
            False: lambda view: policy.floor_s(view, is_new=False),
        }

    def find(
        self,
        query: PlacementQuery,
        pools: Sequence[Pool],
        special: Sequence[RankView],
        *,
        excluded: AbstractSet[Target],
        now_s: float,
    ) -> Found:
        """Views to choose from.

        Args:
            query: What is placed.
            pools: Ranks that may be chosen.
            special: Views of those that hold something, and of the home: they are always looked at.
            excluded: Ranks that may not be chosen.
            now_s: When.
        """
        policy = self._policy
        is_new = query.session is not None and query.home is None
        orders = [
            self._standings.order(pool, is_new=is_new, floor=self._floors[is_new], wait_weight=policy.wait_weight)
            for pool in pools
        ]
        totals_s = [policy.total_s(query, view) for view in special]
        skipped = {view.target for view in special}.union(excluded)
        best_s = min(totals_s, default=float("inf"))
        if any(order.is_broken for order in orders) or not _is_number(sum(totals_s)):
            return Found([*special, *self._find_all(pools, skipped)], {})
        ratio = policy.floor_ratio(query, is_new=is_new)
        reuse_s = policy.least_reuse_s(query, min(order.least_prefill_ratio for order in orders))
        found = Found(list(special), {})
        for floor_s, group in _walk(orders, now_s):
            if reuse_s + ratio * floor_s > _find_bound_s(best_s):
                break
            members = [target for target in group.members if target not in skipped]
            if not members:
                continue
            # Of ranks that look alike, the one that wins a tie.
            target = pick_by_hash(query.request_id, members, self._seed)
            view = self._standings.view(target)
            total_s = policy.total_s(query, view)
            if not _is_number(total_s):
                return Found([*special, *self._find_all(pools, skipped)], {})
            found.views.append(view)
            if len(members) > 1:
                found.alike[target] = len(members)
            best_s = min(best_s, total_s)
        return found

    def _find_all(self, pools: Iterable[Pool], skipped: AbstractSet[Target]) -> list[RankView]:
        """Without bounds every rank is looked at."""
        targets = (target for pool in pools for target in pool.targets if target not in skipped)
        return [self._standings.view(target) for target in targets]


def _walk(orders: Sequence[RankGroups], now_s: float) -> Iterator[tuple[float, Group]]:
    if len(orders) == 1:
        return orders[0].walk(now_s)
    return merge(*(order.walk(now_s) for order in orders), key=lambda entry: entry[0])


def _find_bound_s(best_s: float) -> float:
    """Costs above this neither win nor tie."""
    if best_s == float("inf"):
        return best_s
    bound_s = best_s + find_window_s(best_s)
    return bound_s + abs(bound_s) * _SLACK_RATIO + _SLACK_S


def _is_number(value: float) -> bool:
    return -float("inf") < value < float("inf")
