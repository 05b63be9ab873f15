"""What a call's span says: names and attributes, in one place. Never a prompt, an answer or a key."""

from typing import TYPE_CHECKING

from router.metrics import RequestOutcome
from router.placement.instructions import Place
from router.proxy.api import PATHS
from router.tracing import CallTrace, Tracing
from wire.ids import Target

if TYPE_CHECKING:
    from router.proxy.call import Call

#: Outcomes that are nobody's fault, or the client's.
_UNTROUBLED = frozenset(
    {RequestOutcome.DONE, RequestOutcome.CLIENT_ERROR, RequestOutcome.CANCELLED, RequestOutcome.REJECTED}
)


def trace_call(tracing: Tracing, call: "Call") -> CallTrace:
    """The span of a call that begins."""
    attributes = {"http.request.method": call.method, "url.path": call.path, "dovecote.request_id": call.request_id}
    if call.tenant:
        attributes["dovecote.tenant"] = call.tenant
    # Names are few: a path that a client makes up is an attribute only.
    name = f"{call.method} {call.path}" if call.path in PATHS else call.method
    return tracing.begin(name, call.headers, attributes)


def mark_place(trace: CallTrace, place: Place) -> None:
    """It was placed, after what waiting there was."""
    decision = place.decision
    trace.mark(
        "placed",
        {
            "dovecote.worker": place.target.worker,
            "dovecote.dp_rank": place.target.dp_rank,
            "dovecote.prompt_tokens": decision.prompt_tokens,
            "dovecote.predicted_cached_tokens": decision.predicted_cached_tokens,
        },
    )


def end_trace(trace: CallTrace, target: Target | None, outcome: RequestOutcome) -> None:
    """It is over."""
    attributes: dict[str, str | int | float | bool] = {}
    if target is not None:
        attributes = {"dovecote.worker": target.worker, "dovecote.dp_rank": target.dp_rank}
    trace.end(outcome.value, attributes, is_error=outcome not in _UNTROUBLED)
