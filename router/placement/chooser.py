"""One decision without its consequences: which ranks come into question, and what the policy makes of them.

Reads everything and changes nothing, so that it serves a request, a dry run and a shadow policy alike. A policy that
raises, or chooses a rank it was not given, is overruled and told of.
"""

from collections.abc import Sequence

import msgspec

from router.placement.question import Question
from router.placement.sheet import Sheet
from router.placement.shortlist import BoundedPolicy, Found, Shortlist
from router.placement.standings import Standings
from router.policy.admission import AdmissionTerm
from router.policy.base import Choice, PlacementQuery, Policy, RankView
from router.policy.baselines import LeastLoad
from router.policy.reuse import ReuseTerm
from router.policy.ties import find_tied
from wire.ids import Target

#: Of so few ranks all stand in the explanation, whether they could have won or not.
FEW_RANKS = 8
#: Longest work that is believed.
MAX_CHARGE_S = 86_400.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy chose."""

    choice: Choice
    #: The rank chosen: of a pair the one that generates.
    view: RankView
    #: Of a pair the one that prefills, and the seconds reckoned for the way between them.
    prefill: RankView | None = None
    transfer_s: float = 0.0
    #: What went wrong with the policy, in words; None where nothing did.
    failure: str | None = None
    #: Costs of all ranks of a small fleet; None where they all were looked at in turn, or are too many.
    sheet: Sheet | None = None


class Chooser:
    """Asks one policy."""

    def __init__(
        self, policy: Policy, standings: Standings, *, seed: int, is_exhaustive: bool, few_ranks: int = 0
    ) -> None:
        self.policy = policy
        self._standings = standings
        self._seed = seed
        self._bounded = policy if isinstance(policy, BoundedPolicy) and not is_exhaustive else None
        self._shortlist: Shortlist | None = None
        if self._bounded is not None:
            self._shortlist = Shortlist(self._bounded, standings, seed=seed, few_ranks=few_ranks)
        self._fallback = LeastLoad(policy.coefficients)
        self._reuse = ReuseTerm(policy.coefficients)
        self._admission = AdmissionTerm(policy.coefficients)

    def answer(self, question: Question) -> Answer:
        """The policy's choice; never raises, there is at least one rank."""
        found, failure = self._find_views(question)
        views = found.views
        choice: Choice | None = None
        if failure is None:
            try:
                choice = self._choose(question.query, found)
            except Exception as error:  # noqa: BLE001 - whatever a policy does, the request is placed
                failure = f"{type(error).__name__}: {error}"[:200]
        view = None if choice is None else _find_view(views, choice.target)
        if choice is not None and view is None:
            failure = f"it chose {choice.target}, which cannot be chosen"[:200]
        if choice is None or view is None:
            choice = self._overrule(question.query, views, failure)
            view = next(each for each in views if each.target == choice.target)
        if found.alike or found.passed_over:
            choice = _count_ties(choice, found)
        sheet = None if failure is not None else self._take_down(question, found)
        return Answer(choice=choice, view=view, failure=failure, sheet=sheet)

    def _take_down(self, question: Question, found: Found) -> Sheet | None:
        """What the costs of all ranks are reckoned from, in a small fleet of which few were looked at."""
        if self._bounded is None or not found.rows or question.eligible_count > FEW_RANKS:
            return None
        notes = tuple([question.note(self._standings, target) for target in question.find_eligible()])
        return Sheet(self._bounded, question.query, notes)

    def _choose(self, query: PlacementQuery, found: Found) -> Choice:
        if found.rows and self._bounded is not None:
            return self._bounded.choose_weighed(query, tuple(found.views), found.rows, self._seed)
        return self.policy.choose(query, tuple(found.views), self._seed)

    def _find_views(self, question: Question) -> tuple[Found, str | None]:
        if self._shortlist is None or question.eligible_count <= 1:
            return Found(self._find_all(question), [], {}), None
        try:
            return self._shortlist.find(question), None
        except Exception as error:  # noqa: BLE001 - as above
            return Found(self._find_all(question), [], {}), f"{type(error).__name__}: {error}"[:200]

    def _find_all(self, question: Question) -> list[RankView]:
        """Views of every rank that may be chosen."""
        return [question.view(self._standings, target) for target in question.find_eligible()]

    def _overrule(self, query: PlacementQuery, views: Sequence[RankView], failure: str | None) -> Choice:
        choice = self._fallback.choose(query, views, self._seed)
        reason = f"policy {self.policy.name} failed ({failure}) and was overruled; {choice.reason}"
        return msgspec.structs.replace(choice, reason=reason)

    def work_s(self, query: PlacementQuery, view: RankView) -> float:
        """Seconds of work that the request adds to the rank: prefill, or fetching where that is quicker."""
        step_s = query.prefill_ratio * view.prefill_ratio * self.policy.coefficients.prefill_step_s
        return _bound_s(step_s + self._reuse.cost_s(query, view))

    def ttft_s(self, query: PlacementQuery, view: RankView) -> float:
        """Seconds to the first token as predicted: work ahead, room to wait for, own work."""
        ahead_s = view.own_wait_s + view.foreign_wait_s + self._admission.cost_s(query, view)
        return _bound_s(ahead_s) + self.work_s(query, view)


def _bound_s(seconds: float) -> float:
    """Seconds that can be charged; what is no number counts nothing."""
    return min(seconds, MAX_CHARGE_S) if seconds > 0.0 else 0.0


def _count_ties(choice: Choice, found: Found) -> Choice:
    """The choice with all ranks counted that tied, also those that one stood for and those passed over."""
    targets, alike = choice.costs.targets, found.alike
    count = sum(alike.get(targets[place], 1) for place in find_tied(choice.costs.totals_s)) + found.passed_over
    return choice if count == choice.tied_count else msgspec.structs.replace(choice, tied_count=count)


def _find_view(views: Sequence[RankView], target: Target) -> RankView | None:
    return next((view for view in views if view.target == target), None)
