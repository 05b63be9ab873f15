"""The cost policy: every candidate gets one cost in seconds, a sum of named terms; the lowest wins.

There is no switch between looking at caches and looking at load: a session stays where its cache is until the wait
there costs more than computing its prompt anew elsewhere.
"""

import math
from array import array
from collections.abc import Sequence
from typing import Protocol

from router.config import Coefficients, PolicyName, PolicyWeights
from router.policy.balance import BalanceTerm
from router.policy.base import Choice, PlacementQuery, RankView, build_table
from router.policy.decode import DecodeTerm
from router.policy.reuse import ReuseTerm
from router.policy.ties import break_tie, find_tied
from router.policy.wait import WaitTerm


class CostTerm(Protocol):
    """One reason why a candidate costs something."""

    name: str

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds; finite and at least 0 for sane input."""
        ...


class CacheAffinity:
    """Weighted sum of cost terms. A weight of 0 leaves its term out."""

    name = PolicyName.CACHE_AFFINITY.value

    def __init__(self, weights: PolicyWeights, coefficients: Coefficients) -> None:
        self.coefficients = coefficients
        terms: tuple[tuple[float, CostTerm], ...] = (
            (weights.wait, WaitTerm()),
            (weights.reuse, ReuseTerm(coefficients)),
            (weights.decode, DecodeTerm(coefficients)),
            (weights.balance, BalanceTerm(coefficients)),
        )
        self._terms = tuple((weight, term) for weight, term in terms if weight > 0)
        self._term_names = tuple(term.name for _, term in self._terms)

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """The cheapest rank; ties go home, else by a hash of the request."""
        columns = tuple(
            array("d", [weight * term.cost_s(query, rank) for rank in ranks]) for weight, term in self._terms
        )
        notes: list[str] = []
        for name, column in zip(self._term_names, columns, strict=True):
            notes += neutralise(name, column, ranks)
        totals_s = map(sum, zip(*columns, strict=True)) if columns else [0.0] * len(ranks)
        costs = build_table(query, ranks, totals_s, term_names=self._term_names, terms_s=columns)
        tied = [costs.targets[place] for place in find_tied(costs.totals_s)]
        target = break_tie(tied, query, seed)
        return Choice(target=target, costs=costs, tied_count=len(tied), notes=tuple(notes))


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
