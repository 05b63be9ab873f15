"""Watches the workers and tells placement and events what becomes of them.

One task a worker: probe, facts when they are new, load. A worker that dies loses what it held and what it was
charged at once; one that comes back is read anew and starts without credit.
"""

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import httpx

from router.config import FleetConfig
from router.control.engine_client import EngineClient, OwnLimitError
from router.control.health import HealthGate
from router.control.parity import PARITY_EVERY_REQUESTS, Parity, probe_parity
from router.control.worker import Worker
from router.fleet.agreement import Agreement
from router.fleet.source import RankSource
from router.placement.placer import Placer
from router.placement.stimuli import FleetChanged, LoadReported, StateLost, WorkerProbed
from router.prompt import ModelPrompts, PromptCatalogue, Prompter
from router.prompt.loading import load_prompter
from wire.ids import Target, WorkerId
from wire.load import LoadReport

_log = logging.getLogger("dovecote.control")
#: Probes between two readings of the facts of a living worker that has events.
FACTS_EVERY_PROBES = 5
#: Shortest pause after a worker was reported unreachable, so that a burst of reports is one probe.
_URGENT_PAUSE_S = 0.05


class EventsPort(Protocol):
    """The event feed, as far as the fleet steers it."""

    def connect(self, source: RankSource) -> None:
        """Follow a rank; one that is followed from the same place already stays as it is."""

    def disconnect(self, target: Target) -> None:
        """Stop following a rank; what it held is forgotten."""

    def lose(self, target: Target) -> None:
        """A rank's engine is gone: forget what it held, wait for what comes."""


class FleetWatch:
    """The workers of one fleet. Belongs to the event loop that starts it."""

    def __init__(
        self,
        config: FleetConfig,
        *,
        placer: Placer,
        events: EventsPort,
        prompts: PromptCatalogue,
        agreement: Agreement | None = None,
        clock: Callable[[], float] = time.monotonic,
        parity_every_requests: int = PARITY_EVERY_REQUESTS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._tls = tls
        self._parity_every_requests = parity_every_requests
        self._placer = placer
        self._events = events
        self._prompts = prompts
        self._agreement = agreement or Agreement()
        self._clock = clock
        self._prompters: dict[Path, Prompter | str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._urgent: dict[WorkerId, asyncio.Event] = {}
        #: Every configured worker, in the order of the configuration.
        self.workers: dict[WorkerId, Worker] = {}
        for entry in config.workers:
            gate = HealthGate(unhealthy_after=config.probes.unhealthy_after, healthy_after=config.probes.healthy_after)
            worker = Worker(entry, gate)
            self.workers[worker.id] = worker

    @property
    def model(self) -> str | None:
        """Model name of the whole fleet by configuration, None where workers say theirs."""
        return self._config.model

    async def start(self) -> None:
        """Probe every worker once, then go on in the background."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=3.0)
        self._client = httpx.AsyncClient(
            limits=limits, trust_env=False, follow_redirects=False, verify=self._tls or True
        )
        self._urgent = {worker: asyncio.Event() for worker in self.workers}
        await asyncio.gather(*(self._probe(worker, 0) for worker in self.workers.values()))
        self._tell_placement()
        self._tasks = [asyncio.create_task(self._watch(worker)) for worker in self.workers.values()]

    async def stop(self) -> None:
        """End every task and connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()

    def find_url(self, target: Target) -> str | None:
        """Base URL of a rank's worker."""
        worker = self.workers.get(target.worker)
        return None if worker is None else worker.config.url

    def find_ranks(self, worker: WorkerId) -> frozenset[Target]:
        """Every rank of a worker."""
        known = self.workers.get(worker)
        return frozenset() if known is None else frozenset(known.targets)

    def find_key(self, worker: WorkerId) -> bytes | None:
        """Value of the `authorization` line that a worker asks for; None where it asks for none."""
        known = self.workers.get(worker)
        return None if known is None else known.config.authorization

    def find_block_sizes(self) -> frozenset[int]:
        """Tokens a block, for every size that workers say they have."""
        sizes = (worker.facts.block_tokens for worker in self.workers.values() if worker.facts is not None)
        return frozenset(size for size in sizes if size is not None)

    def has_bigram(self) -> bool:
        """Whether some worker keys its cache by pairs of tokens."""
        return any(worker.facts is not None and worker.facts.is_bigram for worker in self.workers.values())

    def find_health(self) -> dict[WorkerId, bool]:
        """Whether each worker may get requests."""
        return {name: worker.is_usable for name, worker in self.workers.items()}

    def find_parity(self) -> dict[WorkerId, str]:
        """What the last comparison of ids gave for each worker."""
        return {name: worker.parity for name, worker in self.workers.items()}

    def count_placed(self, worker: WorkerId) -> None:
        """A request was placed there; after so many its ids are compared again."""
        known = self.workers.get(worker)
        if known is not None:
            known.requests_since_parity += 1
            if known.requests_since_parity == self._parity_every_requests:
                self._urgent[worker].set()

    def report_unreachable(self, worker: WorkerId) -> None:
        """A request found nobody listening: out at once, and probed soon."""
        known = self.workers.get(worker)
        if known is None:
            return
        if known.gate.fail_now():
            known.problem = "does not accept connections"
            self._lose(known)
        self._urgent[worker].set()

    def report_reconnect(self, worker: WorkerId) -> None:
        """Its event connection broke or stands anew, as when a process ends and starts: probed soon and read anew."""
        known, urgent = self.workers.get(worker), self._urgent.get(worker)
        if known is not None and urgent is not None:
            known.is_suspect = True
            urgent.set()

    async def _watch(self, worker: Worker) -> None:
        probe_number = 0
        urgent = self._urgent[worker.id]
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.probes.interval_s):
                    await urgent.wait()
                    await asyncio.sleep(_URGENT_PAUSE_S)
            urgent.clear()
            probe_number += 1
            try:
                await self._probe(worker, probe_number)
            except Exception:  # noqa: BLE001
                # The watch of a worker must outlive whatever that worker answers.
                _log.exception("probe_failed worker=%s", worker.id)

    async def _probe(self, worker: Worker, probe_number: int) -> None:
        """Look at a worker; where this process has no socket left nothing was learned, and its verdict stays."""
        was_suspect = worker.is_suspect
        try:
            await self._look_at(worker, probe_number)
        except OwnLimitError:
            worker.is_suspect = worker.is_suspect or was_suspect
            _log.warning("probe_skipped worker=%s reason='the router has no socket left'", worker.id)

    async def _look_at(self, worker: Worker, probe_number: int) -> None:
        limit_s = max(1.0, self._config.probes.interval_s)
        client = EngineClient(
            self._client,
            worker.config.url,
            limit_s,
            sidecar_url=worker.config.sidecar,
            authorization=worker.config.authorization,
        )
        was_suspect, worker.is_suspect = worker.is_suspect, False
        problem = await client.probe()
        if problem is None and (was_suspect or self._are_facts_due(worker, probe_number)):
            problem = await self._read_facts(worker, client)
        if problem is None and self._is_parity_due(worker, probe_number):
            await self._compare_again(worker, client)
        worker.problem = problem
        if problem is not None and not worker.gate.was_healthy:
            self._tell_absence(worker)
        is_gone = was_suspect and problem is not None
        if worker.gate.fail_now() if is_gone else worker.gate.record(problem is None):
            if worker.gate.healthy:
                self._tell_health(worker)
                self._tell_placement()
            else:
                self._lose(worker)
        if problem is None and worker.is_usable:
            if self._placer.breakers:
                self._placer.handle(WorkerProbed(now_s=self._clock(), worker=worker.id))
            self._report_loads(worker, await client.read_loads() or ())

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
            await self._register_prompts(worker, client)
        except OwnLimitError:
            # What it said is to be taken in whole, or once more.
            worker.facts = before
            raise
        self._follow(worker, is_restarted=before is not None)
        if worker.gate.healthy:
            if was_refused:
                self._tell_health(worker)
            self._tell_placement()
        return None

    def _is_parity_due(self, worker: Worker, probe_number: int) -> bool:
        """After so many requests, and now and then while it stands against the worker."""
        if worker.requests_since_parity >= self._parity_every_requests:
            return True
        return worker.parity == Parity.FAILED and probe_number % FACTS_EVERY_PROBES == 0

    async def _compare_again(self, worker: Worker, client: EngineClient) -> None:
        before = worker.no_credit
        await self._register_prompts(worker, client)
        if worker.no_credit != before:
            if worker.no_credit is None:
                _log.info("cache_credit_again worker=%s parity=%s", worker.id, worker.parity)
            self._follow(worker, is_restarted=False)

    async def _register_prompts(self, worker: Worker, client: EngineClient) -> None:
        """Find the worker's tokenizer and compare its ids with the engine's."""
        await self._compare(worker, client)
        self._prompts.approximate.admit(worker.id, admitted=worker.describe_credit() == "approximate")

    async def _compare(self, worker: Worker, client: EngineClient) -> None:
        worker.requests_since_parity = 0
        facts = worker.facts
        if facts is None or not facts.models:
            return
        folder = worker.find_tokenizer(self._config.tokenizer.path if self._config.tokenizer else None)
        prompter = folder if isinstance(folder, str) else await self._load_prompter(folder)
        if isinstance(prompter, str):
            self._refuse_credit(worker, prompter)
            return
        worker.parity = await probe_parity(client, prompter, facts.models[0])
        if worker.parity == Parity.FAILED:
            self._refuse_credit(worker, "its ids of a prompt differ from the router's (parity failed)")
            return
        worker.no_credit = None
        base = facts.models[0]
        for name in facts.models:
            self._prompts.put(
                name, ModelPrompts(prompter, facts.adapters.get(name, base), name if name in facts.adapters else None)
            )
        if self._config.model is not None:
            self._prompts.put(self._config.model, ModelPrompts(prompter, base))

    @staticmethod
    def _refuse_credit(worker: Worker, reason: str) -> None:
        worker.no_credit = reason
        _log.warning("no_cache_credit worker=%s reason=%r", worker.id, reason)

    async def _load_prompter(self, folder: Path) -> Prompter | str:
        """The prompter of a folder, loaded once; in words why there is none."""
        known = self._prompters.get(folder)
        if known is None:
            try:
                known = await asyncio.to_thread(load_prompter, folder)
            except (ValueError, OSError) as error:
                known = f"no tokenizer: {error}"
            self._prompters[folder] = known
        return known

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

    @staticmethod
    def _tell_health(worker: Worker) -> None:
        """A worker that lives is logged as healthy unless it was refused, which was logged as such."""
        if worker.is_usable:
            _log.info("worker_healthy worker=%s url=%s", worker.id, worker.config.url)

    @staticmethod
    def _tell_absence(worker: Worker) -> None:
        """A worker that never answered is logged once; it was never healthy, so that no verdict changes."""
        if not worker.is_absence_logged:
            worker.is_absence_logged = True
            _log.warning("worker_unhealthy worker=%s reason=%r", worker.id, worker.problem)

    def _lose(self, worker: Worker) -> None:
        """A worker is dead: no credit, no charge, no home there."""
        _log.warning("worker_unhealthy worker=%s reason=%r", worker.id, worker.problem)
        for target in worker.targets:
            self._events.lose(target)
        self._forget_guesses(worker)
        self._tell_placement(without=worker.id)
        self._tell_placement()

    def _forget_guesses(self, worker: Worker) -> None:
        """Its process is another one now: what was learned of the old one's cache does not hold."""
        for target in worker.targets:
            self._prompts.approximate.forget(target)
        self._agreement.forget(worker.targets)

    def _tell_placement(self, *, without: WorkerId | None = None) -> None:
        """Hand the whole fleet to placement; a worker left out loses what it was charged."""
        kept: Iterable[Worker] = (worker for name, worker in self.workers.items() if name != without)
        ranks = tuple(rank for worker in kept for rank in worker.to_rank_facts(self._config.model))
        self._placer.handle(FleetChanged(now_s=self._clock(), ranks=ranks))

    def _report_loads(self, worker: Worker, reports: Iterable[LoadReport]) -> None:
        now_s = self._clock()
        for report in reports:
            self._placer.handle(
                LoadReported(
                    now_s=now_s,
                    target=Target(worker.id, report.dp_rank),
                    running_requests=report.running_requests,
                    waiting_requests=report.waiting_requests,
                    waiting_tokens=report.waiting_uncached_tokens,
                    used_tokens=report.used_tokens,
                    capacity_tokens=report.capacity_tokens,
                )
            )
