"""The order of requests that wait for the same ranks. Pure.

Three rules, the first that tells two requests apart counts:

1. **Priority.** The highest goes first; but of every `FLOOR_EVERY` places one goes to the lower priority at whose head
   a request has waited longest, once that waited `aging_s`. No priority starves.
2. **Fair shares.** Of a priority's tenants the one goes first that has had the least work, in tokens over its weight
   (start-time fair queueing: Goyal, Vin, Cheng 1996). While two tenants both wait, what they got differs by no more
   than one request of each, however many requests one of them sends and however long those are.
3. **Short before long, within a tenant**, by a handicap that waiting makes up for: a request is ordered by its arrival
   plus its tokens over `handicap_tokens_per_s`. A long one is overtaken only by those that come within that time.
"""

from bisect import bisect_left, insort
from collections.abc import Callable

import msgspec

from wire.ids import RequestId

#: Of so many places one goes to a lower priority that has waited too long.
FLOOR_EVERY = 8


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One request that waits."""

    request_id: RequestId
    tenant: str
    #: Higher goes first.
    priority: int
    #: Work that it is expected to be.
    cost_tokens: int
    arrived_s: float
    #: Tells apart requests that came at once; grows.
    number: int


#: Place in its lane: when it is due, and its number.
_Due = tuple[float, int, Waiting]


class _Band:
    """The tenants of one priority: their requests, and what each has had."""

    def __init__(self) -> None:
        self.lanes: dict[str, list[_Due]] = {}
        #: Virtual time: start tag of the request that went last.
        self.now = 0.0
        #: Virtual time at which each tenant's last request is paid off; those that are by now are left out.
        self.finish: dict[str, float] = {}

    def find_start(self, tenant: str) -> float:
        return max(self.now, self.finish.get(tenant, 0.0))


class QueueOrder:
    """Requests that wait for the same ranks, and who of them is next."""

    def __init__(self, *, aging_s: float, handicap_tokens_per_s: float, weigh: Callable[[str], float]) -> None:
        """An empty one.

        Args:
            aging_s: Wait after which a lower priority gets a place now and then.
            handicap_tokens_per_s: Tokens by which a request is longer than another and a second later.
            weigh: A tenant's share in proportion to others', above 0.
        """
        self._aging_s = aging_s
        self._handicap_tokens_per_s = handicap_tokens_per_s
        self._weigh = weigh
        self._bands: dict[int, _Band] = {}
        self._given = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, waiting: Waiting) -> None:
        """One more waits."""
        band = self._bands.setdefault(waiting.priority, _Band())
        insort(band.lanes.setdefault(waiting.tenant, []), self._due(waiting))
        self._size += 1

    def remove(self, waiting: Waiting) -> bool:
        """One waits no longer, whatever became of it; whether it did."""
        band = self._bands.get(waiting.priority)
        lane = None if band is None else band.lanes.get(waiting.tenant)
        if band is None or lane is None:
            return False
        place = bisect_left(lane, self._due(waiting))
        if place == len(lane) or lane[place][2] is not waiting:
            return False
        del lane[place]
        if not lane:
            del band.lanes[waiting.tenant]
        self._size -= 1
        return True

    def find_next(self, now_s: float) -> Waiting | None:
        """Who is next; None where nobody waits. Asking changes nothing.

        Cost: one look at each tenant that waits.
        """
        bands = [priority for priority, band in self._bands.items() if band.lanes]
        if not bands:
            return None
        first = max(bands)
        if self._given % FLOOR_EVERY == FLOOR_EVERY - 1:
            heads = [head for priority in bands if priority < first for head in self._find_heads(priority)]
            aged = [head for head in heads if now_s - head.arrived_s >= self._aging_s]
            if aged:
                # Whoever has waited longest names the priority; within it shares are fair as ever.
                first = min(aged, key=lambda head: (head.arrived_s, head.number)).priority
        band = self._bands[first]
        tenant = min(band.lanes, key=lambda name: (band.find_start(name), band.lanes[name][0][:2]))
        return band.lanes[tenant][0][2]

    def give(self, tenant: str, priority: int, cost_tokens: int) -> None:
        """A request got its place, whether it had to wait or not: its tenant pays."""
        band = self._bands.setdefault(priority, _Band())
        start = band.find_start(tenant)
        band.now = start
        band.finish[tenant] = start + cost_tokens / self._weigh(tenant)
        band.finish = {name: end for name, end in band.finish.items() if end > start}
        self._given += 1

    def find_last(self, tenant: str) -> Waiting | None:
        """Of a tenant's requests the one that would go last; None without any."""
        for priority in sorted(self._bands):
            lane = self._bands[priority].lanes.get(tenant)
            if lane:
                return lane[-1][2]
        return None

    def _find_heads(self, priority: int) -> list[Waiting]:
        return [lane[0][2] for lane in self._bands[priority].lanes.values()]

    def _due(self, waiting: Waiting) -> _Due:
        due_s = waiting.arrived_s + waiting.cost_tokens / self._handicap_tokens_per_s
        return due_s, waiting.number, waiting
