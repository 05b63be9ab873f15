"""The workers of a fleet while they come, change and go: one task each, and the answers that others ask for.

Sources tell the registry, the registry says what follows, and here that is done: a worker that is added is watched from
then on, one that is gone gets nothing new, finishes what it has and leaves, and with it goes all that was kept of it.
Source: docs/faults.md D05, D06, D08.
"""

import asyncio
import contextlib
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import httpx

from router.config.fleet import FleetConfig
from router.control.examiner import EventsPort, Examiner
from router.control.health import HealthGate
from router.control.load_sockets import LoadSockets
from router.control.loads import LoadSource
from router.control.parity import PARITY_EVERY_REQUESTS
from router.control.prompt_roll import PromptRoll
from router.control.registry import Entry, Listed, Registry, Word, WorkerAdded, WorkerChanged, WorkerGone
from router.control.sources import API, CONFIG, FILE, Source
from router.control.worker import Worker
from router.fleet.agreement import Agreement
from router.lookout import own_time
from router.placement.placer import Placer
from router.placement.stimuli import FleetChanged
from router.prompt import PromptCatalogue
from wire.ids import Target, WorkerId
from wire.load import LoadReport

__all__ = ["EventsPort", "FleetWatch"]

_log = logging.getLogger("dovecote.control")
#: Shortest pause after a worker was reported unreachable, so that a burst of reports is one probe.
_URGENT_PAUSE_S = 0.05
#: How long the start waits for the first word of every source.
FIRST_WORD_S = 5.0
#: Pause after which a source that ended, which none should, is begun anew.
RESTART_S = 5.0


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
        tls: ssl.SSLContext | None = None,
        sources: Sequence[Source] = (),
        on_left: Callable[[tuple[Target, ...]], None] = lambda _targets: None,
    ) -> None:
        """Make the watch of the workers that are configured; `start` begins.

        Args:
            config: The fleet.
            placer: Is told the fleet.
            events: Is steered by it.
            prompts: Is filled by it.
            agreement: How predictions and answers agree.
            clock: Seconds of placement.
            tls: How workers are spoken to over TLS.
            sources: Who else knows of workers.
            on_left: Is told the ranks of a worker that left for good.
        """
        self._config = config
        self._tls = tls
        self._placer = placer
        self._clock = clock
        self._on_left = on_left
        self._sources = sources
        self._roll = PromptRoll(config, prompts)
        self._examiner = Examiner(
            config,
            placer=placer,
            events=events,
            roll=self._roll,
            prompts=prompts,
            agreement=agreement or Agreement(),
            tell_placement=self._tell_placement,
            clock=clock,
        )
        self._client: httpx.AsyncClient | None = None
        self._watches: dict[WorkerId, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._source_tasks: list[asyncio.Task[None]] = []
        self._urgent: dict[WorkerId, asyncio.Event] = {}
        self._looked: dict[WorkerId, asyncio.Event] = {}
        self._heard: dict[str, asyncio.Event] = {source.name: asyncio.Event() for source in sources}
        self._is_started = False
        self.registry = Registry((CONFIG, FILE, *(s.name for s in sources if s.name != FILE), API))
        #: Every worker that is watched, those that leave included, in the order in which they came.
        self.workers: dict[WorkerId, Worker] = {}
        self.apply(Listed(CONFIG, tuple(map(Entry, config.workers))))

    @property
    def model(self) -> str | None:
        """Model name of the whole fleet by configuration, None where workers say theirs."""
        return self._config.model

    async def start(self) -> None:
        """Hear every source and probe every worker once, then go on in the background."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=3.0)
        self._client = httpx.AsyncClient(
            limits=limits, trust_env=False, follow_redirects=False, verify=self._tls or True
        )
        self._examiner.sockets = LoadSockets(self._hear_load)
        self._source_tasks = [asyncio.create_task(self._follow(source)) for source in self._sources]
        with contextlib.suppress(TimeoutError):
            async with own_time(FIRST_WORD_S):
                await asyncio.gather(*(heard.wait() for heard in self._heard.values()))
        for worker in self.workers.values():
            self._begin(worker)
        await asyncio.gather(*(looked.wait() for looked in list(self._looked.values())))
        self._is_started = True
        self._tell_placement(None)
        for worker in self.workers.values():
            for dp_rank in worker.loads.by_rank:
                self._examiner.tell_load(worker, dp_rank)

    async def stop(self) -> None:
        """End every task and connection."""
        tasks = [*self._source_tasks, *self._watches.values(), *self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watches.clear()
        if self._examiner.sockets is not None:
            await self._examiner.sockets.stop()
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    # Who belongs to the fleet

    async def _follow(self, source: Source) -> None:
        def report(word: Word) -> None:
            self.apply(word)
            self._heard[source.name].set()

        while True:
            try:
                await source.run(report)
            except Exception:  # noqa: BLE001
                # The fleet as it is must outlive a defect in whoever tells of it.
                _log.exception("source_failed source=%s", source.name)
            await asyncio.sleep(RESTART_S)

    def apply(self, word: Word) -> None:
        """A source told something: do what follows.

        Raises:
            ValueError: It names too many workers; nothing changes.
        """
        edits = self.registry.apply(word)
        for edit in edits:
            match edit:
                case WorkerAdded(entry):
                    self._add(entry)
                case WorkerChanged(before, entry):
                    self._change(before, entry)
                case WorkerGone(entry):
                    self._let_go(entry)
        if edits:
            self._tell_placement(None)

    def _add(self, entry: Entry) -> None:
        known = self.workers.get(entry.worker)
        if known is not None and known.config == entry.config:
            known.entry, known.is_leaving = entry, False
            return
        if known is not None:
            self._drop(known)
        probes = self._config.probes
        worker = Worker(entry, HealthGate(unhealthy_after=probes.unhealthy_after, healthy_after=probes.healthy_after))
        self.workers[worker.id] = worker
        self._urgent[worker.id], self._looked[worker.id] = asyncio.Event(), asyncio.Event()
        if self._client is not None:
            _log.info("worker_added worker=%s url=%s", worker.id, entry.config.url)
            self._begin(worker)

    def _change(self, before: Entry, entry: Entry) -> None:
        worker = self.workers.get(entry.worker)
        if worker is None or before.config != entry.config:
            _log.info("worker_changed worker=%s", entry.worker)
            self._add(entry)
            return
        if entry.draining and not before.draining:
            _log.info("worker_draining worker=%s", worker.id)
        worker.entry = entry
        self._urgent[worker.id].set()

    def _let_go(self, entry: Entry) -> None:
        """A worker is gone by its source: it leaves at once where it has nothing to finish, or cannot."""
        worker = self.workers.get(entry.worker)
        if worker is None:
            return
        worker.is_leaving = True
        if self._client is None or not worker.is_usable or self._is_idle(worker):
            self._drop(worker)
        else:
            _log.info("worker_leaving worker=%s", worker.id)
            self._urgent[worker.id].set()

    def _begin(self, worker: Worker) -> None:
        if worker.id not in self._watches:
            self._watches[worker.id] = asyncio.get_running_loop().create_task(self._watch(worker))

    def _drop(self, worker: Worker) -> None:
        """A worker left: nothing of it stays, and whoever bears its name next begins anew."""
        del self.workers[worker.id]
        self._urgent.pop(worker.id).set()
        self._looked.pop(worker.id).set()
        task = self._watches.pop(worker.id, None)
        if task is not None:
            # It may be this very task; either way its end is waited for at the stop.
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        self._examiner.let_go(worker)
        self._roll.settle(self.workers.values())
        self._on_left(worker.targets)
        self._tell_placement(None)
        if self._client is not None:
            _log.info("worker_left worker=%s", worker.id)

    def _is_idle(self, worker: Worker) -> bool:
        now_s = self._clock()
        return not any(self._placer.ledger.totals(target, now_s).open_requests for target in worker.targets)

    def drain(self, worker: WorkerId) -> bool:
        """An operator wants a worker to get nothing new; False where there is no such worker."""
        return self._order(worker, is_out=True)

    def resume(self, worker: WorkerId) -> bool:
        """It is to be used again; False where there is no such worker."""
        return self._order(worker, is_out=False)

    def _order(self, worker: WorkerId, *, is_out: bool) -> bool:
        known = self.workers.get(worker)
        if known is None:
            return False
        if known.is_ordered_out != is_out:
            known.is_ordered_out = is_out
            _log.info("worker_%s worker=%s", "drained" if is_out else "resumed", worker)
            self._tell_placement(None)
        return True

    # What others ask

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
        """Whether each worker can serve."""
        return {name: worker.is_usable for name, worker in self.workers.items()}

    def count_standings(self) -> Counter[str]:
        """Workers by how they stand; words of none left out."""
        return Counter(worker.find_standing().value for worker in self.workers.values())

    def count_taking(self) -> int:
        """Workers that take new requests."""
        return sum(worker.takes_requests for worker in self.workers.values())

    def find_parity(self) -> dict[WorkerId, str]:
        """What the last comparison of ids gave for each worker."""
        return {name: worker.parity for name, worker in self.workers.items()}

    def find_problems(self) -> dict[str, str]:
        """What keeps each source from knowing better."""
        return {source.name: source.problem for source in self._sources if source.problem is not None}

    def count_placed(self, worker: WorkerId) -> None:
        """A request was placed there; after so many its ids are compared again."""
        known = self.workers.get(worker)
        if known is not None:
            known.requests_since_parity += 1
            if known.requests_since_parity == PARITY_EVERY_REQUESTS:
                self._urgent[worker].set()

    def report_unreachable(self, worker: WorkerId) -> None:
        """A request found nobody listening: out at once, and probed soon."""
        known = self.workers.get(worker)
        if known is None:
            return
        if known.gate.fail_now():
            known.problem = "does not accept connections"
            self._examiner.lose(known)
        self._urgent[worker].set()

    def report_reconnect(self, worker: WorkerId) -> None:
        """Its event connection broke or stands anew, as when a process ends and starts: probed soon and read anew."""
        known, urgent = self.workers.get(worker), self._urgent.get(worker)
        if known is not None and urgent is not None:
            known.is_suspect = True
            urgent.set()

    # Watching

    async def _watch(self, worker: Worker) -> None:
        """Look at a worker again and again until it left."""
        probe_number = 0
        urgent, looked = self._urgent[worker.id], self._looked[worker.id]
        while True:
            try:
                await self._probe(worker, probe_number)
            except Exception:  # noqa: BLE001
                # The watch of a worker must outlive whatever that worker answers.
                _log.exception("probe_failed worker=%s", worker.id)
            looked.set()
            if worker.is_leaving and (not worker.gate.healthy or self._is_idle(worker)):
                self._drop(worker)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.probes.interval_s):
                    await urgent.wait()
                    await asyncio.sleep(_URGENT_PAUSE_S)
            urgent.clear()
            probe_number += 1

    async def _probe(self, worker: Worker, probe_number: int) -> None:
        if self._client is None:
            raise RuntimeError("the watch has not started")
        before = worker.facts
        await self._examiner.look_at(worker, probe_number, self._client)
        if before is not None and worker.facts is not None and worker.facts.models != before.models:
            self._roll.settle(self.workers.values())

    def _hear_load(self, name: WorkerId, report: LoadReport) -> None:
        worker = self.workers.get(name)
        if worker is not None:
            self._examiner.report_load(worker, report, LoadSource.SOCKET, self._clock())

    def _tell_placement(self, without: Worker | None) -> None:
        """Hand the whole fleet to placement; a worker left out loses what it was charged."""
        if not self._is_started:
            return
        kept: Iterable[Worker] = (worker for worker in self.workers.values() if worker is not without)
        ranks = tuple(rank for worker in kept for rank in worker.to_rank_facts(self._config.model))
        self._placer.handle(FleetChanged(now_s=self._clock(), ranks=ranks))
