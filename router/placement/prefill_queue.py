"""Seconds of prefill ahead of one rank, which works on one prompt at a time, in order.

Between stimuli they shrink with the clock. An overdue request keeps a tenth of its estimate, so that a rank which hangs
never looks idle. The sums are kept exactly, in whole units, whatever comes and goes: they are what `math.fsum` makes of
the requests at that moment, end at exactly zero, and cost as much in a long queue as in a short one.
"""

import math

from router.placement.reservation import Reservation
from wire.ids import RequestId

#: Share of its estimate that an overdue prefill keeps.
OVERDUE_RATIO = 0.1
#: So fine that every float from a ten-thousandth of a nanosecond on is a whole number of them.
_UNITS_PER_S = 2.0**96


class PrefillQueue:
    """Requests of a rank whose first token is awaited, and their sums as of `settled_at_s`."""

    __slots__ = (
        "_estimated_units",
        "_remaining_units",
        "_working",
        "estimated_s",
        "floor_s",
        "prefilling",
        "remaining_s",
        "settled_at_s",
    )

    def __init__(self) -> None:
        self.prefilling: dict[RequestId, Reservation] = {}
        #: Those of them that are not overdue.
        self._working: dict[RequestId, Reservation] = {}
        self._estimated_units = 0
        self._remaining_units = 0
        self.settled_at_s = -math.inf
        self.estimated_s = 0.0
        self.remaining_s = 0.0
        #: What is ahead at least, however late all of them are.
        self.floor_s = 0.0

    def settle(self, now_s: float) -> None:
        """Takes the seconds since the last time off the queue, first come first done. The sums follow at a change."""
        elapsed_s = now_s - self.settled_at_s
        if elapsed_s <= 0.0:
            return
        self.settled_at_s = now_s
        overdue = []
        for entry in self._working.values():
            before_s, floor_s = entry.remaining_prefill_s, entry.prefill_s * OVERDUE_RATIO
            done_s = min(elapsed_s, before_s - floor_s)
            entry.remaining_prefill_s = left_s = before_s - done_s
            self._remaining_units += _to_units(left_s) - _to_units(before_s)
            if left_s <= floor_s:
                overdue.append(entry.request_id)
            elapsed_s -= done_s
            if elapsed_s <= 0.0:
                break
        for request_id in overdue:
            del self._working[request_id]

    def enqueue(self, entry: Reservation) -> None:
        """One more; settled before."""
        self.prefilling[entry.request_id] = entry
        if entry.remaining_prefill_s > entry.prefill_s * OVERDUE_RATIO:
            self._working[entry.request_id] = entry
        self._estimated_units += _to_units(entry.prefill_s)
        self._remaining_units += _to_units(entry.remaining_prefill_s)
        self._sum_up()

    def dequeue(self, entry: Reservation) -> None:
        """Its first token came, or it is over; settled before."""
        del self.prefilling[entry.request_id]
        self._working.pop(entry.request_id, None)
        self._estimated_units -= _to_units(entry.prefill_s)
        self._remaining_units -= _to_units(entry.remaining_prefill_s)
        self._sum_up()

    def _sum_up(self) -> None:
        self.estimated_s = self._estimated_units / _UNITS_PER_S
        self.remaining_s = self._remaining_units / _UNITS_PER_S
        self.floor_s = self.estimated_s * OVERDUE_RATIO

    def waiting_s(self, now_s: float) -> float:
        """Seconds of prefill ahead at a time."""
        elapsed_s = now_s - self.settled_at_s
        left_s = self.remaining_s - elapsed_s if elapsed_s > 0.0 else self.remaining_s
        return max(self.floor_s, left_s)


def _to_units(seconds: float) -> int:
    return int(seconds * _UNITS_PER_S)
