"""The placement state machine: stimuli in, instructions out. No clock, no chance, no input or output of its own.

A request's life, as seen here:

    RequestArrived ── Place ──> charged ── FirstToken ──> generating ── RequestEnded ──> gone
                  └─ Reject                   └──────────── RequestEnded ────────────────^

A rank that vanishes from the fleet ends its requests as lost. Stimuli for requests that are gone, or in a state that
the stimulus does not fit, change nothing and are counted: edges race, and a late word must never release a load twice.
"""

import msgspec

from router.config import SessionsConfig
from router.fleet.load import OwnLoad
from router.fleet.pace import Pace
from router.fleet.recent import RecentShare
from router.fleet.view import Fleet, Rank, ReportedCounts, build_report
from router.placement.attempt import Attempt, Paces, predict_step_s, record_decode, record_prefill
from router.placement.decision import Decision, DecisionLog
from router.placement.explain import explain_choice
from router.placement.homes import Homes
from router.placement.instructions import Instruction, Place, Reject, RejectReason
from router.placement.ledger import Ledger, Reservation
from router.placement.residency import PredictedResidency
from router.placement.stimuli import (
    FirstToken,
    FleetChanged,
    LoadReported,
    Outcome,
    OutputProgressed,
    RequestArrived,
    RequestEnded,
    Stimulus,
)
from router.placement.views import Overlap, bound_overlap, build_view, charge_s, find_foreign_load
from router.policy.base import Choice, PlacementQuery, Policy, RankView
from wire.ids import RequestId, Target

#: Longest prompt or output that is believed.
MAX_TOKENS = 100_000_000

_SESSIONS = SessionsConfig()


class PlacerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and times of placement."""

    #: Pause after which a session's home is forgotten.
    home_idle_ttl_s: float = _SESSIONS.idle_ttl_s
    #: Homes kept.
    max_homes: int = _SESSIONS.max_sessions
    #: Longest that a predicted residency is believed without a first token.
    residency_ttl_s: float = 30.0
    #: How long it is believed after the first token, for events on their way.
    residency_grace_s: float = 1.0
    #: Predictions kept.
    max_predictions: int = 1_024
    #: Decisions kept for explanation.
    max_decisions: int = 4_096
    #: Scale predicted seconds by measured ones.
    learn_pace: bool = True
    #: Name of this router in the ledger.
    origin: str = "local"


class StimulusCounts(msgspec.Struct):
    """What came and changed nothing."""

    #: Ends, tokens and progress of requests that are gone.
    late: int = 0
    #: First tokens of requests that had theirs.
    repeated: int = 0
    #: Load reports of ranks that are not of the fleet.
    unknown_targets: int = 0


class Placer:
    """Chooses a rank for each request and keeps count of what that leaves where."""

    def __init__(
        self,
        *,
        policy: Policy,
        rng_seed: int,
        settings: PlacerSettings | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._settings = settings or PlacerSettings()
        self._policy = policy
        self._costs = policy.coefficients
        self._seed = rng_seed
        self._attempts: dict[RequestId, Attempt] = {}
        self._paces = Paces(prefill=Pace(), decode=Pace())
        self.fleet = Fleet()
        self.ledger = Ledger() if ledger is None else ledger
        self.homes = Homes(idle_ttl_s=self._settings.home_idle_ttl_s, max_homes=self._settings.max_homes)
        self.residency = PredictedResidency(
            ttl_s=self._settings.residency_ttl_s,
            grace_s=self._settings.residency_grace_s,
            max_predictions=self._settings.max_predictions,
        )
        self.decisions = DecisionLog(max_decisions=self._settings.max_decisions)
        self.ignored = StimulusCounts()

    def handle(self, stimulus: Stimulus) -> tuple[Instruction, ...]:
        """Takes one stimulus in; only an arrival is answered with an instruction."""
        match stimulus:
            case RequestArrived():
                return (self._arrive(stimulus),)
            case FirstToken():
                self._start_decode(stimulus)
            case OutputProgressed():
                self._progress(stimulus)
            case RequestEnded():
                self._end(stimulus)
            case LoadReported():
                self._report(stimulus)
            case _:
                self._change_fleet(stimulus)
        return ()

    # Arrivals

    def _arrive(self, arrival: RequestArrived) -> Instruction:
        if arrival.request_id in self.ledger:
            decision = self._refuse(arrival, "a request of this id is still running")
            return Reject(arrival.request_id, RejectReason.DUPLICATE_REQUEST, decision)
        self.homes.expire(arrival.now_s)
        self.residency.expire(arrival.now_s)
        ranks = self._find_candidates(arrival)
        if isinstance(ranks, RejectReason):
            decision = self._refuse(arrival, _REFUSALS[ranks])
            self.decisions.store(decision)
            return Reject(arrival.request_id, ranks, decision)
        return self._place(arrival, ranks)

    def _find_candidates(self, arrival: RequestArrived) -> list[Rank] | RejectReason:
        """Ranks that may be chosen, or why there is none."""
        if not len(self.fleet):
            return RejectReason.NO_WORKER
        serving = self.fleet.find_serving(arrival.model)
        if not serving:
            return RejectReason.UNKNOWN_MODEL
        available = [rank for rank in serving if rank.facts.accepts_requests()]
        if not available:
            return RejectReason.ALL_UNHEALTHY
        untried = [rank for rank in available if rank.facts.target not in arrival.excluded]
        return untried or RejectReason.NO_WORKER

    def _place(self, arrival: RequestArrived, ranks: list[Rank]) -> Place:
        home = self.homes.find(arrival.session, arrival.now_s)
        at_home = any(rank.facts.target == home for rank in ranks)
        shares = [rank.recent.share(arrival.now_s) for rank in ranks]
        mean_recent_work_s = sum(share.work_s for share in shares) / len(shares)
        query = self._build_query(arrival, home if at_home else None, mean_recent_work_s)
        overlaps = self._find_overlaps(arrival, query, ranks)
        views = [
            self._build_view(rank, overlap, share, query, arrival)
            for rank, overlap, share in zip(ranks, overlaps, shares, strict=True)
        ]
        choice = self._policy.choose(query, views, self._seed)
        place = next(place for place, rank in enumerate(ranks) if rank.facts.target == choice.target)
        reason = explain_choice(query, choice, lost_home=None if at_home else home)
        decision = self._decide(arrival, choice, views[place], reason)
        self._charge(arrival, query, ranks[place], views[place])
        self.decisions.store(decision)
        return Place(arrival.request_id, choice.target, decision)

    def _build_query(self, arrival: RequestArrived, home: Target | None, mean_recent_work_s: float) -> PlacementQuery:
        return PlacementQuery(
            request_id=arrival.request_id,
            prompt_tokens=_bound_tokens(arrival.prompt_tokens),
            expected_output_tokens=_bound_tokens(arrival.expected_output_tokens),
            session=arrival.session,
            home=home,
            mean_recent_work_s=mean_recent_work_s,
            prefill_ratio=self._paces.prefill.ratio,
            decode_ratio=self._paces.decode.ratio,
        )

    def _find_overlaps(self, arrival: RequestArrived, query: PlacementQuery, ranks: list[Rank]) -> list[Overlap]:
        expected = self.residency.find(arrival.chain_hashes, arrival.chain_block_tokens, arrival.now_s)
        return [
            bound_overlap(
                confirmed_tokens=arrival.overlaps.get(rank.facts.target, 0),
                predicted_tokens=expected.get(rank.facts.target, 0),
                prompt_tokens=query.prompt_tokens,
                credit_ratio=self._costs.predicted_credit_ratio,
            )
            for rank in ranks
        ]

    def _build_view(
        self, rank: Rank, overlap: Overlap, recent: RecentShare, query: PlacementQuery, arrival: RequestArrived
    ) -> RankView:
        now_s = arrival.now_s
        return build_view(
            rank,
            overlap=overlap,
            own=self.ledger.totals(rank.facts.target, now_s),
            foreign=find_foreign_load(rank.report, now_s=now_s, costs=self._costs, prefill_ratio=query.prefill_ratio),
            expected_output_tokens=query.expected_output_tokens,
            foreign_context_tokens=self._costs.foreign_request_tokens,
            recent=recent,
            options=arrival.options.get(rank.facts.target, ()),
        )

    def _decide(self, arrival: RequestArrived, choice: Choice, view: RankView, reason: str) -> Decision:
        return Decision(
            request_id=arrival.request_id,
            decided_at_s=arrival.now_s,
            policy=self._policy.name,
            model=arrival.model,
            session=arrival.session,
            prompt_tokens=_bound_tokens(arrival.prompt_tokens),
            target=choice.target,
            predicted_cached_tokens=view.overlap_tokens,
            hoped_cached_tokens=view.usable_overlap_tokens - view.overlap_tokens,
            reason=reason,
            credit="approximate" if choice.target in arrival.approximate else arrival.credit,
            costs=choice.costs,
        )

    def _charge(self, arrival: RequestArrived, query: PlacementQuery, rank: Rank, view: RankView) -> None:
        """Everything that a placement leaves behind."""
        cached_tokens = view.usable_overlap_tokens
        uncached_tokens = query.prompt_tokens - cached_tokens
        work_s = charge_s(query.prompt_tokens, cached_tokens, self._costs, query.prefill_ratio)
        target, now_s = view.target, arrival.now_s
        self.ledger.reserve(
            Reservation(
                request_id=arrival.request_id,
                target=target,
                origin=self._settings.origin,
                reserved_at_s=now_s,
                prompt_tokens=query.prompt_tokens,
                uncached_tokens=uncached_tokens,
                prefill_s=work_s,
                remaining_prefill_s=work_s,
                expected_output_tokens=query.expected_output_tokens,
            )
        )
        self._attempts[arrival.request_id] = Attempt(
            target=target,
            session=arrival.session,
            decided_at_s=now_s,
            prompt_tokens=query.prompt_tokens,
            assumed_cached_tokens=cached_tokens,
            starts_at_once=view.open_requests == 0,
        )
        rank.recent.record(work_s=work_s, new_tokens=uncached_tokens + query.expected_output_tokens, now_s=now_s)
        self.residency.store(arrival.request_id, target, arrival.chain_hashes, arrival.chain_block_tokens, now_s)
        if arrival.session is not None:
            self.homes.propose(arrival.session, target, arrival.request_id, now_s)

    def _refuse(self, arrival: RequestArrived, reason: str) -> Decision:
        return Decision(
            request_id=arrival.request_id,
            decided_at_s=arrival.now_s,
            policy=self._policy.name,
            model=arrival.model,
            session=arrival.session,
            prompt_tokens=_bound_tokens(arrival.prompt_tokens),
            target=None,
            predicted_cached_tokens=0,
            reason=reason,
        )

    # Progress and end

    def _start_decode(self, token: FirstToken) -> None:
        attempt = self._attempts.get(token.request_id)
        if attempt is None:
            self.ignored.late += 1
            return
        if not self.ledger.start_decode(token.request_id, token.now_s):
            self.ignored.repeated += 1
            return
        attempt.first_token_at_s = token.now_s
        totals = self.ledger.totals(attempt.target, token.now_s)
        attempt.predicted_step_s = predict_step_s(totals, self._costs)
        ttft_s = max(0.0, token.now_s - attempt.decided_at_s)
        if self._settings.learn_pace:
            record_prefill(self._paces, attempt, cached_tokens=token.cached_tokens, ttft_s=ttft_s, costs=self._costs)
        self.residency.confirm(token.request_id, token.now_s)
        self.decisions.record_first_token(token.request_id, ttft_s)
        self._record_cached(token.request_id, token.cached_tokens)
        if attempt.session is not None:
            self.homes.settle(attempt.session, attempt.target, token.now_s)

    def _progress(self, progress: OutputProgressed) -> None:
        if not self.ledger.record_output(progress.request_id, min(progress.output_tokens, MAX_TOKENS)):
            self.ignored.late += 1

    def _end(self, end: RequestEnded) -> None:
        if self.ledger.release(end.request_id, end.now_s) is None:
            self.ignored.late += 1
            return
        attempt = self._close(end.request_id, end.outcome, end.now_s)
        self._record_cached(end.request_id, end.cached_tokens)
        if self._settings.learn_pace and end.outcome is Outcome.DONE and end.output_tokens is not None:
            record_decode(self._paces, attempt, output_tokens=end.output_tokens, now_s=end.now_s)

    def _close(self, request_id: RequestId, outcome: Outcome, now_s: float) -> Attempt:
        """The load is off: settles or withdraws what rested on the request."""
        attempt = self._attempts.pop(request_id)
        self.decisions.record_outcome(request_id, outcome.value)
        if outcome is Outcome.DONE:
            self.residency.confirm(request_id, now_s)
            if attempt.session is not None:
                self.homes.settle(attempt.session, attempt.target, now_s)
        elif attempt.first_token_at_s is None:
            self.residency.withdraw(request_id)
            if attempt.session is not None:
                self.homes.withdraw(attempt.session, request_id)
        return attempt

    def _record_cached(self, request_id: RequestId, cached_tokens: int | None) -> None:
        if cached_tokens is not None:
            self.decisions.record_cached(request_id, cached_tokens)

    # The fleet

    def _report(self, report: LoadReported) -> None:
        rank = self.fleet.find(report.target)
        if rank is None:
            self.ignored.unknown_targets += 1
            return
        own = self.ledger.totals(report.target, report.now_s)
        counts = ReportedCounts(
            running_requests=report.running_requests,
            waiting_requests=report.waiting_requests,
            waiting_tokens=report.waiting_tokens,
            used_tokens=report.used_tokens,
            capacity_tokens=report.capacity_tokens,
        )
        mine = OwnLoad(open_requests=own.open_requests, waiting_tokens=own.waiting_tokens)
        rank.report = build_report(counts, own=mine, now_s=report.now_s)

    def _change_fleet(self, change: FleetChanged) -> None:
        lost = self.fleet.replace(change.ranks)
        for target in lost:
            for reservation in self.ledger.release_target(target, change.now_s):
                self._close(reservation.request_id, Outcome.WORKER_LOST, change.now_s)
        self.homes.forget_targets(lost)
        self.residency.forget_targets(lost)

    @property
    def prefill_ratio(self) -> float:
        """Measured seconds of prefill over those that the coefficients predict."""
        return self._paces.prefill.ratio

    @property
    def decode_ratio(self) -> float:
        """The same for the time between tokens."""
        return self._paces.decode.ratio

    def check_invariants(self) -> None:
        """Raises AssertionError when ledger, attempts, homes, predictions and fleet disagree."""
        self.ledger.check_invariants()
        self.homes.check_invariants()
        self.residency.check_invariants()
        if sorted(self.ledger.open_requests()) != sorted(self._attempts):
            raise AssertionError(f"charged {self.ledger.open_requests()}, remembered {tuple(self._attempts)}")
        stray = [name for name, attempt in self._attempts.items() if attempt.target not in self.fleet]
        if stray:
            raise AssertionError(f"requests on ranks that are gone: {stray}")


_REFUSALS = {
    RejectReason.NO_WORKER: "no rank is left that was not tried",
    RejectReason.UNKNOWN_MODEL: "no rank serves the model",
    RejectReason.ALL_UNHEALTHY: "every rank that serves the model is unhealthy or draining",
}


def _bound_tokens(count: int) -> int:
    return min(max(count, 0), MAX_TOKENS)
