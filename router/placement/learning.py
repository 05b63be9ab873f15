"""Which of a request's times teach the paces, and what they are held against. Pure.

A first token with nothing ahead of it is a prefill; the rest of a stream is its steps. What shares its rank, or comes
whole, gives bounds (`router.placement.spans`). The end of a request teaches only where it is a good one, and not where
it has several answers: nobody knows how many steps they took.
"""

from router.config.policy import Coefficients
from router.fleet.view import Fleet
from router.placement.ledger import Ledger
from router.placement.paces import Paces, predict_step, record_decode, record_prefill
from router.placement.reservation import Reservation, StepParts
from router.placement.spans import GoodEnd, Spans
from router.placement.stimuli import Outcome, RequestEnded
from wire.ids import Target

#: Part of a stream for which its client may be waited for: beyond, its time tells of the client and not of the engine.
MAX_HELD_RATIO = 0.05


class PaceLearning:
    """Watches requests from their charge to their end."""

    def __init__(self, *, paces: Paces, fleet: Fleet, ledger: Ledger, costs: Coefficients) -> None:
        self._paces = paces
        self._fleet = fleet
        self._ledger = ledger
        self._costs = costs
        self._spans = Spans(paces, costs)

    def change_policy(self, costs: Coefficients) -> None:
        """Other coefficients hold from now on."""
        self._costs = self._spans.costs = costs

    def begin(self, entry: Reservation, *, is_clean: bool) -> None:
        """See `Spans.begin`."""
        self._spans.begin(entry, is_clean=is_clean)

    def start_decode(self, running: Reservation, cached_tokens: int | None, now_s: float) -> None:
        """The first token of a stream came, and counts as generating in the ledger."""
        running.first_step = self._predict_step(running.target)
        record_prefill(self._paces, running, cached_tokens=cached_tokens, now_s=now_s, costs=self._costs)
        self._spans.see_first_token(running, self._fleet.find(running.target), now_s)

    def end_leg(self, leg: Reservation, cached_tokens: int | None, now_s: float) -> None:
        """A prefill leg ended well."""
        record_prefill(self._paces, leg, cached_tokens=cached_tokens, now_s=now_s, costs=self._costs)

    def end(self, running: Reservation, end: RequestEnded, now_s: float) -> None:
        """A request is over, and still charged."""
        good, tokens = None, end.output_tokens
        if end.outcome is Outcome.DONE and end.answers == 1 and tokens is not None:
            good = GoodEnd(tokens, end.cached_tokens, end.whole_at_s)
            first_s = running.first_token_at_s
            if first_s is not None and end.held_s <= MAX_HELD_RATIO * (now_s - first_s):
                last_step = self._predict_step(running.target)
                record_decode(self._paces, running, last_step=last_step, output_tokens=tokens, now_s=now_s)
        self._spans.end(running, self._fleet.find(running.target), good, now_s)

    def forget(self, target: Target) -> None:
        """The rank is gone, and all that was on it."""
        self._spans.forget(target)

    def check_invariants(self) -> None:
        """Raises AssertionError where a request is watched that is not charged."""
        stray = [name for name in self._spans.names() if name not in self._ledger]
        if stray:
            raise AssertionError(f"watched and not charged: {stray}")

    def _predict_step(self, target: Target) -> StepParts:
        rank = self._fleet.find(target)
        capacity_tokens = None if rank is None else rank.find_capacity_tokens()
        return predict_step(*self._ledger.find_decoding(target), capacity_tokens, self._costs)
