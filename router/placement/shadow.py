"""A second policy that scores live traffic without acting: what it would have chosen, and how much dearer that is.

It is asked within the decision, so that it sees what the acting policy saw, and its time is the request's time. So
it is kept to a share of the time: after each choice it is left alone for a while that grows with what that took.
"""

from collections.abc import Callable

from router.placement.audit import Audit
from router.placement.chooser import Chooser, Selection
from router.placement.decision import Opinion
from router.placement.question import Question
from router.policy.base import Policy
from router.policy.cache_affinity import CacheAffinity

#: Most of the time that a second policy takes.
MAX_SHARE = 0.1


class Shadow:
    """Asks a second policy and keeps count."""

    def __init__(self, chooser: Chooser, audit: Audit, timer: Callable[[], float] | None = None) -> None:
        """Start with nothing taken.

        Args:
            chooser: Asks the policy.
            audit: Where is counted.
            timer: Tells what a choice took, in seconds; None lets the policy judge every request.
        """
        self._chooser = chooser
        self._audit = audit
        self._timer = timer
        #: Placement's time from which on it may be asked again.
        self._rests_until_s = float("-inf")

    def judge(self, question: Question, acting: Policy, selection: Selection) -> Opinion | None:
        """The second policy's choice beside the one that counts; None where it is not asked, or fails."""
        if question.now_s < self._rests_until_s:
            self._audit.shadow.skipped += 1
            return None
        started_s = 0.0 if self._timer is None else self._timer()
        try:
            opinion = self._ask(question, acting, selection)
        except Exception:  # noqa: BLE001 - whatever it does, the request is placed
            self._audit.shadow.failed += 1
            opinion = None
        if self._timer is not None:
            taken_s = max(0.0, self._timer() - started_s)
            self._rests_until_s = question.now_s + taken_s * (1.0 / MAX_SHARE - 1.0)
        return opinion

    def _ask(self, question: Question, acting: Policy, selection: Selection) -> Opinion:
        other = self._chooser.select(question)
        excess_s = None
        if isinstance(acting, CacheAffinity):
            excess_s = self._find_excess_s(acting, question, selection, other)
        target = other.choice.target
        if other.failure is None:
            self._audit.record_shadow(agrees=target == selection.choice.target, excess_s=excess_s)
        else:
            self._audit.shadow.failed += 1
        return Opinion(policy=self._chooser.policy.name, target=target, excess_s=excess_s)

    def _find_excess_s(
        self, acting: CacheAffinity, question: Question, selection: Selection, other: Selection
    ) -> float | None:
        views = [self._chooser.view(question, each.choice.target) for each in (selection, other)]
        try:
            acted_s, other_s = (acting.total_s(question.query, view) for view in views)
        except (ArithmeticError, ValueError):
            return None
        return other_s - acted_s
