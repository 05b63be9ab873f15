"""The cost policy: every candidate gets one cost in seconds, a sum of named terms; the lowest wins.

There is no switch between looking at caches and looking at load: a session stays where its cache is until the wait
there costs more than computing its prompt anew elsewhere.
"""

import math
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Protocol

from router.config.policy import Coefficients, PolicyName, PolicyWeights
from router.policy.admission import AdmissionTerm
from router.policy.balance import BalanceTerm
from router.policy.base import Choice, PlacementQuery, RankView, build_table
from router.policy.decode import DecodeTerm
from router.policy.returns import ReturnsTerm
from router.policy.reuse import ReuseTerm
from router.policy.settle import SettleTerm
from router.policy.spread import SpreadTerm
from router.policy.stall import StallTerm
from router.policy.ties import break_tie, find_tied
from router.policy.wait import WaitTerm


class CostTerm(Protocol):
    """One reason why a candidate costs something."""

    name: str

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds; finite for sane input, below 0 for a credit."""
        ...


class CacheAffinity:
    """Weighted sum of cost terms. A weight of 0 leaves its term out."""

    name = PolicyName.CACHE_AFFINITY.value

    def __init__(self, weights: PolicyWeights, coefficients: Coefficients) -> None:
        self.coefficients = coefficients
        self.weights = weights
        terms: tuple[tuple[float, CostTerm], ...] = (
            (weights.wait, WaitTerm()),
            (weights.admission, AdmissionTerm(coefficients)),
            (weights.reuse, ReuseTerm(coefficients)),
            (weights.stall, StallTerm(coefficients)),
            (weights.decode, DecodeTerm(coefficients)),
            (weights.returns, ReturnsTerm(coefficients)),
            (weights.balance, BalanceTerm(coefficients)),
            (weights.settle, SettleTerm(coefficients)),
            (weights.spread, SpreadTerm(coefficients)),
        )
        self._costs = tuple((weight, term.cost_s) for weight, term in terms if weight > 0)
        #: Of the terms that have a weight, in their order.
        self.term_names = tuple(term.name for weight, term in terms if weight > 0)

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """The cheapest rank; ties go home, else by a hash of the request."""
        rows: Sequence[Sequence[float]] = [self.weigh(query, rank) for rank in ranks]
        notes: list[str] = []
        if not all(map(math.isfinite, map(sum, rows))):
            rows, notes = self._neutralise(rows, ranks)
        totals_s, terms_s = map(math.fsum, rows), chain.from_iterable(rows)
        costs = build_table(query, ranks, totals_s, term_names=self.term_names, terms_s=terms_s)
        tied = [costs.targets[place] for place in find_tied(costs.totals_s)]
        target = break_tie(tied, query, seed)
        return Choice(target=target, costs=costs, tied_count=len(tied), notes=tuple(notes))

    def weigh(self, query: PlacementQuery, rank: RankView) -> list[float]:
        """Seconds by term, weights applied."""
        return [weight * cost_s(query, rank) for weight, cost_s in self._costs]

    def total_s(self, query: PlacementQuery, rank: RankView) -> float:
        """The figure that `choose` compares."""
        return math.fsum(self.weigh(query, rank))

    def _neutralise(
        self, rows: Sequence[Sequence[float]], ranks: Sequence[RankView]
    ) -> tuple[list[tuple[float, ...]], list[str]]:
        """Finite costs instead of those that are none, and what to tell about them."""
        columns = [array("d", column) for column in zip(*rows, strict=True)]
        notes: list[str] = []
        for name, column in zip(self.term_names, columns, strict=True):
            notes += neutralise(name, column, ranks)
        return list(zip(*columns, strict=True)), notes


def neutralise(name: str, column: "array[float]", ranks: Sequence[RankView]) -> list[str]:
    """Replaces what is not a finite number by the term's highest finite cost; returns what to tell about it."""
    if all(map(math.isfinite, column)):
        return []
    highest_s = max((cost_s for cost_s in column if math.isfinite(cost_s)), default=0.0)
    notes = []
    for place, cost_s in enumerate(column):
        if not math.isfinite(cost_s):
            column[place] = highest_s
            notes.append(f"{name} of {ranks[place].target} was {cost_s}; counted as {highest_s:.3f} s")
    return notes
