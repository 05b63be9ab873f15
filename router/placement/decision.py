"""One decision as it can be asked for again, and the bounded ring that keeps the last of them."""

from collections import OrderedDict
from typing import Any

import msgspec

from router.placement.accuracy import Accuracy
from router.placement.audit import Audit, find_regret_s
from router.placement.explain import Telling
from router.policy.base import CandidateCost, CostTable
from wire.ids import RequestId, SessionId, Target

__all__ = ["CandidateCost", "Decision", "DecisionLog", "DecisionRecord"]


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What a second policy made of a request, without acting."""

    policy: str
    target: Target
    #: Seconds that its choice costs more by the acting policy's figures; None where that one has none.
    excess_s: float | None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request went and why."""

    request_id: RequestId
    decided_at_s: float
    #: Name of the policy that chose.
    policy: str
    model: str | None
    session: SessionId | None
    prompt_tokens: int
    #: Rank chosen; None where the request was refused.
    target: Target | None
    #: Rank that prefills for it; None where that one does so itself.
    prefill: Target | None = None
    #: Tokens confirmed resident on the rank that prefills. What siblings are expected to leave is not in it.
    predicted_cached_tokens: int
    #: Tokens more that requests being prefilled there were expected to leave.
    hoped_cached_tokens: int = 0
    #: Seconds to the first token as predicted: work ahead, room to wait for, own prefill.
    predicted_ttft_s: float = 0.0
    #: Ranks that could be chosen; those missing among the candidates cost no less than the cheapest of them.
    eligible_count: int = 0
    #: What a second policy would have chosen, without acting; None where there is none.
    shadow: Opinion | None = None
    #: In words, or what they are made from.
    telling: str | Telling
    #: What the cached tokens rest on: `exact`, `approximate`, or in words why they are fewer or none.
    credit: str = "exact"
    #: Costs of every rank of a small fleet, of a large one of those that come first; None where none could be chosen.
    costs: CostTable | None = None

    def with_shadow(self, opinion: Opinion) -> "Decision":
        """The decision with what a second policy made of it."""
        return msgspec.structs.replace(self, shadow=opinion)

    @property
    def reason(self) -> str:
        """In words."""
        if isinstance(self.telling, str):
            return self.telling
        return self.telling.tell()

    @property
    def candidates(self) -> tuple[CandidateCost, ...]:
        """Every rank of a small fleet; of a large one the chosen, the home and the cheapest."""
        return () if self.costs is None else self.costs.candidates()

    def find_regret_s(self, added_s: float) -> float | None:
        """Seconds by which another rank was cheaper, where the one chosen costs more than reckoned by so much."""
        if self.costs is None or self.target is None:
            return None
        return find_regret_s(self.costs, self.target, added_s)

    def to_json(self) -> dict[str, Any]:
        """Plain values, words and candidates spelled out."""
        kept = [name for name in self.__struct_fields__ if name not in {"costs", "telling"}]
        plain = {name: getattr(self, name) for name in kept}
        told = {**plain, "reason": self.reason, "candidates": self.candidates}
        return msgspec.to_builtins(told)  # type: ignore[no-any-return]


class DecisionRecord(msgspec.Struct, kw_only=True):
    """A decision and what came of it."""

    decision: Decision
    #: How many times a request of this id was decided; above 1 after retries.
    attempts: int = 1
    #: First token seen so long after the decision; None before.
    ttft_s: float | None = None
    #: Reuse that the engine reported; None before, or where it does not say.
    actual_cached_tokens: int | None = None
    #: How the prediction stood up; None before.
    accuracy: Accuracy | None = None
    #: Seconds by which another rank was cheaper, now that the real reuse is known; None before.
    regret_s: float | None = None
    #: How the request ended; None while it runs.
    outcome: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `GET /v1/decisions/{request_id}`."""
        plain = {name: getattr(self, name) for name in self.__struct_fields__ if name != "decision"}
        return {"decision": self.decision.to_json(), **msgspec.to_builtins(plain)}


class DecisionLog:
    """The last decisions by request id; the oldest goes when the ring is full."""

    def __init__(self, *, max_decisions: int, audit: Audit | None = None) -> None:
        self.audit = Audit() if audit is None else audit
        self._records: OrderedDict[RequestId, DecisionRecord] = OrderedDict()
        self._max_decisions = max_decisions

    def __len__(self) -> int:
        return len(self._records)

    def store(self, decision: Decision) -> None:
        """Keeps a decision; one for the same request id takes the place of the earlier."""
        earlier = self._records.pop(decision.request_id, None)
        attempts = 1 if earlier is None else earlier.attempts + 1
        self._records[decision.request_id] = DecisionRecord(decision=decision, attempts=attempts)
        while len(self._records) > self._max_decisions:
            self._records.popitem(last=False)

    def find(self, request_id: RequestId) -> DecisionRecord | None:
        """The latest decision for a request, None where it is unknown or forgotten."""
        return self._records.get(request_id)

    def find_latest(self, count: int) -> list[DecisionRecord]:
        """Up to `count` decisions, newest first."""
        latest = reversed(self._records.values())
        return [record for record, _ in zip(latest, range(count), strict=False)]

    def record_first_token(self, request_id: RequestId, ttft_s: float) -> None:
        """Notes the time to first token; the first call counts."""
        record = self._records.get(request_id)
        if record is not None and record.ttft_s is None:
            record.ttft_s = ttft_s
            self.audit.record_ttft(record.decision.predicted_ttft_s, ttft_s)

    def record_cached(self, request_id: RequestId, actual_cached_tokens: int, added_s: float | None = None) -> None:
        """Notes what the engine reused; the last call counts, for regret the first.

        Args:
            request_id: Whose.
            actual_cached_tokens: As the engine says.
            added_s: Cost that this adds to what was reckoned; None where the policy has no costs in seconds.
        """
        record = self._records.get(request_id)
        if record is None:
            return
        record.actual_cached_tokens = actual_cached_tokens
        decision = record.decision
        if added_s is None or record.regret_s is not None:
            return
        record.regret_s = decision.find_regret_s(added_s)
        if record.regret_s is not None:
            self.audit.regret_s.observe(record.regret_s)

    def record_accuracy(self, request_id: RequestId, accuracy: Accuracy) -> None:
        """Notes how the prediction stood up; the edge knows trust and races."""
        record = self._records.get(request_id)
        if record is not None:
            record.accuracy = accuracy
            self.audit.record_class(
                accuracy,
                predicted_tokens=record.decision.predicted_cached_tokens,
                actual_tokens=record.actual_cached_tokens,
                predicted_ttft_s=record.decision.predicted_ttft_s,
                actual_ttft_s=record.ttft_s,
            )

    def record_outcome(self, request_id: RequestId, outcome: str) -> None:
        """Notes how the request ended."""
        record = self._records.get(request_id)
        if record is not None:
            record.outcome = outcome
