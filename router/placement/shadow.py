"""A second policy that scores live traffic without acting: what it would have chosen, and how much dearer that is."""

from router.placement.audit import Audit
from router.placement.chooser import Answer, Chooser
from router.placement.decision import Opinion
from router.placement.question import Question
from router.placement.shortlist import BoundedPolicy
from router.policy.base import Policy


class Shadow:
    """Asks a second policy and keeps count."""

    def __init__(self, chooser: Chooser, audit: Audit) -> None:
        self._chooser = chooser
        self._audit = audit

    def judge(self, question: Question, acting: Policy, answer: Answer) -> Opinion:
        """The second policy's choice beside the one that counts."""
        other = self._chooser.answer(question)
        if other.failure is not None:
            self._audit.shadow.failed += 1
        excess_s = None
        if isinstance(acting, BoundedPolicy):
            excess_s = _find_excess_s(acting, question, answer, other)
        target = other.choice.target
        self._audit.record_shadow(agrees=target == answer.choice.target, excess_s=excess_s)
        return Opinion(policy=self._chooser.policy.name, target=target, excess_s=excess_s)


def _find_excess_s(acting: BoundedPolicy, question: Question, answer: Answer, other: Answer) -> float | None:
    try:
        return acting.total_s(question.query, other.view) - acting.total_s(question.query, answer.view)
    except (ArithmeticError, ValueError):
        return None
