"""The usual ways of choosing, behind the same interface: to measure against, and for fleets without caches."""

from collections.abc import Sequence

import xxhash

from router.config.policy import Coefficients, PolicyName
from router.policy.base import Choice, PlacementQuery, RankView, build_table
from router.policy.ties import hash_to_target, pick_by_hash
from wire.ids import Target

_MASK_64 = (1 << 64) - 1


class RoundRobin:
    """Every (worker, rank) in turn, whatever it holds or does."""

    name = PolicyName.ROUND_ROBIN.value

    def __init__(self, coefficients: Coefficients) -> None:
        self.coefficients = coefficients
        self._last: Target | None = None

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:  # noqa: ARG002
        """The next in order after the last one chosen, so that ranks that come and go do not upset the turn."""
        ordered = sorted(rank.target for rank in ranks)
        later = [target for target in ordered if self._last is not None and target > self._last]
        self._last = (later or ordered)[0]
        costs = build_table(query, ranks, [0.0] * len(ranks))
        return Choice(target=self._last, costs=costs, reason="next in turn")


class Random:
    """Any rank, each as likely; the same seed gives the same row of choices."""

    name = PolicyName.RANDOM.value

    def __init__(self, coefficients: Coefficients) -> None:
        self.coefficients = coefficients
        self._draws = 0

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """A draw from the seed."""
        self._draws += 1
        draw = xxhash.xxh3_64_intdigest(self._draws.to_bytes(8, "little"), seed=seed & _MASK_64)
        costs = build_table(query, ranks, [0.0] * len(ranks))
        return Choice(target=ranks[draw % len(ranks)].target, costs=costs, reason="drawn at random")


class LeastLoad:
    """The rank with the fewest requests, by this router and by others; the cache is not looked at."""

    name = PolicyName.LEAST_LOAD.value

    def __init__(self, coefficients: Coefficients) -> None:
        self.coefficients = coefficients

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """The least loaded; among equals by a hash of the request."""
        costs = build_table(query, ranks, [float(rank.open_requests) for rank in ranks])
        fewest = min(rank.open_requests for rank in ranks)
        tied = [rank.target for rank in ranks if rank.open_requests == fewest]
        target = pick_by_hash(query.request_id, tied, seed)
        reason = f"fewest requests there: {fewest}"
        return Choice(target=target, costs=costs, tied_count=len(tied), reason=reason)


class SessionHash:
    """Rendezvous hash of the session over the ranks that may be chosen; without a session, the least loaded."""

    name = PolicyName.SESSION_HASH.value

    def __init__(self, coefficients: Coefficients) -> None:
        self.coefficients = coefficients
        self._without_session = LeastLoad(coefficients)

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """The session's rank; when it cannot be chosen the next in its order, and it comes back when it can.

        The hash is not seeded by the router, so that all routers of a fleet agree.
        """
        session = query.session
        if session is None:
            return self._without_session.choose(query, ranks, seed)
        weights = {rank.target: hash_to_target(session, rank.target, 0) for rank in ranks}
        target = max(weights, key=lambda name: (weights[name], name))
        costs = build_table(query, ranks, [1.0 - weights[rank.target] / (1 << 64) for rank in ranks])
        return Choice(target=target, costs=costs, reason=f"hash of session {session}")
