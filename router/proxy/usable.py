"""Ranks for calls that are not placed: healthy, of the model asked for, one after the other."""

from collections.abc import Set as AbstractSet

from router.proxy.ports import ProxyParts
from router.proxy.refusal import all_unhealthy, no_worker
from wire.ids import Target, WorkerId


class UsableRanks:
    """Chooses in turn."""

    def __init__(self, parts: ProxyParts) -> None:
        self._parts = parts
        self._turn = 0

    def find(self, model: str | None, *, excluded: AbstractSet[WorkerId] = frozenset()) -> list[Target]:
        """Ranks that take requests and serve a model; without a name, all. Those behind an open breaker take none."""
        placer = self._parts.placer
        barred = placer.breakers.find_barred(placer.clock.now_s)
        ranks = placer.fleet.ranks() if model is None else placer.fleet.find_serving(model)
        able = (rank.facts.target for rank in ranks if rank.facts.accepts_requests())
        return [target for target in able if target not in barred and target.worker not in excluded]

    def choose(self, model: str | None, *, excluded: AbstractSet[WorkerId] = frozenset()) -> Target:
        """The next one.

        Raises:
            FleetError: There is none.
        """
        usable = self.find(model, excluded=excluded)
        if not usable:
            raise all_unhealthy(self._parts) if len(self._parts.placer.fleet) else no_worker(self._parts)
        self._turn += 1
        return usable[self._turn % len(usable)]
