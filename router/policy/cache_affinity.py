"""The cost policy: every candidate gets one cost in seconds, a sum of named terms; the lowest wins.

There is no switch between looking at caches and looking at load: a session stays where its cache is until the wait
there costs more than computing its prompt anew elsewhere.
"""

import math
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Protocol

from router.config_policy import Coefficients, PolicyName, PolicyWeights
from router.policy.admission import AdmissionTerm
from router.policy.balance import BalanceTerm
from router.policy.base import Choice, CostTable, PlacementQuery, RankView, build_table
from router.policy.decode import DecodeTerm
from router.policy.glance import Glance, Sketch, Stakes
from router.policy.prefill import prefill_s
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
        self._reuse = ReuseTerm(coefficients)
        self._spread = SpreadTerm(coefficients)
        terms: tuple[tuple[float, CostTerm], ...] = (
            (weights.wait, WaitTerm()),
            (weights.admission, AdmissionTerm(coefficients)),
            (weights.reuse, self._reuse),
            (weights.stall, StallTerm(coefficients)),
            (weights.decode, DecodeTerm(coefficients)),
            (weights.returns, ReturnsTerm(coefficients)),
            (weights.balance, BalanceTerm(coefficients)),
            (weights.settle, SettleTerm(coefficients)),
            (weights.spread, self._spread),
        )
        self._costs = tuple((weight, term.cost_s) for weight, term in terms if weight > 0)
        self._term_names = tuple(term.name for weight, term in terms if weight > 0)
        self._glance = Glance(weights, coefficients)

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """The cheapest rank; ties go home, else by a hash of the request."""
        return self.choose_weighed(query, ranks, [self.weigh(query, rank) for rank in ranks], seed)

    def weigh(self, query: PlacementQuery, rank: RankView) -> list[float]:
        """Seconds by term, weights applied."""
        return [weight * cost_s(query, rank) for weight, cost_s in self._costs]

    def choose_weighed(
        self, query: PlacementQuery, ranks: Sequence[RankView], rows: Sequence[Sequence[float]], seed: int
    ) -> Choice:
        """The same where the costs of each rank are reckoned already."""
        costs, notes = self._tabulate(query, ranks, rows)
        if len(ranks) == 1:
            return Choice(target=ranks[0].target, costs=costs, notes=tuple(notes))
        tied = [costs.targets[place] for place in find_tied(costs.totals_s)]
        target = break_tie(tied, query, seed)
        return Choice(target=target, costs=costs, tied_count=len(tied), notes=tuple(notes))

    def tabulate(self, query: PlacementQuery, ranks: Sequence[RankView]) -> CostTable:
        """What each rank costs, as `choose` compares it."""
        return self._tabulate(query, ranks, [self.weigh(query, rank) for rank in ranks])[0]

    def _tabulate(
        self, query: PlacementQuery, ranks: Sequence[RankView], rows: Sequence[Sequence[float]]
    ) -> tuple[CostTable, list[str]]:
        notes: list[str] = []
        if not all(map(math.isfinite, map(sum, rows))):
            rows, notes = self._neutralise(rows, ranks)
        totals_s, terms_s = map(math.fsum, rows), chain.from_iterable(rows)
        return build_table(query, ranks, totals_s, term_names=self._term_names, terms_s=terms_s), notes

    def _neutralise(
        self, rows: Sequence[Sequence[float]], ranks: Sequence[RankView]
    ) -> tuple[list[tuple[float, ...]], list[str]]:
        """Finite costs instead of those that are none, and what to tell about them."""
        columns = [array("d", column) for column in zip(*rows, strict=True)]
        notes: list[str] = []
        for name, column in zip(self._term_names, columns, strict=True):
            notes += neutralise(name, column, ranks)
        return list(zip(*columns, strict=True)), notes

    # What lets most ranks of a large fleet be passed over unseen.

    @property
    def wait_weight(self) -> float:
        """Factor on seconds of work ahead."""
        return self.weights.wait

    @property
    def reuse_weight(self) -> float:
        """Factor on seconds of prefill."""
        return self.weights.reuse

    @property
    def stall_weight(self) -> float:
        """Factor on the same, once more for each request served beside."""
        return self.weights.stall

    def total_s(self, query: PlacementQuery, rank: RankView) -> float:
        """The figure that `choose` compares."""
        return math.fsum(self.weigh(query, rank))

    def sketch(self, rank: RankView) -> Sketch:
        """A rank in numbers, its wait left out."""
        return self._glance.sketch(rank)

    def stakes(self, query: PlacementQuery, overlap_tokens: int) -> Stakes:
        """A query in numbers, where at most so much of its prompt lies on a rank."""
        return self._glance.stakes(query, overlap_tokens)

    def least_reuse_s(self, query: PlacementQuery, overlap_tokens: int, prefill_ratio: float) -> float:
        """Seconds of term `reuse`, less the largest credit, where at most so much lies, at a worker's pace."""
        held_tokens = min(overlap_tokens, max(0, query.prompt_tokens - 1))
        uncached_tokens, ratio = query.prompt_tokens - held_tokens, query.prefill_ratio * prefill_ratio
        reuse_s = ratio * prefill_s(uncached_tokens, query.prompt_tokens, self.coefficients, query.attention_ratio)
        return self.weights.reuse * reuse_s - self.most_credit_s(query)

    def most_credit_s(self, query: PlacementQuery) -> float:
        """Largest credit, which costs at a glance leave out."""
        return self.weights.spread * self._spread.most_credit_s(query)


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
