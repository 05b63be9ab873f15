"""One look at one worker: does it live, what does it say of itself, do its ids agree, what is its load.

Tells events and placement what follows. A worker that dies loses what it held and what it was charged at once; one
that comes back is read anew and starts without credit. Says nothing of a worker that could not be asked because this
process has no socket left.
"""

import logging
import time
from collections.abc import Callable
from typing import Protocol

import httpx

from router.config.fleet import FleetConfig
from router.control.engine_client import EngineClient, OwnLimitError
from router.control.load_sockets import LoadSockets
from router.control.loads import LoadSource
from router.control.parity import PARITY_EVERY_REQUESTS
from router.control.prompt_roll import PromptRoll
from router.control.worker import Worker
from router.fleet.agreement import Agreement
from router.fleet.source import RankSource
from router.placement.placer import Placer
from router.placement.stimuli import LoadReported, StateLost, WorkerProbed
from router.prompt import PromptCatalogue
from wire.event_sources import find_sockets
from wire.ids import Target
from wire.load import LoadReport

_log = logging.getLogger("dovecote.control")
#: Probes between two readings of the facts of a living worker that has events.
FACTS_EVERY_PROBES = 5
#: A worker whose ranks pushed their load within this time is not asked for it: SGLang repeats it every second.
PUSHED_WITHIN_S = 5.0


class EventsPort(Protocol):
    """The event feed, as far as the fleet steers it."""

    def connect(self, source: RankSource) -> None:
        """Follow a rank; one that is followed from the same place already stays as it is."""

    def disconnect(self, target: Target) -> None:
        """Stop following a rank; what it held is forgotten."""

    def lose(self, target: Target) -> None:
        """A rank's engine is gone: forget what it held, wait for what comes."""


class Examiner:
    """Looks at workers of one fleet. Belongs to the event loop.

    Args:
        config: The fleet.
        placer: Hears of loads, restarts and good probes.
        events: Is steered by what workers say.
        roll: Prompters of the workers' models.
        prompts: Where what was guessed of a cache is forgotten.
        agreement: The same for predictions and answers.
        clock: Seconds of placement.
        tell_placement: Hands the whole fleet to placement, without one worker where one is named first.
    """

    def __init__(
        self,
        config: FleetConfig,
        *,
        placer: Placer,
        events: EventsPort,
        roll: PromptRoll,
        prompts: PromptCatalogue,
        agreement: Agreement,
        tell_placement: Callable[[Worker | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s = max(1.0, config.probes.interval_s)
        self._placer = placer
        self._events = events
        self._roll = roll
        self._prompts = prompts
        self._agreement = agreement
        self._clock = clock
        self._tell_placement = tell_placement
        self.sockets: LoadSockets | None = None

    async def look_at(self, worker: Worker, probe_number: int, http: httpx.AsyncClient) -> None:
        """Look at a worker; where this process has no socket left nothing was learned, and its verdict stays."""
        was_suspect = worker.is_suspect
        try:
            await self._look_at(worker, probe_number, http)
        except OwnLimitError:
            worker.is_suspect = worker.is_suspect or was_suspect
            _log.warning("probe_skipped worker=%s reason='the router has no socket left'", worker.id)

    async def _look_at(self, worker: Worker, probe_number: int, http: httpx.AsyncClient) -> None:
        config = worker.config
        client = EngineClient(
            http, config.url, self._limit_s, sidecar_url=config.sidecar, authorization=config.authorization
        )
        was_suspect, worker.is_suspect = worker.is_suspect, False
        problem = await client.probe()
        if problem is None and (was_suspect or self._are_facts_due(worker, probe_number)):
            problem = await self._read_facts(worker, client)
        if problem is None and self._is_parity_due(worker, probe_number):
            await self._compare_again(worker, client)
        worker.problem = problem
        if problem is not None and not worker.gate.was_healthy:
            _tell_absence(worker)
        is_gone = was_suspect and problem is not None
        if worker.gate.fail_now() if is_gone else worker.gate.record(problem is None):
            if worker.gate.healthy:
                tell_health(worker)
                self._tell_placement(None)
            else:
                self.lose(worker)
        if problem is None and worker.is_usable:
            await self._see_well(worker, client, probe_number)

    async def _see_well(self, worker: Worker, client: EngineClient, probe_number: int) -> None:
        """It answers: its breakers may close, and its load is asked for unless it pushes that."""
        if self._placer.breakers:
            self._placer.handle(WorkerProbed(now_s=self._clock(), worker=worker.id))
        if worker.loads.is_pushed(len(worker.targets), self._clock(), fresh_s=PUSHED_WITHIN_S):
            return
        if worker.loads.is_mute and probe_number % FACTS_EVERY_PROBES:
            return
        asked_s = self._clock()
        told = await client.read_loads(worker.loads.asked)
        worker.loads.asked, worker.loads.is_mute = None if told is None else told[0], told is None
        for report in () if told is None or not _says_of_ranks(told[0], worker) else told[1]:
            self.report_load(worker, report, told[0] if told is not None else LoadSource.LOADS, asked_s)

    @staticmethod
    def _are_facts_due(worker: Worker, probe_number: int) -> bool:
        """Whether a worker that answers is read anew: of one without events nothing else tells that it was replaced."""
        if not worker.gate.healthy or probe_number % FACTS_EVERY_PROBES == 0:
            return True
        return not any(map(worker.find_events, worker.targets))

    async def _read_facts(self, worker: Worker, client: EngineClient) -> str | None:
        """Bring a worker's facts up to date; what went wrong, in words."""
        facts = await client.read_facts()
        if facts is None:
            return "neither /server_info nor /v1/models answers"
        before, targets, was_refused = worker.facts, worker.targets, worker.refused is not None
        if not worker.accept(facts):
            return None
        for target in set(targets).difference(worker.targets):
            self._events.disconnect(target)
        if worker.refused is not None:
            _log.error("worker_refused worker=%s reason=%r", worker.id, worker.refused)
        if before is not None and before.start_mark != facts.start_mark:
            _log.warning("worker_restarted worker=%s", worker.id)
            self._forget_guesses(worker)
            if facts.sidecar_url is None:
                # A sidecar's mark is its own: the engine beside it may have gone on.
                self._placer.handle(StateLost(now_s=self._clock(), worker=worker.id))
        try:
            await self._roll.compare(worker, client)
        except OwnLimitError:
            # What it said is to be taken in whole, or once more.
            worker.facts = before
            raise
        self._follow(worker, is_restarted=before is not None)
        self._listen_to_load(worker)
        if worker.gate.healthy:
            if was_refused:
                tell_health(worker)
            self._tell_placement(None)
        return None

    def _is_parity_due(self, worker: Worker, probe_number: int) -> bool:
        """After so many requests, and now and then while it earns no credit for it."""
        if worker.requests_since_parity >= PARITY_EVERY_REQUESTS:
            return True
        return worker.no_credit is not None and probe_number % FACTS_EVERY_PROBES == 0

    async def _compare_again(self, worker: Worker, client: EngineClient) -> None:
        before = worker.no_credit
        await self._roll.compare(worker, client)
        if worker.no_credit != before:
            if worker.no_credit is None:
                _log.info("cache_credit_again worker=%s parity=%s", worker.id, worker.parity)
            self._follow(worker, is_restarted=False)

    def _follow(self, worker: Worker, *, is_restarted: bool) -> None:
        """Steer the event feed after new facts."""
        for target in worker.targets:
            source = worker.find_source(target)
            if source is None:
                self._events.disconnect(target)
                continue
            if is_restarted and source.snapshot_url is None:
                self._events.lose(target)
            self._events.connect(source)

    def _listen_to_load(self, worker: Worker) -> None:
        ports = None if worker.facts is None else worker.facts.load_ports
        if self.sockets is None or (ports is not None and not worker.may_reach(ports.host)):
            return
        sockets = {target.dp_rank: find_sockets(ports, target.dp_rank) for target in worker.targets}
        endpoints = {rank: each.endpoint for rank, each in sockets.items() if each is not None}
        self.sockets.follow(worker.id, endpoints, "" if ports is None else ports.topic)

    def report_load(self, worker: Worker, report: LoadReport, source: LoadSource, taken_s: float) -> None:
        """A rank told its load."""
        if report.dp_rank >= len(worker.targets):
            return
        worker.loads.record(report, taken_s - report.age_s, source)
        self.tell_load(worker, report.dp_rank)

    def tell_load(self, worker: Worker, dp_rank: int) -> None:
        """Placement is told what a rank said of its load last."""
        taken, now_s = worker.loads.by_rank[dp_rank], self._clock()
        report = taken.report
        self._placer.handle(
            LoadReported(
                now_s=now_s,
                target=Target(worker.id, dp_rank),
                running_requests=report.running_requests,
                waiting_requests=report.waiting_requests,
                waiting_tokens=report.waiting_uncached_tokens,
                used_tokens=report.used_tokens,
                capacity_tokens=report.capacity_tokens,
                age_s=now_s - taken.taken_s,
            )
        )

    def lose(self, worker: Worker) -> None:
        """A worker is dead: no credit, no charge, no home there."""
        _log.warning("worker_unhealthy worker=%s reason=%r", worker.id, worker.problem)
        for target in worker.targets:
            self._events.lose(target)
        self._forget_guesses(worker)
        self._tell_placement(worker)
        self._tell_placement(None)

    def let_go(self, worker: Worker) -> None:
        """A worker left: nothing of it is followed or remembered any more."""
        for target in worker.targets:
            self._events.disconnect(target)
        self._forget_guesses(worker)
        self._prompts.approximate.admit(worker.id, admitted=False)
        if self.sockets is not None:
            self.sockets.leave(worker.id)

    def _forget_guesses(self, worker: Worker) -> None:
        """Its process is another one now: what was learned of the old one's cache does not hold."""
        for target in worker.targets:
            self._prompts.approximate.forget(target)
        self._agreement.forget(worker.targets)


def tell_health(worker: Worker) -> None:
    """A worker that lives is logged as healthy unless it was refused, which was logged as such."""
    if worker.is_usable:
        _log.info("worker_healthy worker=%s url=%s", worker.id, worker.config.url)


def _tell_absence(worker: Worker) -> None:
    """A worker that never answered is logged once; it was never healthy, so that no verdict changes."""
    if not worker.is_absence_logged:
        worker.is_absence_logged = True
        _log.warning("worker_unhealthy worker=%s reason=%r", worker.id, worker.problem)


def _says_of_ranks(source: LoadSource, worker: Worker) -> bool:
    """A count of the whole server says nothing of one rank of several."""
    return source is not LoadSource.COUNT or len(worker.targets) == 1
