"""One worker as the control plane knows it: configuration, facts, verdict. Pure."""

from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from router.config.workers import EventsMode, EventSource, WorkerConfig
from router.control.facts import (
    ContradictionError,
    WorkerFacts,
    check_facts,
    find_leg_problem,
    find_rank_events,
    shift_port,
)
from router.control.health import HealthGate
from router.control.loads import WorkerLoads
from router.control.registry import Entry
from router.fleet.rank import RankFacts
from router.fleet.role import Bootstrap, Engine, Role
from router.fleet.source import RankSource
from router.prompt.loading import has_tokenizer
from wire.event_sources import RankEvents
from wire.ids import Target
from wire.redis_entries import name_stream

#: Hosts at which the router itself waits for the engine to connect.
_BOUND_HOSTS = ("tcp://*:", "tcp://0.0.0.0:", "tcp://[::]:")


class Standing(StrEnum):
    """How a worker stands, the worst that holds."""

    #: It gets requests.
    READY = "ready"
    #: Its source does not want it to get any.
    NOT_READY = "not_ready"
    #: It finishes what it has.
    DRAINING = "draining"
    #: The same, and leaves.
    LEAVING = "leaving"
    #: It lives, and what it says of itself cannot be used.
    REFUSED = "refused"
    #: It does not answer.
    UNHEALTHY = "unhealthy"


class Worker:
    """State of one engine process. Written by the fleet watch only."""

    def __init__(self, entry: Entry, gate: HealthGate) -> None:
        #: As its source describes it.
        self.entry = entry
        self.id = entry.worker
        self.gate = gate
        #: Its source has it no more: it leaves when it is idle.
        self.is_leaving = False
        #: An operator asked for it to be drained.
        self.is_ordered_out = False
        #: What it said of itself; None until it said so.
        self.facts: WorkerFacts | None = None
        #: Why it gets no requests although it lives, in words; None where nothing speaks against it.
        self.refused: str | None = None
        #: Why its ranks earn no cache credit, in words; None where they can.
        self.no_credit: str | None = None
        #: Whether its ids for a prompt were compared with the router's: see `Parity`.
        self.parity = "unknown"
        #: Requests placed on it since that was last compared.
        self.requests_since_parity = 0
        #: Something else than a probe spoke for a restart since the last one.
        self.is_suspect = False
        #: What the last failed probe said; None while it answers.
        self.problem: str | None = "not probed yet"
        #: That it does not answer was logged before it ever did.
        self.is_absence_logged = False
        #: What it said of its load, and how.
        self.loads = WorkerLoads()

    @property
    def config(self) -> WorkerConfig:
        """What is configured of it."""
        return self.entry.config

    @property
    def is_draining(self) -> bool:
        """Whether it finishes what it has and gets nothing new."""
        return self.is_leaving or self.is_ordered_out or self.entry.draining

    @property
    def is_usable(self) -> bool:
        """Whether it can serve: it lives, told its facts, and nothing speaks against it."""
        return self.gate.healthy and self.facts is not None and self.refused is None

    @property
    def takes_requests(self) -> bool:
        """Whether new requests may go there."""
        return self.is_usable and self.entry.ready and not self.is_draining

    def accept(self, facts: WorkerFacts) -> bool:
        """Take what the worker says of itself; whether that differs from before."""
        changed = facts != self.facts
        self.facts = facts
        try:
            check_facts(facts, self.config)
            problem = facts.problem or find_leg_problem(self.role, self.engine) if facts.models else "it names no model"
            self.refused = None if problem is None else f"worker {self.id}: {problem}"
        except ContradictionError as error:
            self.refused = error.message
        return changed

    @property
    def role(self) -> Role:
        """What it does of a request: as configured, else as it says."""
        return self.config.role or (None if self.facts is None else self.facts.role) or Role.AGGREGATED

    @property
    def engine(self) -> Engine | None:
        """Whose engine it is: as configured, else as it says."""
        return self.config.engine or (None if self.facts is None else self.facts.engine)

    def find_bootstrap(self) -> Bootstrap | None:
        """Where decode workers find it; None but for SGLang's prefill workers."""
        if self.role is not Role.PREFILL or self.engine is not Engine.SGLANG:
            return None
        host = self.config.bootstrap_host or urlsplit(self.config.url).hostname or ""
        said = None if self.facts is None else self.facts.bootstrap_port
        return Bootstrap(host, self.config.bootstrap_port or said)

    @property
    def targets(self) -> tuple[Target, ...]:
        """Its ranks, as far as it is known how many there are."""
        count = self.facts.dp_size if self.facts is not None else self.config.dp_size or 1
        return tuple(Target(self.id, rank) for rank in range(count))

    def find_standing(self) -> Standing:
        """How it stands."""
        if not self.gate.healthy:
            return Standing.UNHEALTHY
        if not self.is_usable:
            return Standing.REFUSED
        if self.is_leaving:
            return Standing.LEAVING
        if self.is_draining:
            return Standing.DRAINING
        return Standing.READY if self.entry.ready else Standing.NOT_READY

    def to_rank_facts(self, model: str | None) -> tuple[RankFacts, ...]:
        """Its ranks for placement; none before it told its models.

        Args:
            model: Name the whole fleet serves by configuration, besides what the worker says.
        """
        facts = self.facts
        if facts is None:
            return ()
        models = facts.models if model is None else tuple(dict.fromkeys((model, *facts.models)))
        return tuple(
            RankFacts(
                target=target,
                url=self.config.url,
                models=models,
                healthy=self.is_usable and self.entry.ready,
                draining=self.is_draining,
                block_tokens=facts.block_tokens,
                capacity_tokens=facts.capacity_tokens,
                is_bigram=facts.is_bigram,
                links=self.config.cache.to_links(),
                role=self.role,
                engine=self.engine,
                dp_size=facts.dp_size,
                bootstrap=self.find_bootstrap(),
                zone=self.config.zone,
            )
            for target in self.targets
        )

    def find_source(self, target: Target) -> RankSource | None:
        """Where a rank's events come from, and what its index needs to know; None without events."""
        found, facts, cache = self.find_events(target), self.facts, self.config.cache
        if found is None or facts is None or self.refused is not None:
            return None
        return RankSource(
            target=target,
            model=facts.models[0],
            endpoint=found.endpoint,
            replay_endpoint=found.replay_endpoint,
            topic=found.topic,
            binds=found.binds,
            snapshot_url=found.snapshot_url,
            redis_stream=None if facts.redis_name is None else name_stream(facts.redis_name, target.dp_rank),
            is_bigram=facts.is_bigram,
            host=cache.host,
            pools=cache.pools,
            layout=cache.to_layout() or facts.layout,
        )

    def find_events(self, target: Target) -> RankEvents | None:
        """Event sockets of a rank; None without events, or where they could earn no credit."""
        if self.config.events is EventsMode.OFF or self.facts is None or self.no_credit is not None:
            return None
        if not isinstance(self.config.events, EventSource):
            found = find_rank_events(self.facts, target.dp_rank)
            return found if found is not None and self._may_follow(found) else None
        source = self.config.events
        replay = source.replay_endpoint
        return RankEvents(
            shift_port(source.endpoint, target.dp_rank),
            None if replay is None else shift_port(replay, target.dp_rank),
            source.topic,
            binds=source.endpoint.startswith(_BOUND_HOSTS) if source.binds is None else source.binds,
        )

    def may_reach(self, host: str) -> bool:
        """Whether a host that the worker names may be connected to: a guest names no other than its own."""
        return not self.entry.is_guest or host == urlsplit(self.config.url).hostname

    def _may_follow(self, events: RankEvents) -> bool:
        addresses = (events.endpoint, events.replay_endpoint)
        hosts = {urlsplit(address).hostname or "" for address in addresses if address is not None}
        return not (self.entry.is_guest and events.binds) and all(map(self.may_reach, hosts))

    def explain_no_credit(self) -> str | None:
        """Why its ranks earn no cache credit; None where they can."""
        if self.no_credit is not None or self.facts is None:
            return self.no_credit
        if self.config.events is EventsMode.OFF:
            return "its events are switched off in the configuration"
        if isinstance(self.config.events, EventSource):
            return None
        is_elsewhere = self.facts.events is not None and not any(map(self.find_events, self.targets))
        return "its event sockets are at another host than its own" if is_elsewhere else self.facts.events_absent

    def describe_credit(self) -> str:
        """What cache credit of its ranks rests on: `exact`, `approximate` or `none`."""
        if self.facts is None or self.parity == "failed":
            return "none"
        return "exact" if self.explain_no_credit() is None else "approximate"

    def find_tokenizer(self, configured: str | None) -> Path | str:
        """Folder of its tokenizer, or in words why there is none."""
        if configured is not None:
            return Path(configured)
        said = None if self.facts is None else self.facts.tokenizer_path
        if said is None:
            return "no tokenizer: none in the configuration, and the worker names none"
        folder = Path(said)
        return folder if has_tokenizer(folder) else f"no tokenizer: {said} is not on this machine"
