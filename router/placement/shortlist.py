"""Which ranks of a large fleet a policy has to look at: those that could win, and no more.

Looked at is the session's home. Where others may cost as little they are glanced at (`router.policy.glance`), in a
small fleet each by itself; in a large one those that hold most of the prompt, and the others by groups that look alike,
from the cheapest on until none that follows can cost as little as the best, the tie window included. Looked at again,
term by term, are those that may be the best, and of those that may be tied with it the one that wins. The choice is the
one that looking at every rank gives, to the last bit: one is left out only by a lower bound, or because it loses the
tie (`tests/models/test_shortlist_model.py`).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from typing import Protocol, runtime_checkable

import msgspec

from router.placement.groups import Group, RankGroups
from router.placement.question import Question
from router.placement.sketches import RankSketches
from router.placement.standings import Standings
from router.policy.base import Choice, CostTable, PlacementQuery, Policy, RankView
from router.policy.glance import Sketch, Stakes, glance_s
from router.policy.ties import find_window_s, pick_hashed, weigh_targets
from wire.ids import Target

#: Bounds and costs are sums of the same figures in different orders; this covers their last bits.
_SLACK_RATIO, _SLACK_S = 1e-9, 1e-9
_INFINITE = float("inf")
#: Ranks that look alike and hold as much of the prompt, and before them what each costs at least.
_Entry = tuple[float, Mapping[Target, int]]


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

    def tabulate(self, query: PlacementQuery, ranks: Sequence[RankView]) -> CostTable:
        """What each rank costs, as `choose` compares it."""
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


class Found(msgspec.Struct):
    """What there is to choose from."""

    views: list[RankView]
    #: Their costs by term; empty where they were not asked for.
    rows: list[Sequence[float]]
    #: For a rank that stands for others that look alike: how many they are, itself included.
    alike: dict[Target, int]
    #: Ranks that cost as little at a glance and would have lost the tie, so that they were not looked at.
    passed_over: int = 0


class NoNumberError(ArithmeticError):
    """A cost is no number, so that nothing can be left out by comparing."""


class Shortlist:
    """The ranks to look at for one question after the other.

    Args:
        policy: Whose costs count.
        standings: Views and groups.
        seed: Of ties.
        few_ranks: So many ranks are all glanced at, each by itself.
    """

    def __init__(self, policy: BoundedPolicy, standings: Standings, *, seed: int, few_ranks: int) -> None:
        self._policy = policy
        self._standings = standings
        self._seed = seed
        self._few_ranks = few_ranks

    def find(self, question: Question) -> Found:
        """Views to choose from; of all ranks where some cost is no number."""
        search = _Search(self._policy, self._standings, question, seed=self._seed)
        try:
            search.look_at_special()
            if search.can_be_elsewhere():
                if question.eligible_count <= self._few_ranks:
                    search.look_at_each(self._find_sketches(question))
                else:
                    search.look_elsewhere(self._find_groups(question))
        except NoNumberError:
            return Found(search.find_all(), [], {})
        return search.found

    def _find_sketches(self, question: Question) -> list[RankSketches]:
        policy, find = self._policy, self._standings.find_sketches
        return [find(pool, id(self), sketch=policy.sketch) for pool in question.pools]

    def _find_groups(self, question: Question) -> list[RankGroups]:
        policy, find = self._policy, self._standings.find_groups
        weight = policy.wait_weight
        return [find(pool, id(self), sketch=policy.sketch, wait_weight=weight) for pool in question.pools]


class _Search:
    """One search, with the best cost so far."""

    def __init__(self, policy: BoundedPolicy, standings: Standings, question: Question, *, seed: int) -> None:
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
        self._stakes: dict[int, Stakes] = {}
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

    def look_at_each(self, pools: Sequence[RankSketches]) -> None:
        """All other ranks, each by itself, from what is the cheapest at a glance on."""
        self._credit_s = self._policy.most_credit_s(self._query)
        entries = [entry for sketches in pools for entry in self._glance_at_each(sketches)]
        entries.sort(key=itemgetter(0))
        self._break_tie(self._look_at_cheapest(entries))

    def _glance_at_each(self, sketches: RankSketches) -> Iterator[_Entry]:
        """Ranks with what each costs at least; without those that cost too much by their prefill alone."""
        question, bound_s = self._question, self._bound_s
        apart, held = self._apart | question.excluded, question.find_held()
        glance_at, least = self._glance_at, self._find_stakes(0)
        dear_s = bound_s + self._credit_s
        for target, (sketch, idle_at_s, members) in sketches.rows.items():
            if target in apart:
                continue
            stakes = self._find_stakes(held[target]) if target in held else least
            if not stakes.work_s * sketch.work > dear_s:
                cost_s = glance_at(sketch, idle_at_s, stakes)
                if cost_s <= bound_s:
                    yield cost_s, members

    def look_elsewhere(self, pools: Sequence[RankGroups]) -> None:
        """Other ranks, from what is the cheapest at a glance on."""
        self._credit_s = self._policy.most_credit_s(self._query)
        holders = self._question.find_holders()
        # Those that hold most come first: the best of them tells how far to go.
        most = {target: tokens for target, tokens in holders.most.items() if target not in self._apart}
        entries = sorted(self._glance_at_holders(most, pools), key=itemgetter(0))
        if entries:
            self._look_at_one(entries.pop(0))
        others = {target: tokens for target, tokens in holders.others.items() if target not in self._apart}
        self._apart.update(holders.most, others)
        entries += self._walk_groups(pools, holders.rest_tokens)
        entries += self._glance_at_holders(others, pools)
        entries.sort(key=itemgetter(0))
        self._break_tie(self._look_at_cheapest(entries))

    def _glance_at_parts(self, group: Group) -> Iterator[_Entry]:
        """A group, by what its members hold of the prompt."""
        for tokens, members in self._split(group):
            yield self._glance_at(group.sketch, group.idle_at_s, self._find_stakes(tokens)), members

    def _glance_at_holders(self, holders: Mapping[Target, int], pools: Sequence[RankGroups]) -> Iterator[_Entry]:
        """Holders with what each costs at least; without those that cost too much by their prefill alone."""
        excluded = self._question.excluded
        work_s = {tokens: self._find_stakes(tokens).work_s for tokens in set(holders.values())}
        for groups in pools:
            for target, tokens in holders.items():
                group = groups.find(target)
                if group is None or target in excluded:
                    continue
                if not work_s[tokens] * group.sketch.work > self._bound_s + self._credit_s:
                    cost_s = self._glance_at(group.sketch, group.idle_at_s, self._find_stakes(tokens))
                    yield cost_s, {target: group.members[target]}

    def _find_stakes(self, tokens: int) -> Stakes:
        """The query in numbers, where at most so much of its prompt lies on a rank."""
        stakes = self._stakes.get(tokens)
        if stakes is None:
            stakes = self._stakes[tokens] = self._policy.stakes(self._query, tokens)
        return stakes

    def _glance_at(self, sketch: Sketch, idle_at_s: float | None, stakes: Stakes) -> float:
        """What a rank costs at least."""
        cost_s = glance_s(stakes, sketch) - self._credit_s
        if idle_at_s is not None and idle_at_s > self._question.now_s:
            cost_s += self._policy.wait_weight * (idle_at_s - self._question.now_s)
        if not cost_s < _INFINITE:
            raise NoNumberError
        return cost_s

    def _walk_groups(self, pools: Sequence[RankGroups], rest_tokens: int) -> Iterator[_Entry]:
        """All others that may cost as little as the best, from the cheapest on."""
        stakes, least_s = self._find_stakes(rest_tokens), _INFINITE
        taken = self._apart | self._question.excluded
        for floor_s, group in self._merge_orders(pools, stakes):
            if floor_s > self._bound_s:
                break
            cost_s = self._glance_at(group.sketch, group.idle_at_s, stakes)
            if cost_s > self._bound_s:
                continue
            # Where nothing is held by any of them there is nothing to tell apart.
            is_whole = len(group.members) == 1 and not rest_tokens and taken.isdisjoint(group.members)
            for entry in ((cost_s, group.members),) if is_whole else self._glance_at_parts(group):
                if entry[0] > self._bound_s:
                    continue
                if entry[0] < least_s:
                    # Cheaper than all before: tells how far to go.
                    least_s = entry[0]
                    self._look_at_one(entry)
                else:
                    yield entry

    def _look_at_cheapest(self, entries: Sequence[_Entry]) -> list[_Entry]:
        """Looks at what may cost least, and the next; gives the others that may cost as little, tied."""
        count = 0
        for entry in entries:
            cost_s = entry[0]
            least_s = cost_s - abs(cost_s) * _SLACK_RATIO - _SLACK_S
            if cost_s > self._bound_s or (least_s > self._best_s and len(self.found.views) > 1):
                break
            self._look_at_one(entry)
            count += 1
        return [entry for entry in entries[count:] if entry[0] <= self._bound_s]

    def _break_tie(self, entries: Sequence[_Entry]) -> None:
        """Of those that may be tied with the best, looks at the one that wins; without it, the next."""
        if not entries:
            return
        key, seed, found = self._query.request_id, self._seed, self.found
        tie_s = self._best_s + find_window_s(self._best_s)
        tied = [view.target for view, row in zip(found.views, found.rows, strict=True) if math.fsum(row) <= tie_s]
        highest = max(weigh_targets(key, tied, seed))
        counts: dict[Target, int] = {}
        for _, members in entries:
            target = next(iter(members)) if len(members) == 1 else pick_hashed(key, members, seed)
            counts[target] = len(members)
        found.passed_over = sum(counts.values())
        if self._query.home in tied:
            return
        for _, target in sorted([each for each in weigh_targets(key, counts, seed) if each > highest], reverse=True):
            found.passed_over -= counts[target]
            if counts[target] > 1:
                found.alike[target] = counts[target]
            if self._look_at(target) <= tie_s:
                break

    def _merge_orders(self, pools: Sequence[RankGroups], stakes: Stakes) -> Iterator[tuple[float, Group]]:
        work = self._policy.reuse_weight * self._standings.least_prefill_ratio
        walks = []
        for groups in pools:
            order = groups.order(stakes)
            if order.is_broken:
                raise NoNumberError
            more_s = work * (stakes.work_s - order.reference.work_s) - self._credit_s
            walks.append(order.walk(self._question.now_s, more_s))
        return walks[0] if len(walks) == 1 else merge(*walks, key=itemgetter(0))

    def _look_at_one(self, entry: _Entry) -> None:
        """Of ranks that look alike, the one that wins a tie."""
        members = entry[1]
        target = pick_hashed(self._query.request_id, members, self._seed)
        if len(members) > 1:
            self.found.alike[target] = len(members)
        self._look_at(target)

    def _split(self, group: Group) -> list[tuple[int, Mapping[Target, int]]]:
        """Members that hold as much, with how much at most; without those that stand apart."""
        question, members = self._question, group.members
        confirmed, expected, apart = question.confirmed, question.expected, self._apart
        if len(members) == 1:
            (target,) = members
            return [] if target in apart or target in question.excluded else [(question.find_most(target), members)]
        named: Iterable[Target] = members
        if len(confirmed) + len(expected) < len(members):
            named = {*apart, *question.excluded, *confirmed, *expected} & members.keys()
        parts: dict[tuple[int, int], dict[Target, int]] = {}
        for target in named:
            if target not in apart and target not in question.excluded:
                tokens = confirmed.get(target, 0), expected.find(target)
                parts.setdefault(tokens, {})[target] = members[target]
        if named is not members:
            rest = dict(members)
            for target in named:
                del rest[target]
            if rest:
                parts[0, 0] = {**rest, **parts.get((0, 0), {})}
        return [(max(tokens), part) for tokens, part in parts.items()]

    def _look_at(self, target: Target) -> float:
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
        return total_s

    def find_all(self) -> list[RankView]:
        """Every rank that may be chosen."""
        return [self._question.view(self._standings, target) for target in self._question.find_eligible()]
