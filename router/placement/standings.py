"""How every rank stands, brought up to date only where something happened; and the pools that requests choose from.

A pool is the ranks that serve the same models and take requests. Whoever changes what a rank's view shows says so by
`touch`; its view is built anew when the next request arrives. Memories fade without an event, so views are also renewed
for their age, a few at each decision.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from router.config.policy import Coefficients
from router.fleet.pace import WorkerPaces
from router.fleet.rank import RankFacts
from router.fleet.role import Engine, Role
from router.fleet.tiers import ReuseOption
from router.fleet.view import Fleet, Rank
from router.placement.ledger import Ledger
from router.placement.live import LiveSessions
from router.placement.views import (
    NO_OVERLAP,
    REPORT_TTL_S,
    ForeignLoad,
    Overlap,
    build_view,
    complete,
    find_foreign_load,
    find_foreign_wait,
)
from router.policy.base import RankView
from router.policy.native import RankTable, Wait
from wire.ids import Target

#: A view is not used for longer than this without being built anew.
VIEW_TTL_S = 5.0
#: Views renewed for their age at one decision.
MAX_AGED = 32


class LegKey(NamedTuple):
    """What the ranks of a leg's pool have in common."""

    role: Role
    engine: Engine | None
    zone: str | None
    models: tuple[str, ...]


class Pool:
    """Ranks that serve the same models and take requests."""

    def __init__(self) -> None:
        #: In the order in which they came.
        self.targets: dict[Target, None] = {}
        #: The same in numbers, once someone asked for them; made anew when one comes or goes.
        self.table: RankTable | None = None


class Standings:
    """Views of all ranks."""

    def __init__(
        self, *, fleet: Fleet, ledger: Ledger, live: LiveSessions, paces: WorkerPaces, costs: Coefficients
    ) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._live = live
        self._paces = paces
        self._costs = costs
        self._views: dict[Target, RankView] = {}
        #: Ranks whose view is to be built anew, with the time of the last change: a view is of that time, whenever it
        #: is built.
        self._dirty: dict[Target, float] = {}
        #: Every rank with a view stands here once, and those that left until their turn comes.
        self._aging: deque[tuple[float, Target]] = deque()
        self._listed: set[Target] = set()
        self._reports: deque[tuple[float, Target]] = deque()
        self._pool_of: dict[Target, Pool] = {}
        self._now_s = 0.0
        #: By the models that their ranks serve: ranks that do all of a request.
        self.pools: dict[tuple[str, ...], Pool] = {}
        #: The ranks that do one leg of it.
        self.leg_pools: dict[LegKey, Pool] = {}

    def touch(self, target: Target) -> None:
        """Something about a rank changed."""
        self._dirty[target] = self._now_s

    def set_time(self, now_s: float) -> None:
        """Time goes on; what is touched from now on is touched then."""
        self._now_s = now_s

    def note_report(self, target: Target, now_s: float) -> None:
        """A report came: it counts for a while."""
        self.touch(target)
        self._reports.append((now_s + REPORT_TTL_S, target))

    def change_policy(self, costs: Coefficients) -> None:
        """Other coefficients: every view is made anew."""
        self._costs = costs
        self._dirty.update(dict.fromkeys(self._views, self._now_s))

    def change_fleet(self, vanished: Iterable[Target]) -> None:
        """Facts of any rank may have changed."""
        for target in vanished:
            self._views.pop(target, None)
            self._leave(target)
        for rank in self._fleet.ranks():
            self._join(rank)
            self.touch(rank.facts.target)

    def _join(self, rank: Rank) -> None:
        target = rank.facts.target
        before = self._pool_of.get(target)
        accepts = rank.facts.accepts_requests()
        if accepts and before is not None and self._find_pool(rank.facts) is before:
            return
        if target not in self._listed:
            self._listed.add(target)
            self._aging.append((self._now_s + VIEW_TTL_S, target))
        self._leave(target)
        if accepts:
            pool = self._find_pool(rank.facts)
            pool.targets[target] = None
            pool.table = None
            self._pool_of[target] = pool

    def _find_pool(self, facts: RankFacts) -> Pool:
        """Where a rank belongs."""
        if facts.role is Role.AGGREGATED:
            return self.pools.setdefault(facts.models, Pool())
        return self.leg_pools.setdefault(LegKey(facts.role, facts.engine, facts.zone, facts.models), Pool())

    def _all_pools(self) -> tuple[Pool, ...]:
        return (*self.pools.values(), *self.leg_pools.values())

    def _leave(self, target: Target) -> None:
        pool = self._pool_of.pop(target, None)
        if pool is not None:
            del pool.targets[target]
            pool.table = None
            if not pool.targets:
                self.pools = {models: kept for models, kept in self.pools.items() if kept is not pool}
                self.leg_pools = {key: kept for key, kept in self.leg_pools.items() if kept is not pool}

    def refresh(self, now_s: float) -> None:
        """Notes which views changed by now, and some of those that are old; they are built when they are looked at."""
        self._now_s = now_s
        for target in self._live.touched:
            self._dirty[target] = now_s
        self._live.touched.clear()
        while self._reports and self._reports[0][0] < now_s:
            self._dirty[self._reports.popleft()[1]] = now_s
        for _ in range(min(MAX_AGED, len(self._aging))):
            if self._aging[0][0] > now_s:
                break
            target = self._aging.popleft()[1]
            if self._fleet.find(target) is None:
                self._listed.discard(target)
                continue
            self._dirty[target] = now_s
            self._aging.append((now_s + VIEW_TTL_S, target))

    def renew_all(self) -> None:
        """Builds the views of all ranks that changed."""
        for target in list(self._dirty):
            self._renew(target)

    def renew(self, target: Target) -> None:
        """Builds the view of one rank, if it changed."""
        if target in self._dirty:
            self._renew(target)

    def _renew(self, target: Target) -> None:
        touched_s = self._dirty.pop(target)
        rank = self._fleet.find(target)
        if rank is None:
            return
        self._views[target] = build_view(
            rank,
            own=self._ledger.totals(target, touched_s),
            foreign=self._find_foreign(rank),
            live=self._live.share(target),
            ratios=self._paces.find(target.worker),
            costs=self._costs,
            now_s=touched_s,
        )
        pool = self._pool_of.get(target)
        if pool is not None and pool.table is not None:
            self._write(pool.table, rank)

    def _find_foreign(self, rank: Rank) -> ForeignLoad:
        return find_foreign_load(rank.report, now_s=self._now_s, request_tokens=self._costs.foreign_request_tokens)

    def knows(self, target: Target) -> bool:
        """Whether the rank is of the fleet."""
        return self._fleet.find(target) is not None

    def view(self, target: Target, overlap: Overlap = NO_OVERLAP, options: tuple[ReuseOption, ...] = ()) -> RankView:
        """A rank as it stands at the last `refresh`, with what lies there of one prompt."""
        self.renew(target)
        rank = self._fleet.find(target)
        foreign_s = 0.0 if rank is None or rank.report is None else self._find_foreign(rank).wait_s
        own_s = self._ledger.waiting_s(target, self._now_s)
        return complete(self._views[target], overlap, own_wait_s=own_s, foreign_wait_s=foreign_s, options=options)

    def find_table(self, pool: Pool) -> RankTable:
        """The ranks of a pool in numbers, each as of its last renewal."""
        if pool.table is None:
            self.renew_all()
            pool.table = RankTable(pool.targets)
            for rank in filter(None, map(self._fleet.find, pool.targets)):
                self._write(pool.table, rank)
        return pool.table

    def _write(self, table: RankTable, rank: Rank) -> None:
        own, told = self._ledger.find_wait(rank.facts.target)
        foreign = find_foreign_wait(rank.report, self._costs.foreign_request_tokens)
        table.put(self._views[rank.facts.target], Wait(own, told, foreign))

    @property
    def least_prefill_ratio(self) -> float:
        """Pace of the fastest worker, relative to the fleet."""
        return self._paces.least_prefill_ratio

    def check_invariants(self) -> None:
        """Raises AssertionError when pools, their tables and the fleet disagree."""
        accepting = sorted(rank.facts.target for rank in self._fleet.ranks() if rank.facts.accepts_requests())
        pooled = sorted(target for pool in self._all_pools() for target in pool.targets)
        if accepting != pooled or accepting != sorted(self._pool_of):
            raise AssertionError(f"accepting {accepting}, in pools {pooled}")
        for pool in self._all_pools():
            if pool.table is not None and pool.table.targets() != list(pool.targets):
                raise AssertionError(f"in the pool {list(pool.targets)}, in its table {pool.table.targets()}")
