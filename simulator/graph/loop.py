"""The closed loop: which request becomes due when, given when others started and ended. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from simulator.graph.request import BlockRequest, Trigger


class ClosedLoop:
    """Keeps for each request what it still waits for; a request is named by its place in the trace."""

    def __init__(self, requests: Sequence[BlockRequest]) -> None:
        self._requests = requests
        self._open_waits = [len(request.waits) for request in requests]
        #: Earliest start by what was waited for so far.
        self._due_s = [request.not_before_s for request in requests]
        self._waiters: dict[tuple[int, Trigger], list[tuple[int, float]]] = defaultdict(list)
        # Of those that become due at one moment, a session comes before its sub-agents.
        order = sorted(range(len(requests)), key=lambda place: (requests[place].session or "", place))
        for place in order:
            for wait in requests[place].waits:
                self._waiters[wait.place, wait.trigger].append((place, wait.pause_s))

    def roots(self) -> Iterator[tuple[float, int]]:
        """(due time, place) of the requests that wait for none."""
        return ((request.not_before_s, place) for place, request in enumerate(self._requests) if not request.waits)

    def start(self, place: int, now_s: float) -> list[tuple[float, int]]:
        """A request was sent; (due time, place) of those that waited for just that."""
        return self._fulfil(place, Trigger.DISPATCH, now_s)

    def end(self, place: int, now_s: float) -> list[tuple[float, int]]:
        """A request is answered; (due time, place) of those that waited for just that."""
        return self._fulfil(place, Trigger.COMPLETION, now_s)

    def _fulfil(self, place: int, trigger: Trigger, now_s: float) -> list[tuple[float, int]]:
        due = []
        for waiter, pause_s in self._waiters.pop((place, trigger), ()):
            self._due_s[waiter] = max(self._due_s[waiter], now_s + pause_s)
            self._open_waits[waiter] -= 1
            if not self._open_waits[waiter]:
                due.append((self._due_s[waiter], waiter))
        return due
