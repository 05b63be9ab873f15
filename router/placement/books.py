"""Everything that placement remembers, kept in step: load, homes, live sessions, pins, predictions, paces, views.

A placement writes into most of them at once, and so does its end. Here stands what goes with what.
"""

from router.config.policy import Coefficients
from router.fleet.load import OwnLoad
from router.fleet.rank import RankFacts
from router.fleet.view import Fleet, Rank, ReportedCounts, build_report
from router.placement.breakers import Breakers
from router.placement.heads import HotHeads
from router.placement.homes import Homes
from router.placement.ledger import Ledger
from router.placement.live import LiveSessions
from router.placement.paces import Paces
from router.placement.pins import Pins
from router.placement.reservation import Reservation
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
from wire.ids import SessionId, Target

#: Seconds between two looks at what is over.
SWEEP_S = 1.0

#: What is only to be remembered.
Word = TargetJudged | WorkerProbed | StateKept | StateDropped | StateLost | HomeTold | PartialTold


class Books:
    """The memory of one placer."""

    def __init__(self, settings: PlacerSettings, ledger: Ledger, costs: Coefficients) -> None:
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

    def charge(
        self, arrival: RequestArrived, query: PlacementQuery, entry: Reservation, *, received_tokens: int
    ) -> None:
        """Everything that a placement leaves behind.

        Args:
            arrival: The request.
            query: As asked.
            entry: What it takes of its rank.
            received_tokens: Prompt tokens that come from another rank into its cache.
        """
        rank = self._charge_rank(entry, arrival, more_tokens=received_tokens + query.expected_output_tokens)
        if entry.session is not None:
            self._remember_session(entry.session, arrival, query, entry, rank)

    def charge_prefill(self, entry: Reservation, arrival: RequestArrived) -> None:
        """What the prefill leg of a pair leaves behind: work, and soon the prompt in its rank's cache."""
        self._charge_rank(entry, arrival, more_tokens=0)

    def _charge_rank(self, entry: Reservation, arrival: RequestArrived, *, more_tokens: int) -> Rank | None:
        """It makes its rank work and fills its cache, by `more_tokens` beyond what it computes."""
        target, now_s = entry.target, entry.reserved_at_s
        self.ledger.reserve(entry)
        new_tokens = entry.uncached_tokens + more_tokens
        self.fleet.recent.record(work_s=entry.prefill_s, new_tokens=new_tokens, now_s=now_s)
        rank = self.fleet.find(target)
        if rank is not None:
            rank.recent.record(work_s=entry.prefill_s, new_tokens=new_tokens, now_s=now_s)
        self.standings.touch(target)
        if self.breakers:
            self.breakers.begin(entry.request_id, target, now_s)
        self.residency.store(arrival.request_id, target, arrival.chain_hashes, arrival.chain_block_tokens, now_s)
        return rank

    def _remember_session(
        self,
        session: SessionId,
        arrival: RequestArrived,
        query: PlacementQuery,
        entry: Reservation,
        rank: Rank | None,
    ) -> None:
        target, now_s = entry.target, entry.reserved_at_s
        if query.home is not None:
            self._record_return(query.home, session, now_s)
        elif arrival.chain_hashes:
            self.heads.record(arrival.chain_hashes, now_s)
        if rank is not None:
            rank.ages.record_stored()
        tokens = query.prompt_tokens + query.expected_output_tokens
        self.live.store(session, target, tokens, entry.request_id, now_s)
        self.homes.propose(session, target, entry.request_id, now_s)

    def _record_return(self, home: Target, session: SessionId, now_s: float) -> None:
        """What a session that comes back left at home was asked for again."""
        live = self.live.find(session)
        rank = None if live is None or live.target != home else self.fleet.find(home)
        if rank is not None and live is not None:
            rank.ages.record_reused(now_s - live.last_used_s)
            self.standings.touch(home)

    def settle(self, entry: Reservation, now_s: float) -> None:
        """The request showed a token: its rank is the home, and its prompt lies there."""
        session = entry.session
        if session is not None:
            self.homes.settle(session, entry.target, now_s, prompt_tokens=entry.prompt_tokens, mark=entry.mark)
            self.live.renew(session, now_s)

    def pause(self, entry: Reservation, now_s: float) -> None:
        """The request is over: its session pauses."""
        if entry.session is not None:
            self.live.pause(entry.session, entry.request_id, now_s)

    def withdraw(self, entry: Reservation) -> None:
        """The request failed before its first token: nothing rests on it."""
        self.residency.withdraw(entry.request_id)
        if entry.session is not None:
            self.homes.withdraw(entry.session, entry.request_id)
            self.live.withdraw(entry.session, entry.request_id)

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
                self.breakers.judge(told.target, told.verdict, now_s, told.retry_after_s, told.cause)
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
