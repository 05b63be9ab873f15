"""All requests that wait, by the model they wait for, within bounds; and when it is worth while to come again. Pure.

When the queue is full, a tenant that has more than another's newcomer waiting gives up its last request for it: who
sends the most is turned away first, and a flood of one tenant keeps nobody else out.
"""

import math
from collections.abc import Mapping

import msgspec

from router.admission.order import QueueOrder, Waiting
from wire.ids import RequestId

#: Weight of the newest pause between two places in their average.
_NEWEST = 0.1
MAX_RETRY_AFTER_S = 120


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the queue."""

    #: Most requests that wait; 0 lets none wait.
    max_waiting: int = 0
    #: Longest that one waits.
    max_wait_s: float = 30.0
    #: Whether they wait too while no worker takes requests at all.
    waits_out_outages: bool = True
    #: Wait after which a lower priority gets a place now and then.
    aging_s: float = 5.0
    #: Tokens by which a request is longer than another and counts as a second later.
    handicap_tokens_per_s: float = 20_000.0
    #: Shares of tenants, 1 where nothing is said.
    weights: Mapping[str, float] = msgspec.field(default_factory=dict)


class Entered(msgspec.Struct, frozen=True):
    """What became of a newcomer."""

    #: It waits so; None where it is turned away.
    waiting: Waiting | None
    #: Who had to go for it.
    displaced: Waiting | None = None


class AdmissionQueue:
    """Requests that wait for a place, an order for each name under which some do."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._orders: dict[str, QueueOrder] = {}
        #: Every one that waits, with the name of its order.
        self._waiting: dict[RequestId, tuple[str, Waiting]] = {}
        self._of_tenant: dict[str, int] = {}
        self._numbers = 0
        self._given_s: float | None = None
        self._pause_s = 1.0

    def __len__(self) -> int:
        return len(self._waiting)

    def count(self, name: str) -> int:
        """How many wait under a name."""
        order = self._orders.get(name)
        return 0 if order is None else len(order)

    def names(self) -> tuple[str, ...]:
        """Names under which some wait."""
        return tuple(self._orders)

    def enter(
        self, request_id: RequestId, name: str, *, tenant: str, priority: int, cost_tokens: int, now_s: float
    ) -> Entered:
        """Let a request wait, or turn it away."""
        if request_id in self._waiting:
            return Entered(None)
        displaced = None
        if len(self._waiting) >= self.settings.max_waiting:
            displaced = self._find_displaced(tenant)
            if displaced is None:
                return Entered(None)
            self.leave(displaced.request_id)
        self._numbers += 1
        waiting = Waiting(
            request_id=request_id,
            tenant=tenant,
            priority=priority,
            cost_tokens=cost_tokens,
            arrived_s=now_s,
            number=self._numbers,
        )
        if name not in self._orders:
            self._orders[name] = self._make_order()
        self._orders[name].add(waiting)
        self._waiting[request_id] = name, waiting
        self._of_tenant[tenant] = self._of_tenant.get(tenant, 0) + 1
        return Entered(waiting, displaced)

    def leave(self, request_id: RequestId) -> bool:
        """A request gives up waiting; whether it did wait."""
        return self._take(request_id) is not None

    def give(self, request_id: RequestId, *, cost_tokens: int, now_s: float) -> None:
        """One that waited has its place: its tenant pays."""
        name, waiting = self._waiting[request_id]
        self._orders[name].give(waiting.tenant, waiting.priority, cost_tokens)
        self._take(request_id)
        if self._given_s is not None:
            self._pause_s += _NEWEST * (max(0.0, now_s - self._given_s) - self._pause_s)
        self._given_s = now_s

    def find_next(self, name: str, now_s: float) -> Waiting | None:
        """Who goes next of those under a name; None where nobody waits. Asking changes nothing."""
        order = self._orders.get(name)
        return None if order is None else order.find_next(now_s)

    def find_retry_after_s(self) -> int:
        """Seconds after which all that wait now will have had their place, as places came of late; at least 1."""
        wait_s = (len(self._waiting) + 1) * self._pause_s
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(wait_s)))

    def _take(self, request_id: RequestId) -> Waiting | None:
        name, waiting = self._waiting.pop(request_id, ("", None))
        if waiting is None:
            return None
        order = self._orders[name]
        order.remove(waiting)
        if not len(order):
            # With nobody waiting there is nothing to share, and nothing to remember.
            del self._orders[name]
        left = self._of_tenant.pop(waiting.tenant) - 1
        if left:
            self._of_tenant[waiting.tenant] = left
        return waiting

    def _find_displaced(self, tenant: str) -> Waiting | None:
        """Who goes for a newcomer of a tenant; None where nobody has more waiting than it would have."""
        weigh = self._weigh
        most = max(self._of_tenant, key=lambda name: (self._of_tenant[name] / weigh(name), name), default=None)
        if most is None or most == tenant:
            return None
        if self._of_tenant[most] / weigh(most) <= (self._of_tenant.get(tenant, 0) + 1) / weigh(tenant):
            return None
        lasts = [last for order in self._orders.values() if (last := order.find_last(most)) is not None]
        return max(lasts, key=lambda last: last.number, default=None)

    def _make_order(self) -> QueueOrder:
        return QueueOrder(
            aging_s=self.settings.aging_s,
            handicap_tokens_per_s=self.settings.handicap_tokens_per_s,
            weigh=self._weigh,
        )

    def _weigh(self, tenant: str) -> float:
        return self.settings.weights.get(tenant, 1.0)
