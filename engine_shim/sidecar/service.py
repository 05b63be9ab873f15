"""The life of a sidecar: finds the engine, opens the mirrors, watches that it stays the engine that was found.

Belongs to one event loop. An engine that changes its model, ranks or sockets gets new mirrors, with a numbering of
another life; one that only restarts does not, for its event streams tell.
"""

import asyncio
import logging
import uuid
from secrets import randbits

import msgspec

from engine_shim.sidecar.engine_client import EngineClient
from engine_shim.sidecar.engine_facts import EngineFacts
from engine_shim.sidecar.hub import MirrorHub
from engine_shim.sidecar.mirror import Settings
from engine_shim.sidecar.redis_publisher import RedisPublisher
from prefix_index.choose import make_index
from prefix_index.layout import Layout
from wire.load import LoadReport

_log = logging.getLogger("dovecote.sidecar")
#: Probes of a living engine between two readings of its facts.
_FACTS_EVERY_PROBES = 5


class SidecarSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    engine_url: str
    #: Interface of every socket of the sidecar.
    host: str = "127.0.0.1"
    #: Ports of rank 0; 0 takes a free run, and keeps it.
    events_port_base: int = 0
    replay_port_base: int = 0
    topic: str = "kv"
    #: Namespace of the blocks; None takes the engine's base model.
    model: str | None = None
    buffer_batches: int = 10_000
    buffer_bytes: int = 64 << 20
    probe_interval_s: float = 2.0
    #: Redis to publish to for many routers, and the beginning of its streams' names; None publishes to none.
    redis_url: str | None = None
    redis_name: str = "dovecote:events"
    #: The model's cache groups as routers shall believe them, where the engine's events do not tell.
    layout: Layout | None = None


class SidecarService:
    """State that the HTTP face reads."""

    def __init__(self, settings: SidecarSettings) -> None:
        self.settings = settings
        #: The engine as it was found; None before.
        self.facts: EngineFacts | None = None
        self.hub: MirrorHub | None = None
        self.redis: RedisPublisher | None = None
        self.incarnation = ""
        #: What is wrong with the engine, in words; None while it answers.
        self.problem: str | None = "the engine was not asked yet"

    @property
    def is_ready(self) -> bool:
        """Whether the engine lives and its mirrors are open."""
        return self.problem is None and self.hub is not None and self.hub.is_alive

    @property
    def model(self) -> str:
        """Namespace of the blocks."""
        return self.settings.model or (self.facts.models[0] if self.facts is not None else "")

    async def start(self) -> None:
        """Look at the engine once, then go on in the background."""
        self._client = EngineClient(self.settings.engine_url)
        await self._probe(read_facts=True)
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End every connection and socket."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()
        await asyncio.to_thread(self._close_hub)

    async def read_loads(self) -> tuple[LoadReport, ...] | None:
        """Load of each rank, asked of the engine now."""
        return None if self.facts is None else await self._client.read_loads(self.facts)

    async def _watch(self) -> None:
        probe_number = 0
        while True:
            # An engine that is starting is looked at often.
            await asyncio.sleep(self.settings.probe_interval_s if self.hub is not None else 0.25)
            probe_number += 1
            try:
                await self._probe(read_facts=probe_number % _FACTS_EVERY_PROBES == 0)
            except Exception:  # noqa: BLE001
                # The watch must outlive whatever the engine answers.
                _log.exception("probe_failed")

    async def _probe(self, *, read_facts: bool) -> None:
        if not await self._client.is_healthy():
            self._see_problem(f"{self.settings.engine_url}: /health does not answer well")
            return
        if read_facts or self.hub is None or self.problem is not None:
            facts = await self._client.read_facts()
            if isinstance(facts, str):
                self._see_problem(facts)
                return
            if facts != self.facts or self.hub is None:
                await asyncio.to_thread(self._accept, facts)
        self._see_problem(None)

    def _see_problem(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem is None:
                _log.info("engine_healthy url=%s", self.settings.engine_url)
            else:
                _log.warning("engine_problem reason=%r", problem)

    def _accept(self, facts: EngineFacts) -> None:
        """Take what the engine says of itself; open mirrors where they must be others than before."""
        before, self.facts = self.facts, facts
        is_same = before is not None and _identify(before) == _identify(facts)
        if is_same and self.hub is not None:
            return
        ports = None if self.hub is None or self.hub.rank_count != facts.dp_size else self.hub.ports
        self._close_hub()
        settings = self.settings
        self.incarnation = uuid.uuid4().hex
        shared = Settings(
            model=self.model,
            incarnation=self.incarnation,
            topic=settings.topic,
            is_bigram=facts.is_bigram,
            buffer_batches=settings.buffer_batches,
            buffer_bytes=settings.buffer_bytes,
        )
        self.hub = MirrorHub(
            facts.sources,
            make_index(name_key=randbits(64)),
            shared,
            host=settings.host,
            events_port_base=settings.events_port_base if ports is None else ports.events_base,
            replay_port_base=settings.replay_port_base if ports is None else ports.replay_base,
        )
        if settings.redis_url is not None:
            self.redis = RedisPublisher(
                settings.redis_url, settings.redis_name, self.hub, max_entries=settings.buffer_batches
            )
            self.hub.on_news = self.redis.wake
            self.redis.start()
        self.hub.start()
        _log.info("mirrors_open ranks=%d model=%s", facts.dp_size, self.model)

    def _close_hub(self) -> None:
        if self.hub is not None:
            self.hub.stop()
        if self.redis is not None:
            self.redis.stop()
        self.hub = self.redis = None


def _identify(facts: EngineFacts) -> object:
    """What a mirror belongs to."""
    return facts.models[0], facts.sources, facts.is_bigram
