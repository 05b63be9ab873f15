"""Which ranks of a large fleet a policy has to look at: those that could win, and no more.

Looked at is the session's home, then what costs least at a glance: of the ranks that hold most of the prompt each by
itself, of all others one of each group that looks alike, from the cheapest on until none that follows can cost as little
as the best so far, the tie window included. The choice is the one that looking at every rank gives, to the last bit: one
is left out only by a lower bound, and of those alike only the one that would win a tie is kept
(`tests/models/test_shortlist_model.py`).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from typing import Protocol, runtime_checkable

import msgspec

from router.placement.groups import Group, RankGroups
from router.placement.question import Question
from router.placement.standings import Standings
from router.policy.base import Choice, PlacementQuery, Policy, RankView
from router.policy.glance import Sketch, Stakes, glance_s
from router.policy.ties import find_window_s, pick_hashed
from wire.ids import Target

#: Bounds and costs are sums of the same figures in different orders; this covers their last bits.
_SLACK_RATIO, _SLACK_S = 1e-9, 1e-9
_INFINITE = float("inf")


@runtime_checkable
class BoundedPolicy(Policy, Protocol):
    """A policy that knows what ranks cost at least, so that most need not be looked at."""

    def total_s(self, query: PlacementQuery, rank: RankView) -> float:
        """The figure that `choose` compares; the lowest wins, ties by home and hash."""
        ...

    def weigh(self, query: PlacementQuery, rank: RankView) -> Sequence[float]:
        """What that is the sum of (`math.fsum`)."""
        ...

    def choose_weighed(
        self, query: PlacementQuery, ranks: Sequence[RankView], rows: Sequence[Sequence[float]], seed: int
    ) -> Choice:
        """As `choose`, where `weigh` was asked of each rank already."""
        ...

    def sketch(self, rank: RankView) -> Sketch:
        """A rank in numbers, its wait left out."""
        ...

    def stakes(self, query: PlacementQuery, overlap_tokens: int) -> Stakes:
        """A query in numbers, where at most so much of its prompt lies on a rank."""
        ...

    def most_credit_s(self, query: PlacementQuery) -> float:
        """Largest credit, which costs at a glance leave out."""
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
    #: Their costs by term; empty where they were not asked for.
    rows: list[Sequence[float]]
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

    def find(self, question: Question) -> Found:
        """Views to choose from; of all ranks where some cost is no number."""
        search = _Search(self._policy, self._standings, question, self._seed)
        try:
            search.look_at_special()
            if search.can_be_elsewhere():
                search.look_elsewhere(self._find_groups(question))
        except NoNumberError:
            return Found(search.find_all(), [], {})
        return search.found

    def _find_groups(self, question: Question) -> list[RankGroups]:
        policy, find = self._policy, self._standings.find_groups
        weight = policy.wait_weight
        return [find(pool, id(self), sketch=policy.sketch, wait_weight=weight) for pool in question.pools]


class _Search:
    """One search, with the best cost so far."""

    def __init__(self, policy: BoundedPolicy, standings: Standings, question: Question, seed: int) -> None:
        self._policy = policy
        self._standings = standings
        self._question = question
        self._query = question.query
        self._seed = seed
        #: Costs above this neither win nor tie.
        self._bound_s = _INFINITE
        self._best_s = _INFINITE
        #: Ranks that stand apart from their groups.
        self._apart: set[Target] = set()
        self._credit_s = 0.0
        self.found = Found([], [], {})

    def look_at_special(self) -> None:
        """The home, and ranks that can serve the prompt in other ways."""
        question, home = self._question, self._query.home
        named = {*question.options} if question.options else set()
        if home is not None:
            named.add(home)
        self._apart = {target for target in named if question.allows(target)}
        for target in self._apart:
            self._look_at(target)

    def can_be_elsewhere(self) -> bool:
        """Whether any other rank can cost as little, by its prefill alone."""
        pace = self._standings.least_prefill_ratio
        most_tokens = self._question.find_most_elsewhere(self._apart) if self._apart else self._query.prompt_tokens
        least_s = self._policy.least_reuse_s(self._query, most_tokens, pace)
        if math.isnan(least_s):
            raise NoNumberError
        return least_s <= self._bound_s

    def look_elsewhere(self, pools: Sequence[RankGroups]) -> None:
        """Other ranks, from what is the cheapest at a glance on."""
        holders, rest_tokens = self._question.find_holders()
        self._credit_s = self._policy.most_credit_s(self._query)
        holders = [target for target in holders if target not in self._apart]
        self._apart.update(holders)
        for cost_s, target in sorted(self._glance_at_holders(holders, pools)):
            if cost_s > self._bound_s:
                break
            self._look_at(target)
        self._look_at_groups(pools, self._policy.stakes(self._query, rest_tokens))

    def _glance_at_holders(
        self, holders: Sequence[Target], pools: Sequence[RankGroups]
    ) -> Iterator[tuple[float, Target]]:
        """Holders with what each costs at least."""
        stakes: dict[int, Stakes] = {}
        for target in holders:
            tokens = self._question.find_most(target)
            if tokens not in stakes:
                stakes[tokens] = self._policy.stakes(self._query, tokens)
            groups = (groups.find(target) for groups in pools)
            group = next(group for group in groups if group is not None)
            yield self._glance_at(group, stakes[tokens]), target

    def _glance_at(self, group: Group, stakes: Stakes) -> float:
        """What a group costs at least."""
        wait_s = self._policy.wait_weight * group.find_wait_s(self._question.now_s)
        cost_s = glance_s(stakes, group.sketch) + wait_s - self._credit_s
        if not cost_s < _INFINITE:
            raise NoNumberError
        return cost_s

    def _look_at_groups(self, pools: Sequence[RankGroups], stakes: Stakes) -> None:
        """Groups from the cheapest on: at once where one is cheaper than all before, else when the best is known."""
        least_s = _INFINITE
        later: list[tuple[float, Group]] = []
        for floor_s, group in self._walk(pools, stakes):
            if floor_s > self._bound_s:
                break
            cost_s = self._glance_at(group, stakes)
            if cost_s > self._bound_s:
                continue
            if cost_s < least_s:
                least_s = cost_s
                self._look_at_group(group)
            else:
                later.append((cost_s, group))
        for cost_s, group in sorted(later, key=itemgetter(0)):
            if cost_s > self._bound_s:
                break
            self._look_at_group(group)

    def _walk(self, pools: Sequence[RankGroups], stakes: Stakes) -> Iterator[tuple[float, Group]]:
        work = self._policy.reuse_weight * self._standings.least_prefill_ratio
        walks = []
        for groups in pools:
            order = groups.order(stakes)
            if order.is_broken:
                raise NoNumberError
            more_s = work * (stakes.work_s - order.reference.work_s) - self._credit_s
            walks.append(order.walk(self._question.now_s, more_s))
        return walks[0] if len(walks) == 1 else merge(*walks, key=itemgetter(0))

    def _look_at_group(self, group: Group) -> None:
        """Of ranks that look alike and hold as much, the one that wins a tie."""
        for members in self._split(group):
            target = pick_hashed(self._query.request_id, members, self._seed)
            self._look_at(target)
            if len(members) > 1:
                self.found.alike[target] = len(members)

    def _split(self, group: Group) -> list[Mapping[Target, int]]:
        """Members that hold as much; without those that stand apart."""
        question, members = self._question, group.members
        confirmed, expected, excluded = question.confirmed, question.expected, question.excluded
        if len(members) == 1:
            (target,) = members
            return [] if target in self._apart or target in excluded else [members]
        named: Iterable[Target] = members
        if len(confirmed) + len(expected) < len(members):
            named = {*self._apart, *excluded, *confirmed, *expected} & members.keys()
        parts: dict[tuple[int, int] | None, dict[Target, int]] = {}
        for target in named:
            tokens = None
            if target not in self._apart and target not in excluded:
                tokens = confirmed.get(target, 0), expected.get(target, 0)
            parts.setdefault(tokens, {})[target] = members[target]
        if named is not members:
            rest = dict(members)
            for target in named:
                del rest[target]
            if rest:
                parts[0, 0] = {**rest, **parts.get((0, 0), {})}
        parts.pop(None, None)
        return list(parts.values())

    def _look_at(self, target: Target) -> None:
        view = self._question.view(self._standings, target)
        row = self._policy.weigh(self._query, view)
        total_s = math.fsum(row)
        if not -_INFINITE < total_s < _INFINITE:
            raise NoNumberError
        self.found.views.append(view)
        self.found.rows.append(row)
        if total_s < self._best_s:
            self._best_s = total_s
            bound_s = total_s + find_window_s(total_s)
            self._bound_s = bound_s + abs(bound_s) * _SLACK_RATIO + _SLACK_S

    def find_all(self) -> list[RankView]:
        """Every rank that may be chosen."""
        question = self._question
        targets = (target for pool in question.pools for target in pool.targets if target not in question.excluded)
        return [question.view(self._standings, target) for target in targets]
