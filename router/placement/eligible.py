"""Which ranks may be chosen for a request, or why there is none."""

from collections.abc import Mapping

from router.fleet.view import Fleet
from router.placement.instructions import RejectReason
from router.placement.pins import Pin
from router.placement.standings import Pool
from router.placement.stimuli import RequestArrived
from wire.ids import Target

Pools = Mapping[tuple[str, ...], Pool]


def find_pools(pools: Pools, arrival: RequestArrived, pin: Pin | None) -> tuple[Pool, ...]:
    """Pools that serve the model and have a rank that was not tried; for a pinned request the one rank."""
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


def find_refusal(fleet: Fleet, arrival: RequestArrived, pin: Pin | None) -> RejectReason:
    """Why no rank may be chosen."""
    if not len(fleet):
        return RejectReason.NO_WORKER
    serving = fleet.find_serving(arrival.model)
    if not serving:
        return RejectReason.UNKNOWN_MODEL
    if arrival.pin is not None:
        return _find_pin_refusal(pin)
    if not any(rank.facts.accepts_requests() for rank in serving):
        return RejectReason.ALL_UNHEALTHY
    return RejectReason.NO_WORKER


def _find_pin_refusal(pin: Pin | None) -> RejectReason:
    if pin is None:
        return RejectReason.UNKNOWN_STATE
    return RejectReason.LOST_STATE if pin.is_lost else RejectReason.PINNED_ELSEWHERE
