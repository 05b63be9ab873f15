"""Prefill legs under way: what each is charged, from the decision until the leg ends.

A pair's request is charged twice: its decode rank for as long as the request lasts, its prefill rank only until the
prompt is done, so that a rank which has handed over looks as free as it is.
"""

from router.placement.books import Books
from router.placement.reservation import Reservation
from router.placement.stimuli import RequestArrived
from wire.ids import RequestId

_MARK = "\0prefill"


def name_leg(request_id: RequestId) -> RequestId:
    """Name of a request's prefill leg in the ledger; no client can choose such a one for a request."""
    return RequestId(f"{request_id}{_MARK}")


def is_leg(entry: RequestId) -> bool:
    """Whether an entry of the ledger is a leg's."""
    return entry.endswith(_MARK)


class PrefillLegs:
    """The prefill legs that are open."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._open: dict[RequestId, Reservation] = {}

    def charge(self, arrival: RequestArrived, leg: Reservation) -> None:
        """A request's prompt goes to a rank of its own."""
        self._open[arrival.request_id] = leg
        self._books.charge_prefill(leg, arrival)

    def end(self, request_id: RequestId, now_s: float) -> Reservation | None:
        """The leg is over; None where there is none, or not any more."""
        leg = self._open.pop(request_id, None)
        if leg is not None:
            entry = leg.request_id
            self._books.ledger.release(entry, now_s)
            self._books.breakers.end(entry)
            self._books.standings.touch(leg.target)
        return leg

    def lose(self, entry: RequestId) -> bool:
        """An entry of the ledger is gone with its rank; whether it was a leg's."""
        if not is_leg(entry):
            return False
        self._books.breakers.end(entry)
        self._open.pop(RequestId(entry.removesuffix(_MARK)), None)
        return True

    def names(self) -> list[RequestId]:
        """The legs' entries in the ledger."""
        return [leg.request_id for leg in self._open.values()]
