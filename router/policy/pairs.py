"""A prefill rank and a decode rank for one request, chosen jointly.

    cost = prefill leg: wait + reuse + balance
         + transfer:    what the decode rank lacks, over the link between the two
         + decode leg:  admission + decode

Neither leg is chosen first: a decode rank that holds the prompt saves a transfer, a prefill rank near it a long way.
The lowest sum wins; sums within the tie window are tied, and the session's home (a decode rank) wins, else a hash of
the request over pairs.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence

import msgspec

from router.config.policy import Coefficients, PolicyWeights
from router.policy.admission import AdmissionTerm
from router.policy.balance import BalanceTerm
from router.policy.base import CostTable, PlacementQuery, RankView
from router.policy.cache_affinity import CostTerm
from router.policy.decode import DecodeTerm
from router.policy.reuse import ReuseTerm
from router.policy.ties import find_tied, hash_to_target
from router.policy.transfer import DEFAULT_LINK, Link, TransferTerm
from router.policy.wait import WaitTerm
from wire.ids import Target

FindLink = Callable[[Target, Target], Link]
#: Weights of the terms that a prefill leg has, and of those that a decode leg has.
PREFILL_TERMS = frozenset({"wait", "reuse", "balance"})
DECODE_TERMS = frozenset({"admission", "decode"})


class PairCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one pair was reckoned to cost."""

    prefill: Target
    decode: Target
    #: Seconds by term, weights applied.
    terms: dict[str, float]
    total_s: float


class PairChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The pair chosen, and every pair with its cost."""

    prefill: Target
    decode: Target
    pairs: tuple[PairCost, ...]
    #: Pairs whose cost was too close to tell them apart.
    tied_count: int


class PairPolicy:
    """Chooses both legs at once. A weight of 0 leaves its term out."""

    def __init__(self, weights: PolicyWeights, coefficients: Coefficients) -> None:
        self._prefill_terms: tuple[tuple[float, CostTerm], ...] = (
            (weights.wait, WaitTerm()),
            (weights.reuse, ReuseTerm(coefficients)),
            (weights.balance, BalanceTerm(coefficients)),
        )
        self._decode_terms: tuple[tuple[float, CostTerm], ...] = (
            (weights.admission, AdmissionTerm(coefficients)),
            (weights.decode, DecodeTerm(coefficients)),
        )
        self._transfer_weight, self._transfer = weights.transfer, TransferTerm(coefficients)

    @property
    def transfer_name(self) -> str:
        """Name of the term between the legs."""
        return self._transfer.name

    def choose(
        self,
        query: PlacementQuery,
        prefills: Sequence[RankView],
        decodes: Sequence[RankView],
        seed: int,
        *,
        find_link: FindLink = lambda _prefill, _decode: DEFAULT_LINK,
    ) -> PairChoice:
        """The cheapest pair.

        Args:
            query: What is placed; `home` is where the session's turns were generated.
            prefills: Ranks that may prefill, at least one.
            decodes: Ranks that may generate, at least one.
            seed: Decides ties.
            find_link: The way from a prefill rank to a decode rank.

        Cost: terms of a leg once a rank, the transfer once a pair.
        """
        before = [_weigh(self._prefill_terms, query, rank) for rank in prefills]
        after = [_weigh(self._decode_terms, query, rank) for rank in decodes]
        pairs = []
        for prefill, prefill_terms in zip(prefills, before, strict=True):
            for decode, decode_terms in zip(decodes, after, strict=True):
                link = find_link(prefill.target, decode.target)
                transfer_s = self._transfer_weight * self._transfer.pair_cost_s(query, prefill, decode, link)
                terms = {**prefill_terms, self._transfer.name: transfer_s, **decode_terms}
                cost = PairCost(prefill=prefill.target, decode=decode.target, terms=terms, total_s=sum(terms.values()))
                pairs.append(cost)
        tied = [pairs[place] for place in find_tied(array("d", [pair.total_s for pair in pairs]))]
        chosen = _break_tie(tied, query, seed)
        return PairChoice(prefill=chosen.prefill, decode=chosen.decode, pairs=tuple(pairs), tied_count=len(tied))


def _weigh(terms: Sequence[tuple[float, CostTerm]], query: PlacementQuery, rank: RankView) -> dict[str, float]:
    return {term.name: weight * term.cost_s(query, rank) for weight, term in terms}


def _break_tie(tied: Sequence[PairCost], query: PlacementQuery, seed: int) -> PairCost:
    at_home = [pair for pair in tied if pair.decode == query.home]

    def weigh(pair: PairCost) -> tuple[int, Target, Target]:
        key = f"{query.request_id}\0{pair.decode}"
        return hash_to_target(key, pair.prefill, seed), pair.prefill, pair.decode

    return max(at_home or tied, key=weigh)


def build_pair_table(pairs: Sequence[PairCost], prefills: Mapping[Target, RankView], home: Target | None) -> CostTable:
    """The pairs as the candidates of a decision, one row each.

    Args:
        pairs: At least one.
        prefills: Views of the ranks that would prefill.
        home: The session's.
    """
    names = tuple(pairs[0].terms)
    views = [prefills[pair.prefill] for pair in pairs]
    return CostTable(
        tuple(pair.decode for pair in pairs),
        home,
        array("q", [view.overlap_tokens for view in views]),
        array("q", [view.predicted_overlap_tokens for view in views]),
        names,
        array("d", [pair.terms[name] for pair in pairs for name in names]),
        array("d", [pair.total_s for pair in pairs]),
        prefills=tuple(pair.prefill for pair in pairs),
    )
