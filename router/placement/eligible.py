"""Which ranks may be chosen for a request, or why there is none."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from router.fleet.role import Role
from router.fleet.view import Fleet, Rank
from router.placement.books import Books
from router.placement.instructions import RejectReason
from router.placement.ledger import Ledger
from router.placement.pins import Pin
from router.placement.settings import PlacerSettings, RequestLimit
from router.placement.standings import Pool, Standings
from router.placement.stimuli import RequestArrived
from wire.ids import Target


class LegPools(msgspec.Struct, frozen=True):
    """Ranks of one engine that can be paired with each other."""

    prefills: tuple[Pool, ...]
    decodes: tuple[Pool, ...]


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """What may be chosen for a request."""

    #: Ranks that do all of it.
    whole: tuple[Pool, ...] = ()
    #: Ranks that do one leg of it, an entry an engine.
    legs: tuple[LegPools, ...] = ()

    @property
    def homes(self) -> tuple[Pool, ...]:
        """Ranks that may generate, where a conversation can live."""
        return (*self.whole, *(pool for each in self.legs for pool in each.decodes)) if self.legs else self.whole


class Eligible(msgspec.Struct, frozen=True):
    """What there is to choose from."""

    #: Without the ranks that may not be chosen, and without credit of those that fail.
    arrival: RequestArrived
    candidates: Candidates
    #: Ranks that fail, of which nothing counts that they hold.
    doubted: frozenset[Target]
    #: Why there is none; None where there is one.
    refused: RejectReason | None
    #: Tokens of the prompt that lie on those that fail: they earn nothing, and are what an answer is compared with.
    withheld: Mapping[Target, int] = {}


def find_eligible(
    books: Books, settings: PlacerSettings, arrival: RequestArrived, pin: Pin | None, now_s: float
) -> Eligible:
    """The ranks for one arrival, at no limit and behind no open breaker.

    Full ones, and those on which it failed already, only where there is no other. Every policy and every explicit
    choice gets its ranks here.
    """
    at_limit = barred = avoided = doubted = _NONE
    withheld: dict[Target, int] = {}
    breakers = books.breakers
    if settings.limits or settings.requests_per_rank is not None:
        at_limit = _find_at_limit(settings, books, now_s) - arrival.excluded
    if breakers:
        barred, doubted = breakers.find_barred(now_s), breakers.find_doubted(now_s)
        avoided = breakers.find_avoided(arrival.cause, now_s)
    if doubted:
        withheld = {target: tokens for target, tokens in arrival.overlaps.items() if target in doubted}
        arrival = _without_credit(arrival, doubted)
    left_out = _exclude(arrival, at_limit | barred)
    for kept in (_exclude(left_out, avoided), left_out) if avoided else (left_out,):
        candidates = find_candidates(books.standings, kept, pin)
        if candidates.homes:
            return Eligible(kept, candidates, doubted, None, withheld)
    return Eligible(
        left_out,
        Candidates(),
        doubted,
        find_refusal(books.fleet, arrival, pin, at_limit=at_limit, barred=barred, now_s=now_s),
    )


_NONE: frozenset[Target] = frozenset()


def _exclude(arrival: RequestArrived, targets: frozenset[Target]) -> RequestArrived:
    """Without some ranks; one that has prefilled the request already is asked for nothing more."""
    done = _NONE if arrival.prefilled_by is None else frozenset((arrival.prefilled_by,))
    if not targets and not done:
        return arrival
    return msgspec.structs.replace(arrival, excluded=(arrival.excluded | targets) - done)


def _without_credit(arrival: RequestArrived, doubted: frozenset[Target]) -> RequestArrived:
    overlaps = {target: tokens for target, tokens in arrival.overlaps.items() if target not in doubted}
    options = {target: ways for target, ways in arrival.options.items() if target not in doubted}
    return msgspec.structs.replace(arrival, overlaps=overlaps, options=options)


def _find_at_limit(settings: PlacerSettings, books: Books, now_s: float) -> frozenset[Target]:
    """Ranks that have as many requests as they may."""
    busy = _NONE if settings.requests_per_rank is None else books.ledger.find_busy(settings.requests_per_rank)
    return busy | find_full(settings.limits, books.fleet, books.ledger, now_s) if settings.limits else busy


def find_full(limits: Sequence[RequestLimit], fleet: Fleet, ledger: Ledger, now_s: float) -> frozenset[Target]:
    """Ranks of workers that have as many requests as they may."""
    full: set[Target] = set()
    for limit in limits:
        targets = [rank.facts.target for rank in fleet.ranks() if rank.facts.target.worker in limit.workers]
        if sum(ledger.totals(target, now_s).open_requests for target in targets) >= limit.max_requests:
            full.update(targets)
    return frozenset(full)


def find_candidates(standings: Standings, arrival: RequestArrived, pin: Pin | None) -> Candidates:
    """Ranks and pairs that serve the model and may be chosen; for a pinned request those with the one rank."""
    whole = _leave_tried_out(standings.find_serving(arrival.model), arrival.excluded)
    if not standings.leg_pools or not arrival.takes_pair:
        return Candidates(whole=whole if arrival.pin is None else _keep_pinned(whole, pin, arrival))
    by_key = standings.leg_pools.items()
    legs = [
        LegPools(
            _find_pools([(key.models, pool) for key, pool in by_key if key[:2] == (Role.PREFILL, engine)], arrival),
            _find_pools([(key.models, pool) for key, pool in by_key if key[:2] == (Role.DECODE, engine)], arrival),
        )
        for engine in dict.fromkeys(key.engine for key in standings.leg_pools)
    ]
    if arrival.pin is not None:
        # A pin holds the rank that generates.
        homes = Candidates(whole=whole, legs=tuple(legs)).homes
        alone = _keep_pinned(homes, pin, arrival)
        targets = {target for pool in alone for target in pool.targets}
        whole = alone if any(targets & pool.targets.keys() for pool in whole) else ()
        legs = [
            LegPools(each.prefills, alone) for each in legs if any(targets & p.targets.keys() for p in each.decodes)
        ]
    if arrival.prefilled_by is not None:
        done = _alone(arrival.prefilled_by)
        whole = ()
        legs = [
            LegPools((done,), e.decodes) for e in legs if any(arrival.prefilled_by in p.targets for p in e.prefills)
        ]
    return Candidates(whole=whole, legs=tuple(each for each in legs if each.prefills and each.decodes))


def _find_pools(pools: Iterable[tuple[tuple[str, ...], Pool]], arrival: RequestArrived) -> tuple[Pool, ...]:
    """Pools that serve the model and have a rank that was not tried."""
    serving = tuple(pool for models, pool in pools if arrival.model is None or arrival.model in models)
    return _leave_tried_out(serving, arrival.excluded)


def _leave_tried_out(pools: tuple[Pool, ...], excluded: frozenset[Target]) -> tuple[Pool, ...]:
    """Pools that have a rank which was not tried."""
    if not excluded:
        return pools
    return tuple(pool for pool in pools if any(target not in excluded for target in pool.targets))


def _keep_pinned(serving: tuple[Pool, ...], pin: Pin | None, arrival: RequestArrived) -> tuple[Pool, ...]:
    """The one rank that has the state, as a pool of its own."""
    target = _find_pinned(serving, pin)
    return () if target is None or target in arrival.excluded else (_alone(target),)


def _alone(target: Target) -> Pool:
    pool = Pool()
    pool.targets[target] = None
    return pool


def _find_pinned(serving: Sequence[Pool], pin: Pin | None) -> Target | None:
    """The rank that has the state. A name nobody has heard of is at home where there is one rank only."""
    if pin is None:
        targets = [target for pool in serving for target in pool.targets]
        return targets[0] if len(targets) == 1 else None
    if pin.is_lost:
        return None
    return pin.target if any(pin.target in pool.targets for pool in serving) else None


def find_refusal(
    fleet: Fleet,
    arrival: RequestArrived,
    pin: Pin | None,
    *,
    at_limit: frozenset[Target],
    barred: frozenset[Target],
    now_s: float,
) -> RejectReason:
    """Why no rank may be chosen; `at_limit` and `barred` are those left out for a limit or an open breaker."""
    if pin is not None and pin.is_lost:
        return RejectReason.LOST_STATE
    serving = fleet.find_serving(arrival.model)
    if not serving:
        return _find_absence(fleet, arrival.model, now_s)
    if arrival.pin is not None:
        return _find_pin_refusal(fleet, pin, at_limit)
    accepting = [rank.facts.target for rank in serving if rank.facts.accepts_requests()]
    available = [target for target in accepting if target not in barred]
    if not available:
        return RejectReason.ALL_UNHEALTHY
    if any(target in at_limit for target in available):
        return RejectReason.OVERLOADED
    return _find_role_refusal(serving, arrival, barred)


def _find_absence(fleet: Fleet, model: str | None, now_s: float) -> RejectReason:
    """What it means that no rank serves the model."""
    if not len(fleet):
        return RejectReason.NO_WORKER
    return RejectReason.ALL_UNHEALTHY if fleet.is_awaited(model, now_s) else RejectReason.UNKNOWN_MODEL


def _find_role_refusal(serving: Sequence[Rank], arrival: RequestArrived, barred: frozenset[Target]) -> RejectReason:
    """Why what is left does not do: one leg of it is missing, or it takes no pair."""
    if not arrival.takes_pair and all(rank.facts.role is not Role.AGGREGATED for rank in serving):
        return RejectReason.ONLY_PAIRS
    gone = barred | arrival.excluded
    left = {rank.facts.role for rank in serving if rank.facts.accepts_requests() and rank.facts.target not in gone}
    return RejectReason.NO_PARTNER if len(left) == 1 and Role.AGGREGATED not in left else RejectReason.NO_WORKER


def _find_pin_refusal(fleet: Fleet, pin: Pin | None, at_limit: frozenset[Target]) -> RejectReason:
    if pin is None:
        return RejectReason.UNKNOWN_STATE
    rank = fleet.find(pin.target)
    if rank is not None and rank.facts.draining:
        return RejectReason.PINNED_DRAINING
    return RejectReason.OVERLOADED if pin.target in at_limit else RejectReason.PINNED_ELSEWHERE
