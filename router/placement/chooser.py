"""One decision without its consequences: which ranks come into question, and what the policy makes of them.

Reads everything and changes nothing, so that it serves a request, a dry run and a shadow policy alike. A policy that
raises, or chooses a rank it was not given, is overruled and told of.
"""

from collections.abc import Sequence

import msgspec

from router.placement.pricing import Pricing
from router.placement.question import Question
from router.placement.standings import Standings
from router.policy.admission import AdmissionTerm
from router.policy.base import Choice, PlacementQuery, Policy, RankView, Seat
from router.policy.baselines import LeastLoad
from router.policy.cache_affinity import CacheAffinity
from router.policy.native import pricing_available
from router.policy.reuse import ReuseTerm
from wire.ids import Target

#: Longest work that is believed.
MAX_CHARGE_S = 86_400.0


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy chose."""

    choice: Choice
    #: On the rank chosen: of a pair the one that generates.
    seat: Seat
    #: Of a pair on the one that prefills, and the seconds reckoned for the way between them.
    prefill: Seat | None = None
    transfer_s: float = 0.0
    #: What went wrong with the policy, in words; None where nothing did.
    failure: str | None = None


class Forecast(msgspec.Struct, frozen=True):
    """What a request is expected to take."""

    #: Seconds of work that it adds to the rank which prefills: prefill, or fetching where that is quicker.
    work_s: float
    #: Seconds to its first token: work ahead, room to wait for, own work.
    ttft_s: float


class Chooser:
    """Asks one policy."""

    def __init__(self, policy: Policy, standings: Standings, *, seed: int, is_exhaustive: bool) -> None:
        self.policy = policy
        self._standings = standings
        self._seed = seed
        self._pricing = make_pricing(policy, standings, seed=seed, is_exhaustive=is_exhaustive)
        self._step_s = policy.coefficients.prefill_step_s
        self._fallback = LeastLoad(policy.coefficients)
        self._reuse = ReuseTerm(policy.coefficients)
        self._admission = AdmissionTerm(policy.coefficients)

    def select(self, question: Question) -> Selection:
        """The policy's choice; never raises, there is at least one rank."""
        if self._pricing is None:
            return self._ask(question)
        try:
            priced = self._pricing.choose(question)
        except Exception as error:  # noqa: BLE001 - whatever a policy does, the request is placed
            return self._overrule(question.query, self._find_views(question), _describe(error))
        if priced is None:
            return self._ask(question)
        choice, seat = priced
        return Selection(choice=choice, seat=seat or self.sit(question.query, self.view(question, choice.target)))

    def _ask(self, question: Question) -> Selection:
        """The policy's choice, shown a view of every rank that may be chosen."""
        views = self._find_views(question)
        try:
            choice = self.policy.choose(question.query, tuple(views), self._seed)
        except Exception as error:  # noqa: BLE001 - as above
            return self._overrule(question.query, views, _describe(error))
        view = _find_view(views, choice.target)
        if view is None:
            failure = f"it chose {choice.target}, which cannot be chosen"[:200]
            return self._overrule(question.query, views, failure)
        return Selection(choice=choice, seat=self.sit(question.query, view))

    def _find_views(self, question: Question) -> list[RankView]:
        return [self.view(question, target) for target in question.find_eligible()]

    def view(self, question: Question, target: Target) -> RankView:
        """A rank as the policy sees it."""
        return question.view(self._standings, target)

    def _overrule(self, query: PlacementQuery, views: Sequence[RankView], failure: str) -> Selection:
        choice = self._fallback.choose(query, views, self._seed)
        reason = f"policy {self.policy.name} failed ({failure}) and was overruled; {choice.reason}"
        view = next(each for each in views if each.target == choice.target)
        seat = self.sit(query, view)
        return Selection(choice=msgspec.structs.replace(choice, reason=reason), seat=seat, failure=failure)

    def sit(self, query: PlacementQuery, view: RankView) -> Seat:
        """What a request meets on a rank."""
        return Seat(
            view.target,
            view.overlap_tokens,
            view.predicted_overlap_tokens,
            view.open_requests,
            view.served_requests,
            view.prefill_ratio,
            view.own_wait_s + view.foreign_wait_s,
            self._reuse.cost_s(query, view),
            self._admission.cost_s(query, view),
            bool(view.options),
        )

    def foretell(self, query: PlacementQuery, seat: Seat) -> Forecast:
        """What the request will take there."""
        step_s = query.prefill_ratio * seat.prefill_ratio * self._step_s
        work_s = _bound_s(step_s + seat.reuse_s)
        return Forecast(work_s, _bound_s(seat.wait_s + seat.admission_s) + work_s)


def make_pricing(policy: Policy, standings: Standings, *, seed: int, is_exhaustive: bool) -> Pricing | None:
    """Prices of the cost policy, where they can be had of all ranks at once and no view of each is wanted."""
    # One made from the cost policy may weigh otherwise, and is asked itself.
    if is_exhaustive or not pricing_available() or type(policy) is not CacheAffinity:
        return None
    return Pricing(policy, standings, seed=seed)


def _bound_s(seconds: float) -> float:
    """Seconds that can be charged; what is no number counts nothing."""
    return min(seconds, MAX_CHARGE_S) if seconds > 0.0 else 0.0


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _find_view(views: Sequence[RankView], target: Target) -> RankView | None:
    return next((view for view in views if view.target == target), None)
