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
from router.placement.eligible import find_full, find_pools, find_refusal
from router.placement.explain import Telling
from router.placement.following import Following
from router.placement.homes import Home, is_broken, mark_chain, name_home
from router.placement.instructions import REFUSALS, Instruction, Place, Reject, RejectReason
from router.placement.ledger import Ledger
from router.placement.pins import Pin
from router.placement.question import MAX_TOKENS, Inquiry, Question, bound_tokens
from router.placement.settings import PlacerSettings, StimulusCounts
from router.placement.shadow import Shadow
from router.placement.shortlist import BoundedPolicy
from router.placement.standings import Pool
from router.placement.stimuli import (
    FirstToken,
    FleetChanged,
    HomeTold,
    LoadReported,
    Outcome,
    OutputProgressed,
    PartialTold,
    RequestArrived,
    RequestEnded,
    StateDropped,
    StateKept,
    StateLost,
    Stimulus,
)
from router.policy.base import Policy
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
        self.fleet = self._books.fleet
        self.ledger = self._books.ledger
        self.homes = self._books.homes
        self.pins = self._books.pins
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
            judge = Shadow(asked, self.decisions.audit, self._settings.shadow_timer)
        following = Following(policy, shadow)
        self._chooser, self._shadow, self._following = chooser, judge, following
        self._bounded = policy if isinstance(policy, BoundedPolicy) else None
        self._costs = policy.coefficients
        self._books.change_policy(policy.coefficients)

    def _ask_with(self, policy: Policy, *, is_exhaustive: bool) -> Chooser:
        few = self._settings.few_ranks
        return Chooser(policy, self._books.standings, seed=self._seed, is_exhaustive=is_exhaustive, few_ranks=few)

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
            case OutputProgressed():
                self._progress(stimulus)
            case RequestEnded():
                self._end(stimulus, now_s)
            case FleetChanged():
                self._change_fleet(stimulus, now_s)
            case StateKept():
                self.pins.store(stimulus.name, stimulus.target, now_s)
            case StateDropped():
                self.pins.remove(stimulus.name)
            case StateLost():
                ranks = (rank.facts.target for rank in self.fleet.ranks())
                self.pins.forget_targets(target for target in ranks if target.worker == stimulus.worker)
            case PartialTold():
                self._books.accept_partial(stimulus.partial, now_s)
            case HomeTold():
                self.homes.accept(stimulus.record, now_s)
        return ()

    # Arrivals

    def _arrive(self, arrival: RequestArrived, now_s: float) -> Instruction:
        if arrival.request_id in self.ledger:
            reason = RejectReason.DUPLICATE_REQUEST
            return Reject(arrival.request_id, reason, self._refuse(arrival, reason))
        self._books.sweep(now_s)
        arrival, full = self._leave_out_full(arrival, now_s)
        pin = None if arrival.pin is None else self.pins.find(arrival.pin, now_s)
        pools, refused = self._find_pools(arrival, full, pin)
        if refused is not None:
            decision = self._refuse(arrival, refused)
            self.decisions.store(decision)
            return Reject(arrival.request_id, refused, decision)
        question, home = self._ask(arrival, pools, now_s)
        self._following.arrive(arrival)
        answer = self._chooser.answer(question)
        decision = self._tell(self._chooser, arrival, question, answer, home)
        opinion = None if self._shadow is None else self._shadow.judge(question, self.policy, answer)
        if opinion is not None:
            decision = decision.with_shadow(opinion)
        self.ignored.failed_choices += answer.failure is not None
        self._charge(arrival, question, answer)
        self.decisions.store(decision)
        return Place(arrival.request_id, answer.choice.target, decision)

    def explain(self, arrival: RequestArrived) -> Decision:
        """The decision that an arrival would get now, every rank spelled out. Charges and remembers nothing."""
        now_s = self.clock.advance(arrival.now_s)
        self._books.sweep(now_s)
        arrival, full = self._leave_out_full(arrival, now_s)
        pin = None if arrival.pin is None else self.pins.look_up(arrival.pin, now_s)
        pools, refused = self._find_pools(arrival, full, pin)
        if refused is not None:
            return self._refuse(arrival, refused)
        question, home = self._ask(arrival, pools, now_s)
        # A policy that takes turns must not lose one.
        policy = copy.deepcopy(self.policy)
        Following(policy).arrive(arrival)
        chooser = self._ask_with(policy, is_exhaustive=True)
        return self._tell(chooser, arrival, question, chooser.answer(question), home)

    def _leave_out_full(self, arrival: RequestArrived, now_s: float) -> tuple[RequestArrived, frozenset[Target]]:
        """The arrival without the ranks that have as many requests as they may, and these."""
        if not self._settings.limits:
            return arrival, frozenset()
        full = find_full(self._settings.limits, self.fleet, self.ledger, now_s) - arrival.excluded
        return msgspec.structs.replace(arrival, excluded=arrival.excluded | full), full

    def _find_pools(
        self, arrival: RequestArrived, full: frozenset[Target], pin: Pin | None
    ) -> tuple[tuple[Pool, ...], RejectReason | None]:
        pools = find_pools(self._books.standings.pools, arrival, pin)
        return pools, None if pools else find_refusal(self.fleet, arrival, pin, full)

    def _ask(self, arrival: RequestArrived, pools: tuple[Pool, ...], now_s: float) -> tuple[Question, Home | None]:
        """The question, and the session's home whether it counts or not."""
        books = self._books
        books.standings.refresh(now_s)
        session = _name(arrival)
        home = None if session is None else self.homes.look_up(session, now_s)
        is_cut = home is not None and is_broken(
            home,
            prompt_tokens=arrival.prompt_tokens,
            chain_hashes=arrival.chain_hashes,
            block_tokens=arrival.chain_block_tokens,
        )
        question = self._inquiry.ask(
            arrival,
            pools,
            home=None if is_cut else home,
            live=None if session is None else books.live.find(session),
            expected=self.residency.find(arrival.chain_hashes, arrival.chain_block_tokens, now_s),
            mean_live_sessions=len(books.live) / max(1, len(self.fleet)),
            return_rate_per_s=books.live.return_rate_per_s,
            request_work_s=self.fleet.recent.request_work_s,
            credit_ratio=self._costs.predicted_credit_ratio,
            max_copies=self._costs.max_copies,
            now_s=now_s,
        )
        return question, home

    def _tell(
        self, chooser: Chooser, arrival: RequestArrived, question: Question, answer: Answer, home: Home | None
    ) -> Decision:
        query, choice, view = question.query, answer.choice, answer.view
        unused_home = home.target if home is not None and query.home is None else None
        telling = Telling(
            query=query,
            choice=choice,
            eligible_count=question.eligible_count,
            unused_home=unused_home,
            can_go_home=unused_home is not None and question.allows(unused_home),
            is_pinned=arrival.pin is not None,
        )
        return Decision(
            request_id=arrival.request_id,
            decided_at_s=arrival.now_s,
            policy=self.policy.name,
            model=arrival.model,
            session=arrival.session,
            prompt_tokens=query.prompt_tokens,
            target=choice.target,
            predicted_cached_tokens=view.overlap_tokens,
            hoped_cached_tokens=view.usable_overlap_tokens - view.overlap_tokens,
            predicted_ttft_s=chooser.ttft_s(query, view),
            eligible_count=question.eligible_count,
            telling=telling,
            credit="approximate" if choice.target in arrival.approximate else arrival.credit,
            costs=choice.costs,
            sheet=answer.sheet,
        )

    def _charge(self, arrival: RequestArrived, question: Question, answer: Answer) -> None:
        query, view = question.query, answer.view
        attempt = Attempt(
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
        self._attempts[arrival.request_id] = attempt
        self._following.place(arrival.request_id, view.target, query.prompt_tokens - view.overlap_tokens)
        work_s = self._chooser.work_s(query, view)
        charge = Charge(work_s=work_s, cached_tokens=view.usable_overlap_tokens, attempt=attempt)
        self._books.charge(arrival, query, charge, question.now_s)

    def _refuse(self, arrival: RequestArrived, reason: RejectReason) -> Decision:
        return Decision(
            request_id=arrival.request_id,
            decided_at_s=arrival.now_s,
            policy=self.policy.name,
            model=arrival.model,
            session=arrival.session,
            prompt_tokens=bound_tokens(arrival.prompt_tokens),
            target=None,
            predicted_cached_tokens=0,
            telling=REFUSALS[reason],
        )

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
        running = self._attempts.get(end.request_id)
        last_step = StepParts() if running is None else self._predict_step(running.target, now_s)
        if self.ledger.release(end.request_id, now_s) is None:
            self.ignored.late += 1
            return
        attempt = self._close(end.request_id, end.outcome, now_s)
        self._record_cached(end.request_id, attempt, end.cached_tokens)
        if end.outcome is not Outcome.DONE or end.output_tokens is None:
            return
        self.ledger.outputs.record(end.output_tokens)
        if self._settings.learn_pace:
            record_decode(self._books.paces, attempt, last_step=last_step, output_tokens=end.output_tokens, now_s=now_s)

    def _close(self, request_id: RequestId, outcome: Outcome, now_s: float) -> Attempt:
        """The load is off: settles or withdraws what rested on the request."""
        attempt = self._attempts.pop(request_id)
        self._following.end(request_id)
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
        if self._bounded is not None:
            prompt, cached = attempt.prompt_tokens, min(max(cached_tokens, 0), attempt.prompt_tokens)
            attention_ratio = self._books.paces.attention.ratio
            actual_s = prefill_s(prompt - cached, prompt, self._costs, attention_ratio)
            assumed_s = prefill_s(prompt - attempt.assumed_cached_tokens, prompt, self._costs, attention_ratio)
            weight = self._bounded.reuse_weight + attempt.served_beside * self._bounded.stall_weight
            added_s = weight * attempt.prefill_ratio * (actual_s - assumed_s)
        self.decisions.record_cached(request_id, cached_tokens, added_s)

    def _change_fleet(self, change: FleetChanged, now_s: float) -> None:
        lost = self._books.replace_fleet(change.ranks)
        for target in lost:
            for reservation in self.ledger.release_target(target, now_s):
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
        if sorted(self.ledger.open_requests()) != sorted(self._attempts):
            raise AssertionError(f"charged {self.ledger.open_requests()}, remembered {tuple(self._attempts)}")
        stray = [name for name, attempt in self._attempts.items() if attempt.target not in self.fleet]
        if stray:
            raise AssertionError(f"requests on ranks that are gone: {stray}")


def _name(arrival: RequestArrived) -> SessionId | None:
    """The conversation by which a home is known."""
    return None if arrival.session is None else name_home(arrival.session, arrival.model)
