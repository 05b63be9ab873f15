"""The placement state machine: stimuli in, instructions out. No clock, no chance, no input or output of its own.

A request's life, as seen here:

    RequestArrived ── Place ──> charged ── FirstToken ──> generating ── RequestEnded ──> gone
                  └─ Reject                   └──────────── RequestEnded ────────────────^

A rank that vanishes from the fleet ends its requests as lost. Stimuli for requests that are gone, or in a state that
the stimulus does not fit, change nothing and are counted: edges race, and a late word must never release a load twice.
"""

import copy

import msgspec

from router.placement.attempt import Attempt, StepParts, predict_step, record_decode, record_prefill
from router.placement.books import Books, Charge
from router.placement.chooser import Answer, Chooser
from router.placement.clock import PlacementClock
from router.placement.decision import Decision, DecisionLog
from router.placement.eligible import Eligible, find_eligible
from router.placement.following import Following
from router.placement.homes import Home, is_broken, mark_chain, name_home
from router.placement.instructions import Instruction, Place, Reject, RejectReason
from router.placement.ledger import Ledger
from router.placement.legs import PrefillLegs
from router.placement.pairs import JointChooser
from router.placement.question import MAX_TOKENS, Inquiry, Question
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
from router.policy.base import Policy, RankView
from router.policy.cache_affinity import CacheAffinity
from router.policy.prefill import prefill_s
from wire.ids import RequestId, SessionId, Target

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
        self._attempts: dict[RequestId, Attempt] = {}
        self._books = Books(self._settings, Ledger() if ledger is None else ledger, policy.coefficients)
        self.clock = PlacementClock()
        self._legs = PrefillLegs(self._books)
        self.fleet = self._books.fleet
        self.ledger = self._books.ledger
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
            self._books.standings.set_time(now_s)
            self.ignored.unknown_targets += not self._books.report(stimulus, now_s)
            return ()
        now_s = self.clock.advance(stimulus.now_s)
        self._books.standings.set_time(now_s)
        match stimulus:
            case RequestArrived():
                return (self._arrive(stimulus, now_s),)
            case FirstToken():
                self._start_decode(stimulus, now_s)
            case PrefillEnded():
                self._end_prefill(stimulus, now_s)
            case OutputProgressed():
                self._progress(stimulus)
            case RequestEnded():
                self._end(stimulus, now_s)
            case FleetChanged():
                self._change_fleet(stimulus, now_s)
            case _:
                self.ignored.unknown_targets += not self._books.take(stimulus, now_s)
        return ()

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
        question, home = self._ask(eligible, now_s)
        self._following.arrive(arrival)
        answer = self._chooser.answer(question, eligible.candidates)
        decision = tell_choice(self._chooser, eligible, question, answer, home)
        opinion = None
        if self._shadow is not None and not eligible.candidates.legs:
            opinion = self._shadow.judge(question, self.policy, answer)
        if opinion is not None:
            decision = decision.with_shadow(opinion)
        self.ignored.failed_choices += answer.failure is not None
        self._charge(arrival, question, answer)
        self.decisions.store(decision)
        return Place(arrival.request_id, answer.choice.target, decision, decision.prefill)

    def explain(self, arrival: RequestArrived) -> Decision:
        """The decision that an arrival would get now, every rank spelled out. Charges and remembers nothing."""
        now_s = self.clock.advance(arrival.now_s)
        self._books.sweep(now_s)
        pin = None if arrival.pin is None else self.pins.look_up(arrival.pin, now_s)
        eligible = find_eligible(self._books, self._settings, arrival, pin, now_s)
        arrival = eligible.arrival
        if eligible.refused is not None:
            return tell_refusal(self.policy, arrival, eligible.refused)
        question, home = self._ask(eligible, now_s)
        # A policy that takes turns must not lose one.
        policy = copy.deepcopy(self.policy)
        Following(policy).arrive(arrival)
        chooser = self._ask_with(policy, is_exhaustive=True)
        return tell_choice(chooser, eligible, question, chooser.answer(question, eligible.candidates), home)

    def _ask(self, eligible: Eligible, now_s: float) -> tuple[Question, Home | None]:
        """The question, and the session's home whether it counts or not."""
        books, arrival, doubted = self._books, eligible.arrival, eligible.doubted
        books.standings.refresh(now_s)
        session = _name(arrival)
        home = None if session is None else self.homes.look_up(session, now_s)
        is_cut = home is not None and is_broken(
            home,
            prompt_tokens=arrival.prompt_tokens,
            chain_hashes=arrival.chain_hashes,
            block_tokens=arrival.chain_block_tokens,
        )
        is_cut = is_cut or (home is not None and home.target in doubted)
        expected = self.residency.find(arrival.chain_hashes, arrival.chain_block_tokens, now_s)
        if doubted:
            expected = expected.without(doubted)
        question = self._inquiry.ask(
            arrival,
            eligible.candidates.homes,
            home=None if is_cut else home,
            live=None if session is None else books.live.find(session),
            expected=expected,
            mean_live_sessions=len(books.live) / max(1, len(self.fleet)),
            return_rate_per_s=books.live.return_rate_per_s,
            request_work_s=self.fleet.recent.request_work_s,
            credit_ratio=self._costs.predicted_credit_ratio,
            max_copies=self._costs.max_copies,
            now_s=now_s,
        )
        return question, home

    def _charge(self, arrival: RequestArrived, question: Question, answer: Answer) -> None:
        query, now_s = question.query, question.now_s
        work_s = self._chooser.work_s(query, answer)
        if answer.prefill is None:
            attempt = _attempt(arrival, question, answer.view)
            charge = Charge(work_s=work_s, cached_tokens=attempt.assumed_cached_tokens, attempt=attempt)
        else:
            leg = _attempt(arrival, question, answer.prefill)
            received_tokens = query.prompt_tokens - min(answer.view.overlap_tokens, query.prompt_tokens)
            attempt = msgspec.structs.replace(leg, target=answer.view.target, starts_at_once=False)
            charge = Charge(
                work_s=0.0, cached_tokens=query.prompt_tokens, attempt=attempt, received_tokens=received_tokens
            )
        self._attempts[arrival.request_id] = attempt
        self._following.place(arrival.request_id, attempt.target, query.prompt_tokens - attempt.assumed_cached_tokens)
        self._books.charge(arrival, query, charge, now_s)
        if answer.prefill is not None and arrival.prefilled_by is None:
            charge = Charge(work_s=work_s, cached_tokens=leg.assumed_cached_tokens, attempt=leg)
            self._legs.charge(arrival, query, charge, now_s)

    # Progress and end

    def _start_decode(self, token: FirstToken, now_s: float) -> None:
        attempt = self._attempts.get(token.request_id)
        if attempt is None:
            self.ignored.late += 1
            return
        if not self.ledger.start_decode(token.request_id, now_s):
            self.ignored.repeated += 1
            return
        self._following.start_decode(token.request_id)
        self._legs.end(token.request_id, now_s)
        books, target = self._books, attempt.target
        books.standings.touch(target)
        attempt.first_token_at_s = now_s
        attempt.first_step = self._predict_step(target, now_s)
        if self._settings.learn_pace:
            record_prefill(books.paces, attempt, cached_tokens=token.cached_tokens, now_s=now_s, costs=self._costs)
        self.residency.confirm(token.request_id, now_s)
        self.decisions.record_first_token(token.request_id, max(0.0, now_s - attempt.decided_at_s))
        self._record_cached(token.request_id, attempt, token.cached_tokens)
        books.settle(attempt, now_s)

    def _end_prefill(self, end: PrefillEnded, now_s: float) -> None:
        leg = self._legs.end(end.request_id, now_s)
        if leg is None:
            self.ignored.late += 1
            return
        if end.outcome is Outcome.DONE and self._settings.learn_pace:
            record_prefill(self._books.paces, leg, cached_tokens=end.cached_tokens, now_s=now_s, costs=self._costs)
        self._record_cached(end.request_id, self._attempts[end.request_id], end.cached_tokens)

    def _predict_step(self, target: Target, now_s: float) -> StepParts:
        rank = self.fleet.find(target)
        capacity_tokens = None if rank is None else rank.find_capacity_tokens()
        return predict_step(self.ledger.totals(target, now_s), capacity_tokens, self._costs)

    def _progress(self, progress: OutputProgressed) -> None:
        if not self.ledger.record_output(progress.request_id, min(progress.output_tokens, MAX_TOKENS)):
            self.ignored.late += 1
            return
        self._books.standings.touch(self._attempts[progress.request_id].target)

    def _end(self, end: RequestEnded, now_s: float) -> None:
        last_step = self._find_last_step(end, now_s)
        if self.ledger.release(end.request_id, now_s) is None:
            self.ignored.late += 1
            return
        attempt = self._close(end.request_id, end.outcome, now_s)
        self._record_cached(end.request_id, attempt, end.cached_tokens)
        if end.outcome is not Outcome.DONE or end.output_tokens is None:
            return
        self.ledger.outputs.record(end.output_tokens)
        if last_step is not None:
            record_decode(self._books.paces, attempt, last_step=last_step, output_tokens=end.output_tokens, now_s=now_s)

    def _find_last_step(self, end: RequestEnded, now_s: float) -> StepParts | None:
        """A step on the rank while the request still is there; None where nothing is learned of it."""
        running = self._attempts.get(end.request_id)
        if running is None or running.first_token_at_s is None or not self._settings.learn_pace:
            return None
        return self._predict_step(running.target, now_s)

    def _close(self, request_id: RequestId, outcome: Outcome, now_s: float) -> Attempt:
        """The load is off: settles or withdraws what rested on the request."""
        attempt = self._attempts.pop(request_id)
        self._legs.end(request_id, now_s)
        self._following.end(request_id)
        self.breakers.end(request_id)
        self._books.standings.touch(attempt.target)
        self.decisions.record_outcome(request_id, outcome.value)
        if outcome is Outcome.DONE:
            self.residency.confirm(request_id, now_s)
            self._books.settle(attempt, now_s)
        elif attempt.first_token_at_s is None:
            self._books.withdraw(request_id, attempt)
        self._books.pause(request_id, attempt, now_s)
        return attempt

    def _record_cached(self, request_id: RequestId, attempt: Attempt, cached_tokens: int | None) -> None:
        """Notes the real reuse, and what it adds to the cost of the rank chosen."""
        if cached_tokens is None:
            return
        added_s = None
        if self._weights is not None:
            prompt, cached = attempt.prompt_tokens, min(max(cached_tokens, 0), attempt.prompt_tokens)
            attention_ratio = self._books.paces.attention.ratio
            actual_s = prefill_s(prompt - cached, prompt, self._costs, attention_ratio)
            assumed_s = prefill_s(prompt - attempt.assumed_cached_tokens, prompt, self._costs, attention_ratio)
            weight = self._weights.reuse + attempt.served_beside * self._weights.stall
            added_s = weight * attempt.prefill_ratio * (actual_s - assumed_s)
        self.decisions.record_cached(request_id, cached_tokens, added_s)

    def _change_fleet(self, change: FleetChanged, now_s: float) -> None:
        lost = self._books.replace_fleet(change.ranks, now_s)
        for target in lost:
            for reservation in self.ledger.release_target(target, now_s):
                if not self._legs.lose(reservation.request_id) and reservation.request_id in self._attempts:
                    self._close(reservation.request_id, Outcome.WORKER_LOST, now_s)

    @property
    def prefill_ratio(self) -> float:
        """Measured seconds of prefill over those that the coefficients predict."""
        return self._books.paces.prefill.ratio

    @property
    def decode_ratio(self) -> float:
        """The same for the time between tokens."""
        return self._books.paces.decode.ratio

    def check_invariants(self) -> None:
        """Raises AssertionError when ledger, attempts, homes, predictions and fleet disagree."""
        self._books.check_invariants()
        remembered = [*self._attempts, *self._legs.names()]
        if sorted(self.ledger.open_requests()) != sorted(remembered):
            raise AssertionError(f"charged {self.ledger.open_requests()}, remembered {remembered}")
        targets = [*(attempt.target for attempt in self._attempts.values()), *self._legs.targets()]
        stray = [target for target in targets if target not in self.fleet]
        if stray:
            raise AssertionError(f"requests on ranks that are gone: {stray}")


def _attempt(arrival: RequestArrived, question: Question, view: RankView) -> Attempt:
    """What is remembered of a request that `view`'s rank prefills."""
    query = question.query
    return Attempt(
        target=view.target,
        session=_name(arrival),
        decided_at_s=question.now_s,
        prompt_tokens=query.prompt_tokens,
        assumed_cached_tokens=view.usable_overlap_tokens,
        starts_at_once=view.open_requests == 0 and not view.options,
        served_beside=view.served_requests,
        prefill_ratio=query.prefill_ratio * view.prefill_ratio,
        mark=mark_chain(arrival.chain_hashes, arrival.chain_block_tokens),
    )


def _name(arrival: RequestArrived) -> SessionId | None:
    """The conversation by which a home is known."""
    return None if arrival.session is None else name_home(arrival.session, arrival.model)
