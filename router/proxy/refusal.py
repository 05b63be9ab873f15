"""Why a request was not placed, as the error its client sees: what is asked for, what there is instead."""

from collections.abc import Callable

from router.access import Principal
from router.errors import (
    AllUnhealthyError,
    DovecoteError,
    DuplicateRequestError,
    FleetError,
    LostStateError,
    OverloadedError,
    PassingError,
    PinnedDrainingError,
    PinnedElsewhereError,
    UnknownModelError,
    UnknownStateError,
)
from router.placement.instructions import Reject, RejectReason
from router.proxy.ports import ProxyParts

#: Most served models named to a client.
MAX_NAMED_MODELS = 10
#: Longest name quoted, a client's or a worker's.
MAX_NAME_CHARS = 100


def state_refusal(reason: RejectReason) -> DovecoteError:
    """The error for state of an engine that cannot be used: unknown, lost, or out of reach for now."""
    kind, words = _PLAIN[reason]
    return kind(words)


def refusal(reject: Reject, model: str | None, parts: ProxyParts) -> DovecoteError:
    """The error a client sees for a request that was not placed."""
    if reject.reason in _PLAIN:
        kind, words = _PLAIN[reject.reason]
        return kind(words)
    if reject.reason is RejectReason.UNKNOWN_MODEL:
        return unknown_model(model, parts)
    if reject.reason is RejectReason.DUPLICATE_REQUEST:
        return DuplicateRequestError("a request of this id is still running")
    if reject.reason is RejectReason.ALL_UNHEALTHY:
        return all_unhealthy(parts)
    return no_worker(parts)


def all_unhealthy(parts: ProxyParts) -> FleetError:
    """The error where ranks serve the model and none of them may get requests."""
    return AllUnhealthyError(f"no worker that serves this model takes requests now ({_count(parts)}); try again soon")


def no_worker(parts: ProxyParts) -> FleetError:
    """The error where there is no rank at all."""
    return PassingError(f"no worker can take the request ({_count(parts)}); try again soon")


#: Refusals that are told in the same words whatever was asked for.
_PLAIN: dict[RejectReason, tuple[Callable[[str], DovecoteError], str]] = {
    RejectReason.OVERLOADED: (
        OverloadedError,
        "every worker that could take the request has as many as it may; try again soon",
    ),
    RejectReason.NO_PARTNER: (
        PassingError,
        "only workers of one leg take requests now, prefill or decode, and none of the other; try again soon",
    ),
    RejectReason.ONLY_PAIRS: (
        FleetError,
        "this request needs one worker that prefills and generates, and the fleet has only pairs",
    ),
    RejectReason.UNKNOWN_STATE: (
        UnknownStateError,
        "no worker here is known to keep the state that this request names",
    ),
    RejectReason.LOST_STATE: (
        LostStateError,
        "the worker that kept the state this request names is gone, and the state with it",
    ),
    RejectReason.PINNED_ELSEWHERE: (
        PinnedElsewhereError,
        "the worker that keeps the state this request names takes no request now",
    ),
    RejectReason.PINNED_DRAINING: (
        PinnedDrainingError,
        "the worker that keeps the state this request names drains: it gets nothing new",
    ),
}


def unknown_model(model: str | None, parts: ProxyParts) -> UnknownModelError:
    """The error for a model that no rank serves; names those that are served."""
    served = parts.placer.fleet.find_models()
    named = ", ".join(name[:MAX_NAME_CHARS] for name in served[:MAX_NAMED_MODELS])
    more = f" and {len(served) - MAX_NAMED_MODELS} more" if len(served) > MAX_NAMED_MODELS else ""
    asked = repr(model if model is None else model[:MAX_NAME_CHARS])
    return UnknownModelError(f"the model {asked} does not exist; served here: {named}{more}", param="model")


def hide_models(error: DovecoteError, principal: Principal) -> DovecoteError:
    """The error as a key may see it: one that is for some models only is not told what others there are."""
    if principal.models is None or not isinstance(error, UnknownModelError):
        return error
    return UnknownModelError("nobody serves that model now; GET /v1/models lists those served", param="model")


def _count(parts: ProxyParts) -> str:
    standings = dict(parts.fleet.count_standings())
    workers, ready = sum(standings.values()), standings.pop("ready", 0)
    others = (f"{count} {standing.replace('_', ' ')}" for standing, count in sorted(standings.items()))
    return ", ".join((f"{ready} of {workers} workers ready", *others))
