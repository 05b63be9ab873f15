"""Which ranks of a large fleet a policy has to look at: those that could win, and no more.

Looked at are the session's home and the ranks that hold most of the prompt, as far as what they hold lets them compete;
and of all others one of each group that looks alike, from the cheapest on until none that follows can cost as little as
the best so far, the tie window included. The choice is the one that looking at every rank gives, to the last bit: one
is left out only by a lower bound, and of those alike only the one that would win a tie is kept
(`tests/models/test_shortlist_model.py`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import Protocol, runtime_checkable

import msgspec

from router.placement.groups import Group, RankGroups
from router.placement.question import Question
from router.placement.standings import Standings
from router.policy.base import PlacementQuery, Policy, RankView
from router.policy.ties import find_window_s, pick_by_hash
from wire.ids import Target

#: Bounds and costs are sums of the same figures in different orders; this covers their last bits.
_SLACK_RATIO, _SLACK_S = 1e-9, 1e-12
_INFINITE = float("inf")


@runtime_checkable
class BoundedPolicy(Policy, Protocol):
    """A policy that knows what ranks cost at least, so that most need not be looked at."""

    def total_s(self, query: PlacementQuery, rank: RankView) -> float:
        """The figure that `choose` compares; the lowest wins, ties by home and hash."""
        ...

    def floor_s(self, rank: RankView, *, is_new: bool) -> float:
        """What a rank costs any query at least, wait and reuse left out, before scaling."""
        ...

    def floor_ratio(self, query: PlacementQuery, *, is_new: bool) -> float:
        """The scale: 0..1."""
        ...

    def least_reuse_s(self, query: PlacementQuery, overlap_tokens: int, prefill_ratio: float) -> float:
        """What prefill costs at least where at most so much lies, at a worker's pace, less any credit."""
        ...

    @property
    def wait_weight(self) -> float:
        """Factor on seconds of work ahead."""
        ...

    @property
    def reuse_weight(self) -> float:
        """Factor on seconds of prefill."""
        ...

    @property
    def stall_weight(self) -> float:
        """Factor on the same, once more for each request served beside."""
        ...


class Found(msgspec.Struct, frozen=True):
    """What there is to choose from."""

    views: list[RankView]
    #: For a rank that stands for others that look alike: how many they are, itself included.
    alike: dict[Target, int]


class NoNumberError(ArithmeticError):
    """A cost is no number, so that nothing can be left out by comparing."""


class Shortlist:
    """The ranks to look at for one question after the other.

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

    def find(self, question: Question) -> Found:
        """Views to choose from; of all ranks where some cost is no number."""
        search = _Search(self._policy, self._standings, question, self._seed)
        try:
            left_out, reuse_s = search.look_at_holders()
            if reuse_s <= search.bound_s:
                self._look_at_rest(search, question, left_out, reuse_s)
        except NoNumberError:
            return Found(search.find_all(), {})
        return search.found

    def _look_at_rest(self, search: "_Search", question: Question, left_out: set[Target], reuse_s: float) -> None:
        """Groups from the cheapest on."""
        query, policy = question.query, self._policy
        is_new = query.session is not None and query.home is None
        floor, weight = self._floors[is_new], policy.wait_weight
        orders = [
            self._standings.order(pool, is_new=is_new, floor=floor, wait_weight=weight) for pool in question.pools
        ]
        if any(order.is_broken for order in orders):
            raise NoNumberError
        ratio = policy.floor_ratio(query, is_new=is_new)
        for floor_s, group in _walk(orders, question.now_s):
            if reuse_s + ratio * floor_s > search.bound_s:
                break
            search.look_at_group(group, left_out)


class _Search:
    """One search, with the best cost so far."""

    def __init__(self, policy: BoundedPolicy, standings: Standings, question: Question, seed: int) -> None:
        self._policy = policy
        self._standings = standings
        self._question = question
        self._query = question.query
        self._seed = seed
        #: Costs above this neither win nor tie.
        self.bound_s = _INFINITE
        self._best_s = _INFINITE
        self.found = Found([], {})

    def look_at_holders(self) -> tuple[set[Target], float]:
        """Ranks that stand apart; gives them all, and what prefill costs any other at least."""
        pace = self._standings.least_prefill_ratio
        holders, rest_tokens = self._question.find_holders()
        seen = self._look_at_special()
        for target in holders:
            if target in seen:
                continue
            # Ordered by what they hold: what follows costs at least as much.
            if self._least_reuse_s(self._question.find_most(target), pace) > self.bound_s:
                break
            seen.add(target)
            self._look_at(target)
        reuse_s = self._least_reuse_s(rest_tokens, pace)
        if math.isnan(reuse_s):
            raise NoNumberError
        return seen.union(holders), reuse_s

    def _look_at_special(self) -> set[Target]:
        """The home, and ranks that can serve the prompt in other ways."""
        named = [*self._question.options] if self._question.options else []
        if self._query.home is not None:
            named.append(self._query.home)
        seen = {target for target in named if self._question.allows(target)}
        for target in seen:
            self._look_at(target)
        return seen

    def look_at_group(self, group: Group, left_out: set[Target]) -> None:
        """Of ranks that look alike and hold as much, the one that wins a tie."""
        confirmed, expected = self._question.confirmed, self._question.expected
        excluded = self._question.excluded
        by_tokens: dict[tuple[int, int], list[Target]] = {}
        for target in group.members:
            if target not in left_out and target not in excluded:
                tokens = confirmed.get(target, 0), expected.get(target, 0)
                by_tokens.setdefault(tokens, []).append(target)
        for members in by_tokens.values():
            target = pick_by_hash(self._query.request_id, members, self._seed)
            self._look_at(target)
            if len(members) > 1:
                self.found.alike[target] = len(members)

    def _look_at(self, target: Target) -> None:
        view = self._question.view(self._standings, target)
        total_s = self._policy.total_s(self._query, view)
        if not -_INFINITE < total_s < _INFINITE:
            raise NoNumberError
        self.found.views.append(view)
        if total_s < self._best_s:
            self._best_s = total_s
            bound_s = total_s + find_window_s(total_s)
            self.bound_s = bound_s + abs(bound_s) * _SLACK_RATIO + _SLACK_S

    def _least_reuse_s(self, overlap_tokens: int, pace: float) -> float:
        most_tokens = min(overlap_tokens, max(0, self._query.prompt_tokens - 1))
        return self._policy.least_reuse_s(self._query, most_tokens, pace)

    def find_all(self) -> list[RankView]:
        """Every rank that may be chosen."""
        question = self._question
        targets = (target for pool in question.pools for target in pool.targets if target not in question.excluded)
        return [question.view(self._standings, target) for target in targets]


def _walk(orders: Sequence[RankGroups], now_s: float) -> Iterator[tuple[float, Group]]:
    if len(orders) == 1:
        return orders[0].walk(now_s)
    return merge(*(order.walk(now_s) for order in orders), key=lambda entry: entry[0])
