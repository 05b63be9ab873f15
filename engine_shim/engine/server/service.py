"""The parts of one serving process and what connects them: ranks, hub, publisher, tokenizer, metrics.

The only place that constructs them. Routes get the service and nothing else.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from engine_shim.engine.engine import Engine
from engine_shim.engine.publish import EventDialect, EventPublisher, EventSockets
from engine_shim.engine.publish.replay import ReplayCounts
from engine_shim.engine.server.hint_outcomes import HintOutcomes
from engine_shim.engine.server.hub import RequestHub
from engine_shim.engine.server.limits import ServingLimits
from engine_shim.engine.server.metrics import EngineMetrics
from engine_shim.engine.server.prompting import Prompting
from engine_shim.engine.server.rank_thread import RankPorts, RankThread
from engine_shim.engine.spec import EngineSpec
from engine_shim.engine.tokenizer import Tokenizer
from wire.events import Event
from wire.hints import decode_hints
from wire.malformed import Malformed


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line decides."""

    spec: EngineSpec
    #: Name under which the model is served.
    model: str = "dovecote-toy"
    dp_size: int = 1
    #: Interface of the hint outcomes' sockets.
    host: str = "127.0.0.1"
    #: None turns event publishing off.
    event_sockets: EventSockets | None
    dialect: EventDialect = EventDialect.SGLANG_MAP
    limits: ServingLimits = ServingLimits()


class EngineService:
    """A running engine of `dp_size` ranks."""

    def __init__(
        self,
        settings: ServiceSettings,
        tokenizer: Tokenizer,
        build_engine: Callable[[int], Engine],
        *,
        embed: Callable[[Sequence[int]], list[float]] | None = None,
    ) -> None:
        self.settings = settings
        #: Makes a vector of a text's ids; None where the forward has no hidden states.
        self.embed = embed
        self.tokenizer = tokenizer
        self.clock = time.monotonic
        self.prompting = Prompting(tokenizer, inline_chars=settings.limits.inline_chars)
        self.hub = RequestHub(settings.spec, self.clock, settings.dp_size)
        self.ranks = tuple(
            RankThread(
                rank,
                RankPorts(
                    build_engine=partial(build_engine, rank),
                    publish=partial(self._publish, rank),
                    deliver=self.hub.deliver,
                    clock=self.clock,
                ),
            )
            for rank in range(settings.dp_size)
        )
        self.publisher = _open_publisher(settings)
        self.hint_outcomes = HintOutcomes(settings.host)
        replays = ReplayCounts() if self.publisher is None else self.publisher.replay_counts
        self.metrics = EngineMetrics(self.ranks, self._count_batches, replays)

    def start(self) -> None:
        """Start every thread; must run on the event loop that serves."""
        self.hub.attach(asyncio.get_running_loop(), self.ranks)
        self.hint_outcomes.start()
        if self.publisher is not None:
            self.publisher.start()
        for rank in self.ranks:
            rank.start()

    def stop(self, timeout_s: float = 1.0) -> bool:
        """End every thread and close the sockets; False when a step outlasts `timeout_s`, whose sockets stay open."""
        self.hub.drain()
        self.hub.fail_all()
        self.prompting.close()
        self.hint_outcomes.close()
        deadline_s = time.monotonic() + timeout_s
        ended = [rank.stop(max(0.0, deadline_s - time.monotonic())) for rank in self.ranks]
        if all(ended) and self.publisher is not None:
            self.publisher.close()
        return all(ended)

    def take_hints(self, envelope: bytes) -> None:
        """Answer the hints that came with a request on the outcome topic; advice that makes no sense is left alone."""
        if envelope and not isinstance(hints := decode_hints(envelope), Malformed):
            self.hint_outcomes.answer(hints)

    def describe_events(self) -> dict[str, object] | None:
        """The `kv_events` block of `/server_info`; None when nothing is published."""
        block_tokens = self.settings.spec.page_tokens
        return None if self.publisher is None else self.publisher.describe(block_tokens=block_tokens)

    def _publish(self, dp_rank: int, events: tuple[Event, ...]) -> None:
        if self.publisher is not None:
            self.publisher.topics[dp_rank].publish(events, time.time())

    def _count_batches(self, dp_rank: int) -> int:
        return 0 if self.publisher is None else self.publisher.topics[dp_rank].published_batches


def _open_publisher(settings: ServiceSettings) -> EventPublisher | None:
    if settings.event_sockets is None:
        return None
    return EventPublisher(
        settings.event_sockets,
        dp_size=settings.dp_size,
        encode=settings.dialect.encoder(),
        replays_topic=settings.dialect.replays_topic,
    )
