"""What placement asks the edges to do. Imperative; expected refusals are values, not exceptions."""

from enum import StrEnum

import msgspec

from router.placement.decision import Decision
from wire.ids import RequestId, Target


class RejectReason(StrEnum):
    """Why no rank was chosen."""

    #: The fleet is empty, or every rank was excluded by earlier attempts.
    NO_WORKER = "no_worker"
    #: No rank serves the model.
    UNKNOWN_MODEL = "unknown_model"
    #: Ranks serve the model, but none is healthy and taking requests, or all failed of late; or the last that did
    #: left a short while ago.
    ALL_UNHEALTHY = "all_unhealthy"
    #: Every rank that could take it is at a configured limit.
    OVERLOADED = "overloaded"
    #: A request of that id is still running.
    DUPLICATE_REQUEST = "duplicate_request"
    #: It rests on state inside an engine that nobody here has heard of.
    UNKNOWN_STATE = "unknown_state"
    #: The engine that had that state is gone, and the state with it.
    LOST_STATE = "lost_state"
    #: The engine that has that state takes no request now.
    PINNED_ELSEWHERE = "pinned_elsewhere"
    #: The engine that has that state is to finish what it has.
    PINNED_DRAINING = "pinned_draining"
    #: Ranks that prefill take requests, or ranks that generate, but not both.
    NO_PARTNER = "no_partner"
    #: It needs one rank that does everything, and there are only pairs.
    ONLY_PAIRS = "only_pairs"


#: In words, for explanations.
REFUSALS = {
    RejectReason.NO_WORKER: "no rank is left that was not tried",
    RejectReason.UNKNOWN_MODEL: "no rank serves the model",
    RejectReason.ALL_UNHEALTHY: "every rank that serves the model is unhealthy, draining, failing or just gone",
    RejectReason.OVERLOADED: "every worker that could take it has as many requests as it may",
    RejectReason.DUPLICATE_REQUEST: "a request of this id is still running",
    RejectReason.UNKNOWN_STATE: "it rests on state of one engine, and no engine is known to have it",
    RejectReason.LOST_STATE: "the engine whose state it rests on is gone",
    RejectReason.PINNED_ELSEWHERE: "the engine whose state it rests on takes no request now",
    RejectReason.PINNED_DRAINING: "the engine whose state it rests on drains",
    RejectReason.NO_PARTNER: "ranks of one leg take requests, prefill or decode, and none of the other",
    RejectReason.ONLY_PAIRS: "it needs one rank that prefills and generates, and there are only pairs",
}


class Place(msgspec.Struct, frozen=True):
    """Send the request to the target, or its legs to the pair. Its load is charged already."""

    request_id: RequestId
    #: Rank that generates.
    target: Target
    decision: Decision
    #: Rank that prefills for it; None where the target does so itself.
    prefill: Target | None = None


class Reject(msgspec.Struct, frozen=True):
    """Answer the client with an error. Nothing was charged."""

    request_id: RequestId
    reason: RejectReason
    decision: Decision


Instruction = Place | Reject
