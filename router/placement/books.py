"""Everything that placement remembers, kept in step: load, homes, live sessions, pins, predictions, paces, views.

A placement writes into most of them at once, and so does its end. Here stands what goes with what.
"""

import msgspec

from router.config_policy import Coefficients
from router.fleet.load import OwnLoad
from router.fleet.rank import RankFacts
from router.fleet.view import Fleet, ReportedCounts, build_report
from router.placement.attempt import Attempt, Paces
from router.placement.breakers import Breakers
from router.placement.heads import HotHeads
from router.placement.homes import Homes
from router.placement.ledger import Ledger, Reservation
from router.placement.live import LiveSessions
from router.placement.pins import Pins
from router.placement.residency import PredictedResidency
from router.placement.settings import PlacerSettings
from router.placement.standings import Standings
from router.placement.stimuli import (
    HomeTold,
    LoadReported,
    PartialTold,
    RequestArrived,
    StateDropped,
    StateKept,
    StateLost,
    TargetJudged,
    WorkerProbed,
)
from router.placement.views import REPORT_TTL_S
from router.policy.base import PlacementQuery
from wire.ids import RequestId, Target

#: Seconds between two looks at what is over.
SWEEP_S = 1.0

#: What is only to be remembered.
Word = TargetJudged | WorkerProbed | StateKept | StateDropped | StateLost | HomeTold | PartialTold


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What a placement will take of its rank."""

    #: Seconds of work.
    work_s: float
    #: Prompt tokens that need not be computed.
    cached_tokens: int
    #: What is remembered of the request.
    attempt: Attempt
    #: Prompt tokens that come from another rank into its cache.
    received_tokens: int = 0


class Books:
    """The memory of one placer."""

    def __init__(self, settings: PlacerSettings, ledger: Ledger, costs: Coefficients) -> None:
        self._settings = settings
        self._costs = costs
        self._swept_at_s = float("-inf")
        self.paces = Paces()
        self.fleet = Fleet()
        self.ledger = ledger
        self.homes = Homes(idle_ttl_s=settings.home_idle_ttl_s, max_homes=settings.max_homes)
        self.pins = Pins(idle_ttl_s=settings.home_idle_ttl_s, max_pins=settings.max_homes)
        self.live = LiveSessions(idle_s=costs.live_idle_s, max_sessions=settings.max_homes)
        self.heads = HotHeads()
        self.breakers = Breakers(settings.breaker)
        self.residency = PredictedResidency(
            ttl_s=settings.residency_ttl_s,
            grace_s=settings.residency_grace_s,
            max_predictions=settings.max_predictions,
        )
        self.standings = Standings(
            fleet=self.fleet, ledger=ledger, live=self.live, paces=self.paces.workers, costs=costs
        )

    def change_policy(self, costs: Coefficients) -> None:
        """Other coefficients hold from now on; what is charged stays charged."""
        self._costs = costs
        self.live.idle_s = costs.live_idle_s
        self.standings.change_policy(costs)

    def charge(self, arrival: RequestArrived, query: PlacementQuery, charge: Charge, now_s: float) -> None:
        """Everything that a placement leaves behind."""
        attempt = charge.attempt
        entry = self._reserve(
            arrival.request_id,
            query,
            charge,
            output_tokens=query.expected_output_tokens,
            max_output_tokens=arrival.max_output_tokens,
            now_s=now_s,
        )
        self._fill(entry, arrival, more_tokens=charge.received_tokens + query.expected_output_tokens)
        if attempt.session is not None:
            self._remember_session(arrival, query, attempt, now_s)

    def charge_prefill(
        self, entry: RequestId, arrival: RequestArrived, query: PlacementQuery, charge: Charge, now_s: float
    ) -> None:
        """What the prefill leg of a pair leaves behind: work, and soon the prompt in its rank's cache.

        Args:
            entry: Its name in the ledger.
            arrival: The request.
            query: As asked.
            charge: The leg's.
            now_s: When.
        """
        reserved = self._reserve(entry, query, charge, output_tokens=1, max_output_tokens=1, now_s=now_s)
        self._fill(reserved, arrival, more_tokens=0)

    def _reserve(
        self,
        entry: RequestId,
        query: PlacementQuery,
        charge: Charge,
        *,
        output_tokens: int,
        max_output_tokens: int | None,
        now_s: float,
    ) -> Reservation:
        """Charges the ledger, under the name `entry`."""
        reservation = Reservation(
            request_id=entry,
            target=charge.attempt.target,
            origin=self._settings.origin,
            reserved_at_s=now_s,
            prompt_tokens=query.prompt_tokens,
            uncached_tokens=query.prompt_tokens - charge.cached_tokens,
            prefill_s=charge.work_s,
            remaining_prefill_s=charge.work_s,
            expected_output_tokens=output_tokens,
            max_output_tokens=max_output_tokens,
        )
        self.ledger.reserve(reservation)
        return reservation

    def _fill(self, reserved: Reservation, arrival: RequestArrived, *, more_tokens: int) -> None:
        """What is reserved makes its rank work and fills its cache, by `more_tokens` beyond what it computes."""
        target, now_s = reserved.target, reserved.reserved_at_s
        new_tokens = reserved.uncached_tokens + more_tokens
        self._record_work(target, work_s=reserved.prefill_s, new_tokens=new_tokens, now_s=now_s)
        self.breakers.begin(reserved.request_id, target, now_s)
        self.residency.store(arrival.request_id, target, arrival.chain_hashes, arrival.chain_block_tokens, now_s)

    def _record_work(self, target: Target, *, work_s: float, new_tokens: int, now_s: float) -> None:
        rank = self.fleet.find(target)
        for recent in (self.fleet.recent, None if rank is None else rank.recent):
            if recent is not None:
                recent.record(work_s=work_s, new_tokens=new_tokens, now_s=now_s)
        self.standings.touch(target)

    def _remember_session(self, arrival: RequestArrived, query: PlacementQuery, attempt: Attempt, now_s: float) -> None:
        session, target = attempt.session, attempt.target
        if session is None:
            return
        before = self.live.find(session)
        home = None if query.home is None else self.fleet.find(query.home)
        if home is not None and before is not None and before.target == query.home:
            home.ages.record_reused(now_s - before.last_used_s)
            self.standings.touch(before.target)
        rank = self.fleet.find(target)
        if rank is not None:
            rank.ages.record_stored()
        if query.home is None:
            self.heads.record(arrival.chain_hashes, now_s)
        tokens = query.prompt_tokens + query.expected_output_tokens
        self.live.store(session, target, tokens, arrival.request_id, now_s)
        self.homes.propose(session, target, arrival.request_id, now_s)

    def settle(self, attempt: Attempt, now_s: float) -> None:
        """The request showed a token: its rank is the home, and its prompt lies there."""
        if attempt.session is not None:
            self.homes.settle(
                attempt.session, attempt.target, now_s, prompt_tokens=attempt.prompt_tokens, mark=attempt.mark
            )
            self.live.renew(attempt.session, now_s)

    def pause(self, request_id: RequestId, attempt: Attempt, now_s: float) -> None:
        """The request is over: its session pauses."""
        if attempt.session is not None:
            self.live.pause(attempt.session, request_id, now_s)

    def withdraw(self, request_id: RequestId, attempt: Attempt) -> None:
        """The request failed before its first token: nothing rests on it."""
        self.residency.withdraw(request_id)
        if attempt.session is not None:
            self.homes.withdraw(attempt.session, request_id)
            self.live.withdraw(attempt.session, request_id)

    def report(self, report: LoadReported, now_s: float) -> bool:
        """An engine told its load; False where the rank is not of the fleet."""
        rank = self.fleet.find(report.target)
        if rank is None:
            return False
        own = self.ledger.totals(report.target, now_s)
        counts = ReportedCounts(
            running_requests=report.running_requests,
            waiting_requests=report.waiting_requests,
            waiting_tokens=report.waiting_tokens,
            used_tokens=report.used_tokens,
            capacity_tokens=report.capacity_tokens,
        )
        mine = OwnLoad(open_requests=own.open_requests, waiting_tokens=own.waiting_tokens)
        s_per_token = self.paces.prefill.ratio * self._costs.prefill_s_per_token
        before = rank.report
        taken_s = now_s - max(0.0, report.age_s) if report.age_s < REPORT_TTL_S else now_s - REPORT_TTL_S
        rank.report = build_report(counts, own=mine, now_s=taken_s, s_per_token=s_per_token)
        if before is None or not before.looks_like(rank.report):
            self.standings.note_report(report.target, taken_s)
        return True

    def take(self, told: Word, now_s: float) -> bool:
        """Something was told that is only to be remembered; False where it is of a rank that is not of the fleet."""
        match told:
            case TargetJudged():
                if told.target not in self.fleet:
                    return False
                self.breakers.judge(told.target, told.verdict, now_s, told.retry_after_s)
            case WorkerProbed():
                self.breakers.probe(told.worker, now_s)
            case StateKept():
                self.pins.store(told.name, told.target, now_s)
            case StateDropped():
                self.pins.remove(told.name)
            case StateLost():
                ranks = (rank.facts.target for rank in self.fleet.ranks())
                self.pins.forget_targets(target for target in ranks if target.worker == told.worker)
            case HomeTold():
                self.homes.accept(told.record, now_s)
            case PartialTold():
                for target in self.ledger.accept(told.partial, now_s) or ():
                    self.standings.touch(target)
        return True

    def replace_fleet(self, ranks: tuple[RankFacts, ...], now_s: float = 0.0) -> tuple[Target, ...]:
        """The whole fleet anew; what rested on ranks that vanished goes, but for their load. Returns those."""
        lost = self.fleet.replace(ranks, now_s)
        self.homes.forget_targets(lost)
        self.live.forget_targets(lost)
        self.pins.forget_targets(lost)
        self.residency.forget_targets(lost)
        self.standings.change_fleet(lost)
        gone = {target.worker for target in lost} - {rank.facts.target.worker for rank in self.fleet.ranks()}
        for worker in gone:
            self.paces.workers.forget(worker)
        return lost

    def sweep(self, now_s: float) -> None:
        """Forgets what is over; ratios of workers follow the clock."""
        if now_s - self._swept_at_s < SWEEP_S:
            return
        self._swept_at_s = now_s
        self.homes.expire(now_s)
        self.pins.expire(now_s)
        self.live.expire(now_s)
        self.residency.expire(now_s)
        self.breakers.sweep(self.fleet.__contains__, now_s)
        for target in self.ledger.expire(now_s):
            self.standings.touch(target)
        are_all_changed = self.paces.workers.change_context(self.paces.decode.context_ratio)
        changed = frozenset(self.paces.workers.refresh(now_s))
        for rank in self.fleet.ranks() if changed or are_all_changed else ():
            if are_all_changed or rank.facts.target.worker in changed:
                self.standings.touch(rank.facts.target)

    def check_invariants(self) -> None:
        """Raises AssertionError when a part contradicts itself."""
        for part in (
            self.ledger,
            self.homes,
            self.live,
            self.pins,
            self.residency,
            self.standings,
            self.breakers,
        ):
            part.check_invariants()
