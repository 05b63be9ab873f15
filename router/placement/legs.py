"""Prefill legs under way: what each is charged, from the decision until the leg ends.

A pair's request is charged twice: its decode rank for as long as the request lasts, its prefill rank only until the
prompt is done, so that a rank which has handed over looks as free as it is.
"""

from router.placement.attempt import Attempt
from router.placement.books import Books, Charge
from router.placement.stimuli import RequestArrived
from router.policy.base import PlacementQuery
from wire.ids import RequestId, Target

_MARK = "\0prefill"


def name_leg(request_id: RequestId) -> RequestId:
    """Name of a request's prefill leg in the ledger; no client can choose such a one for a request."""
    return RequestId(f"{request_id}{_MARK}")


class PrefillLegs:
    """The prefill legs that are open."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._open: dict[RequestId, Attempt] = {}

    def charge(self, arrival: RequestArrived, query: PlacementQuery, charge: Charge, now_s: float) -> None:
        """A request's prompt goes to a rank of its own."""
        self._open[arrival.request_id] = charge.attempt
        self._books.charge_prefill(name_leg(arrival.request_id), arrival, query, charge, now_s)

    def end(self, request_id: RequestId, now_s: float) -> Attempt | None:
        """The leg is over; None where there is none, or not any more."""
        attempt = self._open.pop(request_id, None)
        if attempt is not None:
            entry = name_leg(request_id)
            self._books.ledger.release(entry, now_s)
            self._books.breakers.end(entry)
            self._books.standings.touch(attempt.target)
        return attempt

    def lose(self, entry: RequestId) -> bool:
        """An entry of the ledger is gone with its rank; whether it was a leg's."""
        request_id = entry.removesuffix(_MARK)
        self._books.breakers.end(entry)
        return request_id != entry and self._open.pop(RequestId(request_id), None) is not None

    def names(self) -> list[RequestId]:
        """The legs' entries in the ledger."""
        return [name_leg(request_id) for request_id in self._open]

    def targets(self) -> list[Target]:
        """Their ranks."""
        return [attempt.target for attempt in self._open.values()]
