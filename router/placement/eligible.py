"""Which ranks may be chosen for a request, or why there is none."""

from collections.abc import Mapping, Sequence

import msgspec

from router.fleet.view import Fleet
from router.placement.books import Books
from router.placement.instructions import RejectReason
from router.placement.ledger import Ledger
from router.placement.pins import Pin
from router.placement.settings import RequestLimit
from router.placement.standings import Pool
from router.placement.stimuli import RequestArrived
from wire.ids import Target

Pools = Mapping[tuple[str, ...], Pool]


class Eligible(msgspec.Struct, frozen=True):
    """What there is to choose from."""

    #: Without the ranks that may not be chosen, and without credit of those that fail.
    arrival: RequestArrived
    pools: tuple[Pool, ...]
    #: Ranks that fail, of which nothing counts that they hold.
    doubted: frozenset[Target]
    #: Why there is none; None where there is one.
    refused: RejectReason | None


def find_eligible(
    books: Books, limits: Sequence[RequestLimit], arrival: RequestArrived, pin: Pin | None, now_s: float
) -> Eligible:
    """The ranks for one arrival: neither at a limit nor behind an open breaker, full ones only where there is no other.

    Every policy and every explicit choice gets its ranks here.
    """
    at_limit = find_full(limits, books.fleet, books.ledger, now_s) - arrival.excluded if limits else _NONE
    breakers = books.breakers
    barred, full, doubted = breakers.find_barred(now_s), breakers.find_full(now_s), breakers.find_doubted(now_s)
    if doubted:
        arrival = _without_credit(arrival, doubted)
    left_out = _exclude(arrival, at_limit | barred)
    for kept in (_exclude(left_out, full), left_out) if full else (left_out,):
        pools = find_pools(books.standings.pools, kept, pin)
        if pools:
            return Eligible(kept, pools, doubted, None)
    return Eligible(left_out, (), doubted, find_refusal(books.fleet, arrival, pin, at_limit=at_limit, barred=barred))


_NONE: frozenset[Target] = frozenset()


def _exclude(arrival: RequestArrived, targets: frozenset[Target]) -> RequestArrived:
    return msgspec.structs.replace(arrival, excluded=arrival.excluded | targets) if targets else arrival


def _without_credit(arrival: RequestArrived, doubted: frozenset[Target]) -> RequestArrived:
    overlaps = {target: tokens for target, tokens in arrival.overlaps.items() if target not in doubted}
    options = {target: ways for target, ways in arrival.options.items() if target not in doubted}
    return msgspec.structs.replace(arrival, overlaps=overlaps, options=options)


def find_full(limits: Sequence[RequestLimit], fleet: Fleet, ledger: Ledger, now_s: float) -> frozenset[Target]:
    """Ranks of workers that have as many requests as they may."""
    full: set[Target] = set()
    for limit in limits:
        targets = [rank.facts.target for rank in fleet.ranks() if rank.facts.target.worker in limit.workers]
        if sum(ledger.totals(target, now_s).open_requests for target in targets) >= limit.max_requests:
            full.update(targets)
    return frozenset(full)


def find_pools(pools: Pools, arrival: RequestArrived, pin: Pin | None) -> tuple[Pool, ...]:
    """Pools that serve the model and have a rank that may be chosen; for a pinned request the one rank."""
    serving = [pool for models, pool in pools.items() if arrival.model is None or arrival.model in models]
    excluded = arrival.excluded
    if excluded:
        serving = [pool for pool in serving if any(target not in excluded for target in pool.targets)]
    if arrival.pin is None:
        return tuple(serving)
    target = _find_pinned(serving, pin)
    if target is None or target in excluded:
        return ()
    alone = Pool()
    alone.targets[target] = None
    return (alone,)


def _find_pinned(serving: list[Pool], pin: Pin | None) -> Target | None:
    """The rank that has the state. A name nobody has heard of is at home where there is one rank only."""
    if pin is None:
        targets = [target for pool in serving for target in pool.targets]
        return targets[0] if len(targets) == 1 else None
    if pin.is_lost:
        return None
    return pin.target if any(pin.target in pool.targets for pool in serving) else None


def find_refusal(
    fleet: Fleet, arrival: RequestArrived, pin: Pin | None, *, at_limit: frozenset[Target], barred: frozenset[Target]
) -> RejectReason:
    """Why no rank may be chosen; `at_limit` and `barred` are those left out for a limit or an open breaker."""
    if not len(fleet):
        return RejectReason.NO_WORKER
    serving = fleet.find_serving(arrival.model)
    if not serving:
        return RejectReason.UNKNOWN_MODEL
    if arrival.pin is not None:
        return _find_pin_refusal(pin)
    accepting = [rank.facts.target for rank in serving if rank.facts.accepts_requests()]
    available = [target for target in accepting if target not in barred]
    if not available:
        return RejectReason.ALL_UNHEALTHY
    if any(target in at_limit for target in available):
        return RejectReason.OVERLOADED
    return RejectReason.NO_WORKER


def _find_pin_refusal(pin: Pin | None) -> RejectReason:
    if pin is None:
        return RejectReason.UNKNOWN_STATE
    return RejectReason.LOST_STATE if pin.is_lost else RejectReason.PINNED_ELSEWHERE
