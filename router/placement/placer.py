"""The placement state machine: stimuli in, instructions out. No clock, no chance, no input or output of its own.

A request's life, as seen here:

    RequestArrived ── Place ──> charged ── FirstToken ──> generating ── RequestEnded ──> gone
                  └─ Reject                   └──────────── RequestEnded ────────────────^

A rank that vanishes from the fleet ends its requests as lost. Stimuli for requests that are gone, or in a state that
the stimulus does not fit, change nothing and are counted: edges race, and a late word must never release a load twice.
"""

import copy
from collections.abc import Callable
from typing import Any, ClassVar

from router.placement.books import Books, Word
from router.placement.charge import make_charge
from router.placement.chooser import Chooser, Selection
from router.placement.clock import PlacementClock
from router.placement.decision import Decision, DecisionLog
from router.placement.eligible import Eligible, find_eligible
from router.placement.following import Following
from router.placement.homes import Home, is_broken, name_home
from router.placement.instructions import Instruction, Place, Reject, RejectReason
from router.placement.learning import PaceLearning
from router.placement.ledger import Ledger
from router.placement.legs import PrefillLegs, is_leg
from router.placement.pairs import JointChooser
from router.placement.question import MAX_TOKENS, Inquiry, Question
from router.placement.reservation import Reservation
from router.placement.settings import PlacerSettings, StimulusCounts
from router.placement.shadow import Shadow
from router.placement.stimuli import (
    FirstToken,
    FleetChanged,
    LoadReported,
    Outcome,
    OutputProgressed,
    PrefillEnded,
    RequestArrived,
    RequestEnded,
    Stimulus,
)
from router.placement.tell import tell_choice, tell_refusal
from router.policy.base import Policy
from router.policy.cache_affinity import CacheAffinity
from router.policy.prefill import prefill_s
from wire.ids import SessionId

__all__ = ["MAX_TOKENS", "Placer", "PlacerSettings", "StimulusCounts"]


class Placer:
    """Chooses a rank for each request and keeps count of what that leaves where."""

    def __init__(
        self,
        *,
        policy: Policy,
        rng_seed: int,
        settings: PlacerSettings | None = None,
        ledger: Ledger | None = None,
        shadow: Policy | None = None,
    ) -> None:
        self._settings = settings or PlacerSettings()
        self._seed = rng_seed
        self._books = Books(self._settings, Ledger() if ledger is None else ledger, policy.coefficients)
        self._standings = self._books.standings
        self.clock = PlacementClock()
        self._legs = PrefillLegs(self._books)
        self.fleet = self._books.fleet
        self.ledger = self._books.ledger
        self._learning = None
        if self._settings.learn_pace:
            costs = policy.coefficients
            self._learning = PaceLearning(paces=self._books.paces, fleet=self.fleet, ledger=self.ledger, costs=costs)
        self.homes = self._books.homes
        self.pins = self._books.pins
        self.breakers = self._books.breakers
        self.residency = self._books.residency
        self.decisions = DecisionLog(max_decisions=self._settings.max_decisions)
        self.ignored = StimulusCounts()
        self._inquiry = Inquiry(
            standings=self._books.standings,
            paces=self._books.paces,
            heads=self._books.heads,
            outputs=self.ledger.outputs,
        )
        self.change_policy(policy, shadow)

    def change_policy(self, policy: Policy, shadow: Policy | None = None) -> None:
        """Another policy from the next request on; what is charged stays charged."""
        # All that can fail comes first: a policy is changed whole or not at all.
        is_exhaustive, judge = self._settings.is_exhaustive, None
        chooser = self._ask_with(policy, is_exhaustive=is_exhaustive)
        if shadow is not None:
            asked = self._ask_with(shadow, is_exhaustive=is_exhaustive)
            judge = Shadow(asked.whole, self.decisions.audit, self._settings.shadow_timer)
        following = Following(policy, shadow)
        self._chooser, self._shadow, self._following = chooser, judge, following
        self._weights = policy.weights if isinstance(policy, CacheAffinity) else None
        self._costs = policy.coefficients
        self._books.change_policy(policy.coefficients)
        if self._learning is not None:
            self._learning.change_policy(policy.coefficients)

    def _ask_with(self, policy: Policy, *, is_exhaustive: bool) -> JointChooser:
        standings, seed = self._books.standings, self._seed
        whole = Chooser(policy, standings, seed=seed, is_exhaustive=is_exhaustive)
        return JointChooser(whole, standings, self.fleet, seed=seed, is_exhaustive=is_exhaustive)

    @property
    def policy(self) -> Policy:
        """The policy that acts."""
        return self._chooser.policy

    def handle(self, stimulus: Stimulus) -> tuple[Instruction, ...]:
        """Takes one stimulus in; only an arrival is answered with an instruction."""
        if isinstance(stimulus, LoadReported):
            now_s = self.clock.advance_by_report(stimulus.now_s)
        else:
            now_s = self.clock.advance(stimulus.now_s)
        self._standings.now_s = now_s
        if isinstance(stimulus, RequestArrived):
            return (self._arrive(stimulus, now_s),)
        self._takers.get(type(stimulus), Placer._take)(self, stimulus, now_s)
        return ()

    def _take(self, told: Word, now_s: float) -> None:
        self.ignored.unknown_targets += not self._books.take(told, now_s)

    def _report(self, report: LoadReported, now_s: float) -> None:
        self.ignored.unknown_targets += not self._books.report(report, now_s)

    # Arrivals

    def _arrive(self, arrival: RequestArrived, now_s: float) -> Instruction:
        if arrival.request_id in self.ledger:
            reason = RejectReason.DUPLICATE_REQUEST
            return Reject(arrival.request_id, reason, tell_refusal(self.policy, arrival, reason))
        self._books.sweep(now_s)
        pin = None if arrival.pin is None else self.pins.find(arrival.pin, now_s)
        eligible = find_eligible(self._books, self._settings, arrival, pin, now_s)
        arrival = eligible.arrival
        if eligible.refused is not None:
            decision = tell_refusal(self.policy, arrival, eligible.refused)
            self.decisions.store(decision)
            return Reject(arrival.request_id, eligible.refused, decision)
        conversation = _name(arrival)
        question, home = self._ask(eligible, conversation, now_s)
        self._following.arrive(arrival)
        selection = self._chooser.select(question, eligible.candidates)
        forecast = self._chooser.foretell(question.query, selection)
        decision = tell_choice(self.policy, eligible, question, selection, forecast=forecast, home=home)
        opinion = None
        if self._shadow is not None and not eligible.candidates.legs:
            opinion = self._shadow.judge(question, self.policy, selection)
        if opinion is not None:
            decision = decision.with_shadow(opinion)
        self.ignored.failed_choices += selection.failure is not None
        self._charge(arrival, question, selection, forecast.work_s, conversation)
        self.decisions.store(decision)
        return Place(arrival.request_id, selection.choice.target, decision, decision.prefill)

    def explain(self, arrival: RequestArrived) -> Decision:
        """The decision that an arrival would get now, every rank spelled out. Charges and remembers nothing."""
        now_s = self.clock.advance(arrival.now_s)
        self._books.sweep(now_s)
        pin = None if arrival.pin is None else self.pins.look_up(arrival.pin, now_s)
        eligible = find_eligible(self._books, self._settings, arrival, pin, now_s)
        arrival = eligible.arrival
        if eligible.refused is not None:
            return tell_refusal(self.policy, arrival, eligible.refused)
        question, home = self._ask(eligible, _name(arrival), now_s)
        # A policy that takes turns must not lose one.
        policy = copy.deepcopy(self.policy)
        Following(policy).arrive(arrival)
        chooser = self._ask_with(policy, is_exhaustive=True)
        selection = chooser.select(question, eligible.candidates)
        forecast = chooser.foretell(question.query, selection)
        return tell_choice(policy, eligible, question, selection, forecast=forecast, home=home)

    def _ask(self, eligible: Eligible, conversation: SessionId | None, now_s: float) -> tuple[Question, Home | None]:
        """The question, and the conversation's home whether it counts or not."""
        books, arrival, doubted = self._books, eligible.arrival, eligible.doubted
        self._standings.refresh(now_s)
        home = self.homes.look_up(conversation, now_s)
        is_cut = home is not None and (
            home.target in doubted
            or is_broken(
                home,
                prompt_tokens=arrival.prompt_tokens,
                chain_hashes=arrival.chain_hashes,
                block_tokens=arrival.chain_block_tokens,
            )
        )
        expected = self.residency.find(arrival.chain_hashes, arrival.chain_block_tokens, now_s)
        if doubted:
            expected = expected.without(doubted)
        question = self._inquiry.ask(
            arrival,
            eligible.candidates.homes,
            home=None if is_cut else home,
            live=None if conversation is None else books.live.find(conversation),
            expected=expected,
            mean_live_sessions=len(books.live) / (len(self.fleet) or 1),
            return_rate_per_s=books.live.return_rate_per_s,
            request_work_s=self.fleet.recent.request_work_s,
            credit_ratio=self._costs.predicted_credit_ratio,
            max_copies=self._costs.max_copies,
            now_s=now_s,
        )
        return question, home

    def _charge(
        self,
        arrival: RequestArrived,
        question: Question,
        selection: Selection,
        work_s: float,
        conversation: SessionId | None,
    ) -> None:
        query = question.query
        charge = make_charge(
            arrival, question, selection, work_s=work_s, conversation=conversation, origin=self._settings.origin
        )
        entry = charge.entry
        self._following.place(entry.request_id, entry.target, query.prompt_tokens - entry.assumed_cached_tokens)
        self._books.charge(arrival, query, entry, received_tokens=charge.received_tokens)
        if self._learning is not None and selection.prefill is None:
            is_clean = not arrival.excluded and not question.options.get(entry.target) and arrival.prompts == 1
            self._learning.begin(entry, is_clean=is_clean)
        if charge.leg is not None:
            self._legs.charge(arrival, charge.leg)

    # Progress and end

    def _start_decode(self, token: FirstToken, now_s: float) -> None:
        request_id = token.request_id
        running = self.ledger.find(request_id)
        if running is None:
            self.ignored.late += 1
            return
        if not self.ledger.start_decode(request_id, now_s):
            self.ignored.repeated += 1
            return
        self._following.start_decode(request_id)
        self._legs.end(request_id, now_s)
        books, target = self._books, running.target
        self._standings.touch(target)
        running.first_token_at_s = now_s
        if self._learning is not None:
            self._learning.start_decode(running, token.cached_tokens, now_s)
        self.residency.confirm(request_id, now_s)
        self.decisions.record_first_token(request_id, max(0.0, now_s - running.reserved_at_s))
        self._record_cached(running, token.cached_tokens)
        books.settle(running, now_s)

    def _end_prefill(self, end: PrefillEnded, now_s: float) -> None:
        leg = self._legs.end(end.request_id, now_s)
        if leg is None:
            self.ignored.late += 1
            return
        if end.outcome is Outcome.DONE and self._learning is not None:
            self._learning.end_leg(leg, end.cached_tokens, now_s)
        running = self.ledger.find(end.request_id)
        if running is not None:
            self._record_cached(running, end.cached_tokens)

    def _progress(self, progress: OutputProgressed, _now_s: float) -> None:
        running = self.ledger.record_output(progress.request_id, min(progress.output_tokens, MAX_TOKENS))
        if running is None:
            self.ignored.late += 1
            return
        self._standings.touch(running.target)

    def _end(self, end: RequestEnded, now_s: float) -> None:
        request_id, output_tokens = end.request_id, end.output_tokens
        running = self.ledger.find(request_id)
        if running is None:
            self.ignored.late += 1
            return
        if self._learning is not None:
            self._learning.end(running, end, now_s)
        self.ledger.release(request_id, now_s)
        self._close(running, end.outcome, now_s)
        self._record_cached(running, end.cached_tokens)
        if end.outcome is Outcome.DONE and output_tokens is not None:
            self.ledger.outputs.record(output_tokens)

    def _close(self, running: Reservation, outcome: Outcome, now_s: float) -> None:
        """The load is off: settles or withdraws what rested on the request."""
        request_id, books = running.request_id, self._books
        self._legs.end(request_id, now_s)
        self._following.end(request_id)
        self.breakers.end(request_id)
        self._standings.touch(running.target)
        self.decisions.record_outcome(request_id, outcome.value)
        if outcome is Outcome.DONE:
            self.residency.confirm(request_id, now_s)
            books.settle(running, now_s)
        elif running.first_token_at_s is None:
            books.withdraw(running)
        books.pause(running, now_s)

    def _record_cached(self, running: Reservation, cached_tokens: int | None) -> None:
        """Notes the real reuse, and what it adds to the cost of the rank chosen."""
        if cached_tokens is None:
            return
        added_s = None
        if self._weights is not None:
            weight = self._weights.reuse + running.served_beside * self._weights.stall
            added_s = weight * running.prefill_ratio * self._find_added_prefill_s(running, cached_tokens)
        self.decisions.record_cached(running.request_id, cached_tokens, added_s)

    def _find_added_prefill_s(self, running: Reservation, cached_tokens: int) -> float:
        """Seconds of prefill beyond those that were reckoned with at the decision."""
        prompt, assumed = running.prompt_tokens, running.assumed_cached_tokens
        cached = min(max(cached_tokens, 0), prompt)
        if cached == assumed:
            return 0.0
        attention_ratio = self._books.paces.attention.ratio
        actual_s = prefill_s(prompt - cached, prompt, self._costs, attention_ratio)
        return actual_s - prefill_s(prompt - assumed, prompt, self._costs, attention_ratio)

    def _change_fleet(self, change: FleetChanged, now_s: float) -> None:
        for target in self._books.replace_fleet(change.ranks, now_s):
            if self._learning is not None:
                self._learning.forget(target)
            for entry in self.ledger.release_target(target, now_s):
                if not self._legs.lose(entry.request_id):
                    self._close(entry, Outcome.WORKER_LOST, now_s)

    #: Who takes what; of what is only to be remembered `_take`.
    _takers: ClassVar[dict[type[Stimulus], Callable[["Placer", Any, float], None]]] = {
        LoadReported: _report,
        FirstToken: _start_decode,
        PrefillEnded: _end_prefill,
        OutputProgressed: _progress,
        RequestEnded: _end,
        FleetChanged: _change_fleet,
    }

    @property
    def prefill_ratio(self) -> float:
        """Measured seconds of prefill over those that the coefficients predict."""
        return self._books.paces.prefill.ratio

    @property
    def decode_ratio(self) -> float:
        """The same for the time between tokens."""
        return self._books.paces.decode.ratio

    def check_invariants(self) -> None:
        """Raises AssertionError when ledger, legs, homes, predictions and fleet disagree."""
        self._books.check_invariants()
        if self._learning is not None:
            self._learning.check_invariants()
        charged = self.ledger.open_requests()
        legs = [name for name in charged if is_leg(name)]
        if sorted(legs) != sorted(self._legs.names()):
            raise AssertionError(f"legs charged {legs}, open {self._legs.names()}")
        entries = [entry for name in charged if (entry := self.ledger.find(name)) is not None]
        stray = [entry.target for entry in entries if entry.target not in self.fleet]
        if stray:
            raise AssertionError(f"requests on ranks that are gone: {stray}")


def _name(arrival: RequestArrived) -> SessionId | None:
    """The conversation by which a home is known."""
    return None if arrival.session is None else name_home(arrival.session, arrival.model)
