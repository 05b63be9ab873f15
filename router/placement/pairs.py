"""Which ranks serve a request: one that does all of it, or a prefill rank and a decode rank chosen jointly.

Of a large pool of one leg only those are looked at that are cheapest by their own costs, and those that hold most of
the prompt: between two pools the way costs the same but for what need not travel. The pair is chosen among what is
left, by the sum of both legs and the transfer between them. A fleet that has both kinds gives the request to whichever
costs less. A policy without costs in seconds chooses each leg by itself.
"""

import copy
from collections.abc import Sequence

import msgspec

from router.fleet.view import Fleet
from router.placement.chooser import Chooser, Forecast, Selection, make_pricing
from router.placement.eligible import Candidates, LegPools
from router.placement.pricing import Pricing
from router.placement.question import Question
from router.placement.standings import Pool, Standings
from router.policy.base import Choice, PlacementQuery, Policy, RankView
from router.policy.cache_affinity import CacheAffinity
from router.policy.native import FEW_RANKS
from router.policy.pairs import (
    DECODE_TERMS,
    PREFILL_TERMS,
    FindLink,
    PairChoice,
    PairCost,
    PairPolicy,
    build_pair_table,
)
from router.policy.ties import pick_by_hash
from router.policy.transfer import DEFAULT_LINK, Link
from wire.ids import Target


class JointChooser:
    """Asks one policy for a rank or a pair."""

    def __init__(self, whole: Chooser, standings: Standings, fleet: Fleet, *, seed: int, is_exhaustive: bool) -> None:
        """Take what is asked.

        Args:
            whole: Asks the policy for ranks that do everything.
            standings: Views of all ranks.
            fleet: Their facts.
            seed: Of ties.
            is_exhaustive: Look at every rank of a leg.
        """
        self.whole = whole
        self.policy = whole.policy
        self._seed = seed
        self._pairs = _make_pairs(whole, standings, fleet, seed=seed, is_exhaustive=is_exhaustive)

    def select(self, question: Question, candidates: Candidates) -> Selection:
        """The choice; never raises, there is at least one rank or pair."""
        if not candidates.legs:
            return self.whole.select(question)
        if candidates.whole and not isinstance(self.policy, CacheAffinity):
            candidates = self._draw(question, candidates)
        selections: list[Selection] = [self._pairs.select(question, legs) for legs in candidates.legs]
        if candidates.whole:
            selections.append(self.whole.select(msgspec.structs.replace(question, pools=candidates.whole)))
        return min(selections, key=lambda selection: min(selection.choice.costs.totals_s))

    def _draw(self, question: Question, candidates: Candidates) -> Candidates:
        """Whole ranks or pairs, where the policy's figures cannot be compared: as often as there are ranks of each."""
        drawn = pick_by_hash(f"{question.query.request_id}\0kind", question.find_eligible(), self._seed)
        is_whole = any(drawn in pool.targets for pool in candidates.whole)
        return Candidates(whole=candidates.whole) if is_whole else Candidates(legs=candidates.legs)

    def foretell(self, query: PlacementQuery, selection: Selection) -> Forecast:
        """What the request will take where it goes."""
        if selection.prefill is None:
            return self.whole.foretell(query, selection.seat)
        forecast = self.whole.foretell(query, selection.prefill)
        return Forecast(forecast.work_s, forecast.ttft_s + selection.transfer_s)


class _PairChooser:
    """Pairs by their cost in seconds."""

    def __init__(
        self,
        whole: Chooser,
        policy: CacheAffinity,
        standings: Standings,
        fleet: Fleet,
        *,
        seed: int,
        is_exhaustive: bool,
    ) -> None:
        self._policy = PairPolicy(policy.weights, policy.coefficients)
        self._whole = whole
        self._find_link = _link_by_zone(fleet, policy.coefficients.cross_zone_factor)
        self._seed = seed
        self._prefills, self._decodes = (
            make_pricing(_keep_terms(policy, terms), standings, seed=seed, is_exhaustive=is_exhaustive)
            for terms in (PREFILL_TERMS, DECODE_TERMS)
        )

    def select(self, question: Question, legs: LegPools) -> Selection:
        """The cheapest pair of one engine."""
        prefills = self._find_views(self._prefills, question, legs.prefills)
        decodes = self._find_views(self._decodes, question, legs.decodes)
        chosen = self._policy.choose(question.query, prefills, decodes, self._seed, find_link=self._find_link)
        decode = next(view for view in decodes if view.target == chosen.decode)
        prefill = next(view for view in prefills if view.target == chosen.prefill)
        return Selection(
            choice=_to_choice(chosen, prefills, question.query),
            seat=self._whole.sit(question.query, decode),
            prefill=self._whole.sit(question.query, prefill),
            transfer_s=_find_pair(chosen).terms[self._policy.transfer_name],
        )

    def _find_views(self, pricing: Pricing | None, question: Question, pools: Sequence[Pool]) -> list[RankView]:
        views: list[RankView] = []
        for pool in pools:
            leg = msgspec.structs.replace(question, pools=(pool,))
            few = None if pricing is None else _find_few(pricing, leg)
            views += [self._whole.view(leg, target) for target in few or leg.find_eligible()]
        return views


def _find_few(pricing: Pricing, leg: Question) -> dict[Target, None] | None:
    """Ranks that cost least by themselves, and those whose share of the prompt need not travel; None stands for all."""
    priced = None if leg.eligible_count <= FEW_RANKS else pricing.price(leg)
    if priced is None:
        return None
    return dict.fromkeys((*priced[0].costs.targets, *filter(leg.allows, leg.find_holders())))


class _LegChooser:
    """Each leg by itself, for policies without costs in seconds."""

    def __init__(self, policy: Policy, standings: Standings, *, seed: int) -> None:
        # One that takes turns takes them among the ranks of each leg.
        self._prefill, self._decode = (
            Chooser(copy.deepcopy(policy), standings, seed=seed, is_exhaustive=True) for _ in range(2)
        )

    def select(self, question: Question, legs: LegPools) -> Selection:
        """What the policy chooses for either leg."""
        prefill = self._prefill.select(msgspec.structs.replace(question, pools=legs.prefills))
        decode = self._decode.select(msgspec.structs.replace(question, pools=legs.decodes))
        words = f"prefill on {prefill.seat.target}, decode on {decode.seat.target}: each leg's own choice"
        return Selection(
            choice=msgspec.structs.replace(decode.choice, reason=words),
            seat=decode.seat,
            prefill=prefill.seat,
            failure=prefill.failure or decode.failure,
        )


def _make_pairs(
    whole: Chooser, standings: Standings, fleet: Fleet, *, seed: int, is_exhaustive: bool
) -> _PairChooser | _LegChooser:
    policy = whole.policy
    if isinstance(policy, CacheAffinity):
        return _PairChooser(whole, policy, standings, fleet, seed=seed, is_exhaustive=is_exhaustive)
    return _LegChooser(policy, standings, seed=seed)


def _keep_terms(policy: CacheAffinity, names: frozenset[str]) -> CacheAffinity:
    """The policy with the terms of one leg alone."""
    others = {name: 0.0 for name in type(policy.weights).model_fields if name not in names}
    return CacheAffinity(policy.weights.model_copy(update=others), policy.coefficients)


def _link_by_zone(fleet: Fleet, cross_zone_factor: float) -> FindLink:
    """Ranks whose zones are both known and differ are further from each other."""
    across = Link(topology_factor=cross_zone_factor)

    def find(prefill: Target, decode: Target) -> Link:
        zones = [None if (rank := fleet.find(target)) is None else rank.facts.zone for target in (prefill, decode)]
        return across if None not in zones and zones[0] != zones[1] else DEFAULT_LINK

    return find


def _find_pair(chosen: PairChoice) -> PairCost:
    return next(pair for pair in chosen.pairs if (pair.prefill, pair.decode) == (chosen.prefill, chosen.decode))


def _to_choice(chosen: PairChoice, prefills: Sequence[RankView], query: PlacementQuery) -> Choice:
    """The pairs as a table, and in words what decided."""
    held = {view.target: view for view in prefills}
    return Choice(
        target=chosen.decode,
        costs=build_pair_table(chosen.pairs, held, query.home),
        tied_count=chosen.tied_count,
        reason=_explain(chosen, held[chosen.prefill], query),
    )


def _explain(chosen: PairChoice, prefill: RankView, query: PlacementQuery) -> str:
    pair = _find_pair(chosen)
    words = (
        f"prefill on {pair.prefill}, which holds {prefill.overlap_tokens:,} of {query.prompt_tokens:,} prompt tokens, "
        f"decode on {pair.decode}; {pair.total_s * 1e3:.0f} ms in all, {pair.terms['transfer'] * 1e3:.0f} ms of it "
        "for the transfer"
    )
    if chosen.tied_count > 1:
        return f"{words}; {chosen.tied_count} pairs cost about as much"
    others = [other for other in chosen.pairs if other is not pair]
    if not others:
        return f"{words}; there is no other pair"
    runner_up = min(others, key=lambda other: other.total_s)
    return f"{words}; the next best {runner_up.prefill} > {runner_up.decode} {runner_up.total_s * 1e3:.0f} ms"
