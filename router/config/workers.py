"""The `workers:` of the configuration: addresses of engines, where their events come from, what their caches are."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import Discriminator, Field, SecretStr, Tag, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from prefix_index.components import STANDARD
from prefix_index.layout import GroupLayout, Layout
from router.config.model import ConfigModel, Port, Text, describe_valid
from router.fleet.role import Engine, Role
from router.fleet.tiers import DEFAULT_LINKS, TierLinks

Tokens = Annotated[int, Field(strict=True, ge=1, le=1 << 30)]
#: Names of this machine for itself, and addresses to listen on that include them.
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104  (compared, not bound)


class EventsMode(StrEnum):
    """How a worker's cache events are found."""

    #: As its `/server_info` says.
    AUTO = "auto"
    #: Not at all: no cache credit for this worker.
    OFF = "off"


class EventSource(ConfigModel):
    """A worker's event sockets, where `/server_info` does not tell. Rank r listens r ports above."""

    #: ZMQ address of rank 0, such as `tcp://10.0.0.1:5557`.
    endpoint: Annotated[Text, Field(pattern=r"^(tcp|ipc|inproc)://.+")]
    #: ZMQ address of rank 0's replay socket; left out where there is none.
    replay_endpoint: Annotated[Text, Field(pattern=r"^(tcp|ipc|inproc)://.+")] | None = None
    #: Topic to subscribe to.
    topic: Annotated[str, Field(strict=True, max_length=1_024)] = ""
    #: Whether the router waits there for the engine to connect; where left out, if the address is a wildcard.
    binds: Annotated[bool, Field(strict=True)] | None = None


# The tags stand in angle brackets so that they can be told from keys in an error's path.
EventsConfig = Annotated[
    Annotated[EventsMode, Tag("<mode>")] | Annotated[EventSource, Tag("<source>")],
    Discriminator(lambda value: "<source>" if isinstance(value, Mapping | EventSource) else "<mode>"),
]


class GroupConfig(ConfigModel):
    """One cache group of the model, where events do not tell, or to say its bytes."""

    #: Kind of its layers: full_attention, sliding_window, mamba, or another name that vLLM gives in events.
    kind: Text
    #: Window of a sliding group.
    window_tokens: Tokens | None = None
    #: Bytes that one token takes, over all layers of the group.
    bytes_per_token: Tokens | None = None
    #: Bytes of one checkpoint of a recurrent group, and the tokens between two of them.
    checkpoint_bytes: Annotated[int, Field(strict=True, ge=1, le=1 << 40)] | None = None
    checkpoint_tokens: Tokens | None = None
    #: Other tiers keep this group's blocks too.
    is_offloaded: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _known_kind(self) -> Self:
        if STANDARD.find(self.kind, 0, self.window_tokens) is not None:
            return self
        problem = "valid kinds: full_attention, mla_attention, sliding_window (with window_tokens), mamba"
        raise PydanticCustomError("bad_kind", "{problem}", {"key": "kind", "value": self.kind, "problem": problem})

    def to_layout(self) -> GroupLayout:
        """For the index."""
        return GroupLayout(**self.model_dump())


class CacheConfig(ConfigModel):
    """What lies behind a worker's device cache, and the cache groups of its model."""

    #: Host whose memory its ranks share with other workers that name it; one of its own where left out.
    host: Text | None = None
    #: Shared pools that it reads; what it reports of disk and external storage belongs to the first.
    pools: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    #: Speed at which a rank reads host memory and pools.
    host_bytes_per_s: Annotated[float, Field(strict=True, gt=0, le=1e15)] = DEFAULT_LINKS.host_bytes_per_s
    pool_bytes_per_s: Annotated[float, Field(strict=True, gt=0, le=1e15)] = DEFAULT_LINKS.pool_bytes_per_s
    #: The engine computes windows again, and runs recurrent layers again from a checkpoint, where they lack.
    recomputes: Annotated[bool, Field(strict=True)] = DEFAULT_LINKS.recomputes
    #: Groups in the order in which the engine numbers them; empty where its events tell all.
    layout: Annotated[tuple[GroupConfig, ...], Field(max_length=64)] = ()

    def to_layout(self) -> Layout | None:
        """For the index; None where nothing is declared."""
        return Layout(tuple(group.to_layout() for group in self.layout)) if self.layout else None

    def to_links(self) -> TierLinks:
        """For the cost of fetching."""
        return TierLinks(
            host_bytes_per_s=self.host_bytes_per_s, pool_bytes_per_s=self.pool_bytes_per_s, recomputes=self.recomputes
        )


class WorkerConfig(ConfigModel):
    """One engine process."""

    #: Base URL, `http://host:port`, without a path to an endpoint.
    url: Text
    #: Name in metrics and decisions; `host:port` where absent.
    id: Annotated[Text, Field(pattern=r"^[A-Za-z0-9._:\-\[\]]{1,128}$")] | None = None
    #: Data-parallel ranks; the worker is asked where left out.
    dp_size: Annotated[int, Field(strict=True, ge=1, le=1_024)] | None = None
    events: EventsConfig = EventsMode.AUTO
    #: Base URL of the sidecar beside it, whose events and snapshots then count instead of the worker's own.
    sidecar: Text | None = None
    cache: CacheConfig = CacheConfig()
    #: What it does of a request; where left out the worker is asked, which is aggregated if it does not say. vLLM does
    #: not.
    role: Role | None = None
    #: Whose engine it is; the worker is asked where left out.
    engine: Engine | None = None
    #: Host at which an SGLang prefill worker lets decode workers find it; the URL's host where left out.
    bootstrap_host: Text | None = None
    #: The port of that; as the worker says where left out.
    bootstrap_port: Annotated[Port, Field(ge=1)] | None = None
    #: Part of the network that it stands in. A prefill's cache that leaves its part takes `cross_zone_factor` longer.
    zone: Text | None = None

    #: Key that the engine asks for; sent as `Authorization: Bearer` with requests and probes. Better in a file.
    api_key: SecretStr | None = None
    #: A file that holds it; read at the start.
    api_key_file: Text | None = None

    @field_validator("role", "engine", mode="before")
    @classmethod
    def _known_word(cls, value: object, info: ValidationInfo) -> object:
        names = [word.value for word in (Role if info.field_name == "role" else Engine)]
        if value is None or value in names:
            return value
        raise PydanticCustomError("unknown_word", "{problem}", {"problem": describe_valid(value, names)})

    @field_validator("events", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: object) -> object:
        # YAML reads a bare `off` as false.
        return EventsMode.OFF if value is False else value

    @field_validator("url", "sidecar")
    @classmethod
    def _usable_url(cls, value: str | None) -> str | None:
        problem = None if value is None else find_url_problem(value)
        if problem is not None:
            raise PydanticCustomError("bad_url", "{problem}", {"problem": problem})
        return None if value is None else value.rstrip("/")

    @model_validator(mode="after")
    def _one_source_of_events(self) -> Self:
        if self.sidecar is not None and self.events is not EventsMode.AUTO:
            problem = "events come from the sidecar; leave out one of the two keys"
            raise PydanticCustomError(
                "two_sources", "{problem}", {"key": "sidecar", "value": self.sidecar, "problem": problem}
            )
        return self

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        key = None if self.api_key is None else self.api_key.get_secret_value()
        problem = None
        if key is not None and self.api_key_file is not None:
            problem = "stands in api_key_file as well; leave out one of the two keys"
        elif key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
            problem = "a key is made of printable ASCII characters without blanks around"
        if problem is not None:
            told = {"key": "api_key", "value": "(not shown)", "problem": problem}
            raise PydanticCustomError("bad_key", "{problem}", told)
        return self

    @property
    def authorization(self) -> bytes | None:
        """Value of the `authorization` line for it; None where it asks for no key."""
        return None if self.api_key is None else b"Bearer " + self.api_key.get_secret_value().encode()

    @model_validator(mode="after")
    def _bootstrap_is_of_a_prefill(self) -> Self:
        for key in ("bootstrap_host", "bootstrap_port"):
            value = getattr(self, key)
            if value is not None and (self.role not in {None, Role.PREFILL} or self.engine is Engine.VLLM):
                problem = "only an SGLang prefill worker has one; leave it out, or set role: prefill"
                told = {"key": key, "value": value, "problem": problem}
                raise PydanticCustomError("stray_bootstrap", "{problem}", told)
        return self

    @property
    def worker_id(self) -> str:
        """`id`, or host and port of the URL."""
        return self.id or urlsplit(self.url).netloc


def check_workers_differ(workers: Sequence[WorkerConfig]) -> None:
    """Raise where two have the same URL or name, as pydantic's validators do."""
    for what, names in (
        ("url", [worker.url.lower() for worker in workers]),
        ("id", [worker.worker_id for worker in workers]),
    ):
        seen: dict[str, int] = {}
        for place, name in enumerate(names):
            first = seen.setdefault(name, place)
            if first != place:
                problem = f"the same {what} as workers.{first}; each worker is listed once"
                context = {"key": f"workers.{place}.{what}", "value": name, "problem": problem}
                raise PydanticCustomError("duplicate_worker", "{problem}", context)


def check_none_is_the_router(workers: Sequence[WorkerConfig], host: str, port: int) -> None:
    """Raise where a worker's address is plainly the router's own, as pydantic's validators do.

    Such a worker passes every probe as soon as another one does, and each request sent to it comes back.
    """
    own = _LOCAL_NAMES if host in _LOCAL_NAMES or host in _EVERY_ADDRESS else {host}
    for place, worker in enumerate(workers):
        parts = urlsplit(worker.url)
        if port and parts.port == port and parts.hostname in own:
            problem = "this is where the router itself listens (listen.port); an engine has an address of its own"
            context = {"key": f"workers.{place}.url", "value": worker.url, "problem": problem}
            raise PydanticCustomError("own_address", "{problem}", context)


def find_url_problem(url: str) -> str | None:
    """What is wrong with a worker's URL; None when it can be used."""
    want = "a worker URL looks like http://host:30000"
    if not url.isprintable() or " " in url:
        return f"blanks and control characters do not belong in a URL; {want}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"{error}; {want}"
    return _find_part_problem(parts, port, want)


def _find_part_problem(parts: SplitResult, port: int | None, want: str) -> str | None:
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return f"needs http:// or https:// and a host; {want}"
    if port == 0:
        return f"port out of range 1-65535; {want}"
    if parts.query or parts.fragment or parts.username or parts.password:
        return f"query, fragment and user name do not belong in it; {want}"
    return None
