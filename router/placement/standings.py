"""How every rank stands, brought up to date only where something happened; and the pools that requests choose from.

A pool is the ranks that serve the same models and take requests; a table keeps them in numbers, for policies that are
compiled. Whoever changes how a rank stands says so by `touch`: its row is written anew by the next decision that looks
at it, its view when someone asks for one. Every decision writes some of the rows that changed, so that one which looks
at all of them finds few left to write. Memories fade without an event, so ranks are also taken as changed for their
age, a few at each decision.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
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
)
from router.policy.base import RankView
from router.policy.native import RankTable
from wire.ids import Target

#: No rank is seen for longer than this as it stood at its last change.
VIEW_TTL_S = 5.0
#: Ranks taken as changed for their age at one decision.
MAX_AGED = 32
#: Rows of a pool that may wait to be written: what a decision that looks at all of them has to do first at most.
MAX_UNWRITTEN = 512
#: Rows beyond that which a decision writes though it does not look at them: more than change between two, as a rule.
MAX_WRITTEN = 64


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
        #: Those that changed since their row was written, the longest ago first; none without a table.
        self.changed: dict[Target, _Standing] = {}

    def drop_table(self) -> None:
        """It is made anew when someone asks for it."""
        self.table = None
        self.changed.clear()


class _Standing:
    """One rank of the fleet: since when it stands so, and what was made of that."""

    __slots__ = ("pool", "rank", "target", "touched_s", "view")

    def __init__(self, rank: Rank, now_s: float) -> None:
        self.target = rank.facts.target
        self.rank = rank
        #: Where it belongs while it takes requests.
        self.pool: Pool | None = None
        #: Time of the last change: a view is of that time, whenever it is built.
        self.touched_s = now_s
        #: None until someone asks for it.
        self.view: RankView | None = None


class Standings:
    """How all ranks stand."""

    def __init__(
        self, *, fleet: Fleet, ledger: Ledger, live: LiveSessions, paces: WorkerPaces, costs: Coefficients
    ) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._live = live
        self._paces = paces
        self._costs = costs
        self._standings: dict[Target, _Standing] = {}
        #: Every rank stands here once, and those that left until their turn comes.
        self._aging: deque[tuple[float, Target]] = deque()
        self._listed: set[Target] = set()
        self._reports: deque[tuple[float, Target]] = deque()
        #: What is touched from now on is touched then; whoever carries time on writes it.
        self.now_s = 0.0
        self._serving: dict[str | None, tuple[Pool, ...]] = {}
        #: By the models that their ranks serve: ranks that do all of a request.
        self.pools: dict[tuple[str, ...], Pool] = {}
        #: The ranks that do one leg of it.
        self.leg_pools: dict[LegKey, Pool] = {}

    def touch(self, target: Target) -> None:
        """Something about a rank changed."""
        standing = self._standings.get(target)
        if standing is not None:
            standing.touched_s = self.now_s
            standing.view = None
            pool = standing.pool
            if pool is not None and pool.table is not None:
                pool.changed[target] = standing

    def note_report(self, target: Target, now_s: float) -> None:
        """A report came: it counts for a while."""
        # Engines report on where nobody asks for a rank.
        self._pass_over_reports()
        self.touch(target)
        self._reports.append((now_s + REPORT_TTL_S, target))

    def change_policy(self, costs: Coefficients) -> None:
        """Other coefficients: everything is made anew."""
        self._costs = costs
        for pool in self._all_pools():
            pool.drop_table()
        for target in self._standings:
            self.touch(target)

    def change_fleet(self, vanished: Iterable[Target]) -> None:
        """Facts of any rank may have changed."""
        for target in vanished:
            standing = self._standings.pop(target, None)
            if standing is not None:
                self._leave(standing)
        self._serving.clear()
        for rank in self._fleet.ranks():
            self._join(rank)
            self.touch(rank.facts.target)

    def _join(self, rank: Rank) -> None:
        target = rank.facts.target
        standing = self._standings.get(target)
        if standing is None:
            standing = self._standings[target] = _Standing(rank, self.now_s)
        accepts = rank.facts.accepts_requests()
        if accepts and standing.pool is not None and self._find_pool(rank.facts) is standing.pool:
            return
        if target not in self._listed:
            self._listed.add(target)
            self._aging.append((self.now_s + VIEW_TTL_S, target))
        self._leave(standing)
        if accepts:
            standing.pool = self._find_pool(rank.facts)
            standing.pool.targets[target] = None
            standing.pool.drop_table()

    def _find_pool(self, facts: RankFacts) -> Pool:
        """Where a rank belongs."""
        if facts.role is Role.AGGREGATED:
            return self.pools.setdefault(facts.models, Pool())
        return self.leg_pools.setdefault(LegKey(facts.role, facts.engine, facts.zone, facts.models), Pool())

    def _all_pools(self) -> tuple[Pool, ...]:
        return (*self.pools.values(), *self.leg_pools.values())

    def _leave(self, standing: _Standing) -> None:
        pool, standing.pool = standing.pool, None
        if pool is not None:
            del pool.targets[standing.target]
            pool.drop_table()
            if not pool.targets:
                self.pools = {models: kept for models, kept in self.pools.items() if kept is not pool}
                self.leg_pools = {key: kept for key, kept in self.leg_pools.items() if kept is not pool}

    def refresh(self, now_s: float) -> None:
        """Notes which ranks changed by now, and some that did not for long."""
        self.now_s = now_s
        touched = self._live.touched
        while touched:
            self.touch(touched.pop())
        self._pass_over_reports()
        if self._aging and self._aging[0][0] <= now_s:
            self._age(now_s)

    def _pass_over_reports(self) -> None:
        """Ranks stand otherwise once their reports count no more."""
        while self._reports and self._reports[0][0] < self.now_s:
            self.touch(self._reports.popleft()[1])

    def _age(self, now_s: float) -> None:
        for _ in range(min(MAX_AGED, len(self._aging))):
            if self._aging[0][0] > now_s:
                break
            target = self._aging.popleft()[1]
            if self._fleet.find(target) is None:
                self._listed.discard(target)
                continue
            self.touch(target)
            self._aging.append((now_s + VIEW_TTL_S, target))

    def find_serving(self, model: str | None) -> tuple[Pool, ...]:
        """Pools of ranks that do all of a request for a model; None stands for any."""
        serving = self._serving.get(model)
        if serving is None:
            pools = self.pools.items()
            serving = tuple(pool for models, pool in pools if model is None or model in models)
            # Of what nobody serves, which a client may name as it likes, nothing is kept.
            if serving:
                self._serving[model] = serving
        return serving

    def write_all(self, pool: Pool) -> RankTable:
        """The ranks of a pool in numbers, all as they stand."""
        table = pool.table
        if table is None:
            table = pool.table = RankTable(pool.targets, self._costs)
            pool.changed = {target: self._standings[target] for target in pool.targets}
        if pool.changed:
            self._write(table, list(pool.changed.values()))
            pool.changed.clear()
        return table

    def write_some(self, pool: Pool) -> None:
        """Brings some rows up to date where too many wait for the next decision that looks at all of them."""
        excess = len(pool.changed) - MAX_UNWRITTEN
        if pool.table is not None and excess > 0:
            standings = list(islice(pool.changed.values(), min(excess, MAX_WRITTEN)))
            self._write(pool.table, standings)
            for standing in standings:
                del pool.changed[standing.target]

    def write(self, pool: Pool, target: Target) -> RankTable:
        """The ranks of a pool in numbers, one of them as it stands."""
        if pool.table is None:
            return self.write_all(pool)
        standing = pool.changed.pop(target, None)
        if standing is not None:
            self._write(pool.table, [standing])
        return pool.table

    def _write(self, table: RankTable, standings: list[_Standing]) -> None:
        table.write(standings, self._ledger, self._live, self._paces, self.now_s)

    def _find_foreign(self, rank: Rank) -> ForeignLoad:
        return find_foreign_load(rank.report, now_s=self.now_s, request_tokens=self._costs.foreign_request_tokens)

    def knows(self, target: Target) -> bool:
        """Whether the rank is of the fleet."""
        return self._fleet.find(target) is not None

    def view(self, target: Target, overlap: Overlap = NO_OVERLAP, options: tuple[ReuseOption, ...] = ()) -> RankView:
        """A rank as it stands now, with what lies there of one prompt."""
        standing = self._standings[target]
        if standing.view is None:
            standing.view = self._build_view(standing)
        foreign_s = 0.0 if standing.rank.report is None else self._find_foreign(standing.rank).wait_s
        own_s = self._ledger.waiting_s(target, self.now_s)
        return complete(standing.view, overlap, own_wait_s=own_s, foreign_wait_s=foreign_s, options=options)

    def _build_view(self, standing: _Standing) -> RankView:
        rank, touched_s = standing.rank, standing.touched_s
        target = rank.facts.target
        return build_view(
            rank,
            own=self._ledger.totals(target, touched_s),
            foreign=self._find_foreign(rank),
            live=self._live.share(target),
            ratios=self._paces.find(target.worker),
            costs=self._costs,
            now_s=touched_s,
        )

    def find_wait_s(self, target: Target) -> float | None:
        """Seconds of work ahead on a rank; None where it is not of the fleet."""
        standing = self._standings.get(target)
        if standing is None:
            return None
        return self._ledger.waiting_s(target, self.now_s) + self._find_foreign(standing.rank).wait_s

    @property
    def least_prefill_ratio(self) -> float:
        """Pace of the fastest worker, relative to the fleet."""
        return self._paces.least_prefill_ratio

    def check_invariants(self) -> None:
        """Raises AssertionError when pools, their tables and the fleet disagree."""
        accepting = sorted(rank.facts.target for rank in self._fleet.ranks() if rank.facts.accepts_requests())
        pooled = sorted(target for pool in self._all_pools() for target in pool.targets)
        known = sorted(target for target, standing in self._standings.items() if standing.pool is not None)
        if accepting != pooled or accepting != known:
            raise AssertionError(f"accepting {accepting}, in pools {pooled}, known to be {known}")
        for pool in self._all_pools():
            if pool.table is not None and pool.table.targets() != list(pool.targets):
                raise AssertionError(f"in the pool {list(pool.targets)}, in its table {pool.table.targets()}")
