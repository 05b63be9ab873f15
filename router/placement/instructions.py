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
    #: Ranks serve the model, but none is healthy and taking requests.
    ALL_UNHEALTHY = "all_unhealthy"
    #: A request of that id is still running.
    DUPLICATE_REQUEST = "duplicate_request"


class Place(msgspec.Struct, frozen=True):
    """Send the request to the target. Its load is charged already."""

    request_id: RequestId
    target: Target
    decision: Decision


class Reject(msgspec.Struct, frozen=True):
    """Answer the client with an error. Nothing was charged."""

    request_id: RequestId
    reason: RejectReason
    decision: Decision


Instruction = Place | Reject
