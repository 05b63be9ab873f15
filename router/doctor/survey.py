"""Asks every worker of a configuration what the router would ask it, and listens at its sockets."""

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from router.config.fleet import FleetConfig
from router.config.workers import EventsMode
from router.control.engine_client import EngineClient, OwnLimitError
from router.control.health import HealthGate
from router.control.parity import probe_parity
from router.control.registry import Entry, Listed, Registry
from router.control.source_list import make_sources
from router.control.sources import CONFIG
from router.control.worker import Worker
from router.doctor.findings import Check, Finding, Level, RankSeen, WorkerSeen
from router.doctor.sockets import look_at_sockets
from router.lookout import own_time
from router.prompt.loading import load_prompter
from router.tls import make_worker_context

#: Workers looked at together.
WORKERS_AT_ONCE = 16


async def find_workers(config: FleetConfig, limit_s: float) -> tuple[list[Entry], list[Finding]]:
    """Workers of every source, and what is wrong with sources that name none in time."""
    sources = make_sources(config.discovery)
    registry = Registry((CONFIG, *(source.name for source in sources)))
    registry.apply(Listed(CONFIG, tuple(map(Entry, config.workers))))
    findings = []
    for source in sources:
        heard = asyncio.Event()

        def report(word: object, heard: asyncio.Event = heard) -> None:
            registry.apply(word)  # type: ignore[arg-type]  # a word of the source
            heard.set()

        task = asyncio.create_task(source.run(report))
        try:
            async with own_time(limit_s):
                await heard.wait()
        except TimeoutError:
            said = f"{source.name}: {source.problem or 'it said nothing in time'}"
            change = "see the keys of `discovery`, and what the router's account may do"
            findings.append(Finding("fleet", Check.DISCOVERY, Level.PROBLEM, said, change))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return list(registry.fleet.values()), findings


async def look_at_all(config: FleetConfig, entries: Iterable[Entry], limit_s: float) -> list[WorkerSeen]:
    """Look at every worker; one that hangs holds up none of the others."""
    gate = asyncio.Semaphore(WORKERS_AT_ONCE)
    verify = make_worker_context(config.worker_tls) or True
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, verify=verify) as http:

        async def look(entry: Entry) -> WorkerSeen:
            async with gate:
                return await _look_at(config, entry, http, limit_s)

        return list(await asyncio.gather(*map(look, entries)))


async def _look_at(config: FleetConfig, entry: Entry, http: httpx.AsyncClient, limit_s: float) -> WorkerSeen:
    settings = entry.config
    client = EngineClient(
        http, settings.url, limit_s, sidecar_url=settings.sidecar, authorization=settings.authorization
    )
    worker = Worker(entry, HealthGate(unhealthy_after=1, healthy_after=1))
    try:
        begun_s = time.monotonic()
        problem = await client.probe()
        health_s = time.monotonic() - begun_s
        facts = None if problem is not None else await client.read_facts()
        if problem is not None or facts is None:
            return WorkerSeen(worker=worker.id, url=settings.url, health_problem=problem, health_s=health_s)
        worker.accept(facts)
        no_tokenizer, parity = await _compare_ids(config, worker, client)
        load = await client.read_loads()
        return WorkerSeen(
            worker=worker.id,
            url=settings.url,
            health_s=health_s,
            facts=facts,
            refused=worker.refused,
            no_events=worker.explain_no_credit(),
            is_switched_off=settings.events is EventsMode.OFF,
            has_sidecar=settings.sidecar is not None,
            ranks=await _look_at_ranks(worker, limit_s),
            parity=parity,
            no_tokenizer=no_tokenizer,
            load=None if load is None else load[0],
            pushes_load=facts.load_ports is not None,
            clock_ahead_s=await _compare_clocks(http, settings.url, settings.authorization, limit_s),
        )
    except OwnLimitError as error:
        said = f"this machine has no socket left to ask with ({error})"
        return WorkerSeen(worker=worker.id, url=settings.url, health_problem=said)


async def _compare_ids(config: FleetConfig, worker: Worker, client: EngineClient) -> tuple[str | None, str]:
    """Why there is no tokenizer, and what the comparison of ids gave."""
    folder = worker.find_tokenizer(config.tokenizer.path if config.tokenizer else None)
    if isinstance(folder, str):
        return folder, "unknown"
    try:
        prompter = await asyncio.to_thread(load_prompter, folder)
    except (ValueError, OSError) as error:
        return f"no tokenizer: {error}", "unknown"
    models = () if worker.facts is None else worker.facts.models
    return None, "unknown" if not models else str(await probe_parity(client, prompter, models[0]))


async def _look_at_ranks(worker: Worker, limit_s: float) -> tuple[RankSeen, ...]:
    found = [(target.dp_rank, worker.find_events(target)) for target in worker.targets]
    looks = (look_at_sockets(dp_rank, events, limit_s) for dp_rank, events in found if events is not None)
    return tuple(await asyncio.gather(*looks))


async def _compare_clocks(http: httpx.AsyncClient, url: str, key: bytes | None, limit_s: float) -> float | None:
    """Seconds by which its clock is ahead, by the `Date` of an answer; None where it gives none."""
    headers = {} if key is None else {"authorization": key.decode("latin-1")}
    before = datetime.now(UTC)
    try:
        async with own_time(limit_s):
            response = await http.get(f"{url}/health", headers=headers, timeout=None)
        told = parsedate_to_datetime(response.headers["date"])
    except (httpx.HTTPError, OSError, TimeoutError, KeyError, ValueError, TypeError):
        return None
    after = datetime.now(UTC)
    if told.tzinfo is None:
        return None
    # The header names the second that had begun: it is right by any clock between that second and the next.
    ahead_s = (told - after).total_seconds()
    behind_s = (before - told).total_seconds() - 1.0
    return ahead_s if ahead_s > 0 else -behind_s if behind_s > 0 else 0.0
