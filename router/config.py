"""The fleet's configuration: frozen models, their defaults and units, and errors that say what would be valid.

Declares only. The text of a file, its name and the environment come in as arguments; nothing is opened here. Order of
precedence: default < file < `DOVECOTE__SECTION__KEY` < flag.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from router.config_access import AccessConfig, is_loopback
from router.config_breaker import BreakerConfig
from router.config_discovery import DiscoveryConfig, RegistrationConfig, ShutdownConfig
from router.config_forward import ForwardConfig
from router.config_model import ConfigModel, Count, Port, Seconds, SizeBytes, Text, describe_valid
from router.config_policy import (
    MAX_TEXT_CHARS,
    Coefficients,
    PolicyConfig,
    PolicyName,
    PolicySection,
    PolicyWeights,
    ShadowConfig,
    describe_refusal,
    parse_config_text,
)
from router.config_queue import QueueConfig
from router.config_retries import RetriesConfig
from router.config_sources import apply_environment, apply_flags, find_origin
from router.config_tls import ServerTls, WorkerTls
from router.config_watching import LogsConfig, TracingConfig
from router.config_workers import CacheConfig, EventsMode, EventSource, WorkerConfig, check_workers_differ
from router.errors import ConfigError
from router.shown_value import may_be_secret

__all__ = [
    "MAX_TEXT_CHARS", "AccessConfig", "AdmissionLimit", "BreakerConfig", "CacheConfig", "Coefficients", "EventSource",
    "EventsMode", "FleetConfig", "LimitsConfig", "ListenConfig", "PolicyConfig", "PolicyName", "PolicySection",
    "PolicyWeights", "ProbesConfig", "RedisConfig", "RetriesConfig", "SessionsConfig", "ShadowConfig",
    "TimeoutsConfig", "TokenizerConfig", "WorkerConfig", "build_fleet_config", "describe_schema", "describe_valid",
    "load_fleet_config",
]  # fmt: skip

#: Most workers named in an error.
MAX_NAMED = 20
NO_WORKER = "no worker given: use --workers URL or `workers:` in --config"


class ListenConfig(ConfigModel):
    """Where the router listens."""

    #: Loopback unless said otherwise.
    host: Text = "127.0.0.1"
    #: 0 takes a free port and prints it.
    port: Port = 8_080
    #: A second port, for all that is not a client's: decisions, workers, policy. The first then serves clients, health
    #: and metrics alone. One port for all where left out.
    admin_port: Port | None = None
    #: Address of that port.
    admin_host: Text = "127.0.0.1"
    #: Plain HTTP where left out.
    tls: ServerTls | None = None


class TokenizerConfig(ConfigModel):
    """The tokenizer that the workers use."""

    #: Folder with tokenizer.json and tokenizer_config.json.
    path: Text


class LimitsConfig(ConfigModel):
    """Bounds on what clients may ask for and on what is kept."""

    #: Longest request body.
    body_bytes: SizeBytes = 64 << 20
    #: Decisions kept for explanation.
    decisions: Count = 4_096
    #: Streams that can be open at a time; each needs two open files, which the system must allow.
    streams: Count = 8_000


class TimeoutsConfig(ConfigModel):
    """How long a worker may take."""

    #: To accept a connection.
    connect_s: Seconds = 5.0
    #: To the first byte of the answer, queueing in the engine and prefill included, and of one that is not streamed all
    #: of its generation.
    first_byte_s: Seconds = 600.0
    #: Between two pieces of an answer, not counting the time in which its client has no room for more. So long a client
    #: may take nothing at all, too, and 65 s at most.
    idle_s: Seconds = 120.0
    #: From the whole request to the last byte of its answer, however it dribbles.
    request_s: Seconds = 3_600.0
    #: For a prefill rank to be done with the prompt, its queue included. Only for pairs.
    prefill_s: Seconds = 300.0
    #: From there to the decode rank's first piece of a stream, the transfer included. Only for pairs; an answer that is
    #: not streamed is bounded by `first_byte_s` alone.
    handoff_s: Seconds = 30.0


class ProbesConfig(ConfigModel):
    """How health is asked for."""

    interval_s: Seconds = 2.0
    #: Failed probes in a row that make a worker unhealthy.
    unhealthy_after: Count = 3
    #: Good probes in a row that make it healthy again.
    healthy_after: Count = 1


class SessionsConfig(ConfigModel):
    """How long a conversation keeps its home."""

    #: Pause after which a home is forgotten; coding agents pause up to an hour.
    idle_ttl_s: Seconds = 3_600.0
    #: Homes kept; the longest unused goes first.
    max_sessions: Count = 100_000


class RedisConfig(ConfigModel):
    """Where sidecars publish cache events for many routers. Without it their own sockets are read."""

    #: `redis://`, `rediss://` or `unix://`; may hold a password, so that it is never shown.
    url: Text

    @model_validator(mode="after")
    def _usable_url(self) -> Self:
        if urlsplit(self.url).scheme in {"redis", "rediss", "unix"} and self.url.isprintable():
            return self
        problem = "a Redis URL looks like redis://host:6379/0"
        raise PydanticCustomError("bad_url", "{problem}", {"key": "url", "value": "(not shown)", "problem": problem})


class AdmissionLimit(ConfigModel):
    """Most requests that some workers may have at once; the next one is refused where no other worker is free."""

    #: Ids of the workers that share the limit; each must be one of `workers`. `queue.requests_per_rank` limits workers
    #: of any source.
    workers: Annotated[tuple[Text, ...], Field(min_length=1, max_length=10_000)]
    #: Requests placed there and not ended, over all of them.
    max_requests: Count


class BoundsConfig(ConfigModel):
    """Largest values in one request, by what its engine would do with them."""

    #: Answers to one prompt (`n`, `best_of`).
    choices: Count = 128
    #: Prompts, documents or items in one body.
    prompts: Count = 2_048
    #: Answers over all prompts of a body.
    answers: Count = 4_096
    #: Log probabilities of one token.
    logprobs: Count = 128
    #: Tokens of one answer.
    output_tokens: Count = 100_000_000


class FleetConfig(ConfigModel):
    """The whole of `fleet.yaml`."""

    listen: ListenConfig = ListenConfig()
    access: AccessConfig = AccessConfig()
    #: Engines that are there from the start to the end; may be left out where `discovery` or `registration` names some.
    workers: Annotated[tuple[WorkerConfig, ...], Field(max_length=10_000)] = ()
    discovery: DiscoveryConfig = DiscoveryConfig()
    #: Workers may register themselves; none by default.
    registration: RegistrationConfig | None = None
    worker_tls: WorkerTls = WorkerTls()
    #: Model name the fleet serves; what the workers say where left out.
    model: Text | None = None
    tokenizer: TokenizerConfig | None = None
    policy: PolicySection = PolicySection()
    limits: LimitsConfig = LimitsConfig()
    bounds: BoundsConfig = BoundsConfig()
    forward: ForwardConfig = ForwardConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    retries: RetriesConfig = RetriesConfig()
    probes: ProbesConfig = ProbesConfig()
    breaker: BreakerConfig = BreakerConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    sessions: SessionsConfig = SessionsConfig()
    #: Limits on what workers may have at once; none by default.
    admission: Annotated[tuple[AdmissionLimit, ...], Field(max_length=1_000)] = ()
    queue: QueueConfig = QueueConfig()
    logs: LogsConfig = LogsConfig()
    tracing: TracingConfig = TracingConfig()
    #: Where left out, every sidecar's own event sockets are read.
    redis: RedisConfig | None = None

    @model_validator(mode="after")
    def _closed_to_the_network(self) -> Self:
        hosts = {"host": self.listen.host}
        if self.listen.admin_port is not None:
            hosts["admin_host"] = self.listen.admin_host
        open_to = [key for key, host in hosts.items() if not is_loopback(host)]
        if self.access.has_keys or self.access.anonymous or not open_to:
            return self
        problem = (
            "whoever reaches this address could use and change everything: give access.keys or access.keys_file "
            "(`dovecote make-key` makes one), or say access.anonymous: true (--anonymous) where the network is closed"
        )
        told = {"key": f"listen.{open_to[0]}", "value": hosts[open_to[0]], "problem": problem}
        raise PydanticCustomError("open_to_all", "{problem}", told)

    @model_validator(mode="after")
    def _someone_names_workers(self) -> Self:
        found = self.workers or self.discovery.file or self.discovery.kubernetes or self.registration
        if not found:
            raise PydanticCustomError("no_worker", "{problem}", {"key": "workers", "value": None, "problem": NO_WORKER})
        return self

    @model_validator(mode="after")
    def _workers_differ(self) -> Self:
        check_workers_differ(self.workers)
        return self

    @model_validator(mode="after")
    def _limits_match_workers(self) -> Self:
        known = [worker.worker_id for worker in self.workers]
        for place, limit in enumerate(self.admission):
            for number, name in enumerate(limit.workers):
                if name not in known:
                    problem = f"`workers` of this file has none of that id; {describe_valid(name, known[:MAX_NAMED])}"
                    key = f"admission.{place}.workers.{number}"
                    raise PydanticCustomError(
                        "unmatched_limit", "{problem}", {"key": key, "value": name, "problem": problem}
                    )
        return self


def load_fleet_config(
    text: str,
    file_name: str,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> FleetConfig:
    """Parses a whole configuration or refuses it whole.

    Args:
        text: YAML (or JSON).
        file_name: Named in errors.
        environment: Variables of the process; only `DOVECOTE__...` is looked at.
        flags: Values of the command line, in the shape of the file.

    Raises:
        ConfigError: names its source, key path, value and what would be valid.
    """
    return build_fleet_config(parse_config_text(text, file_name), file_name, environment, flags)


def build_fleet_config(
    data: object,
    file_name: str,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> FleetConfig:
    """As `load_fleet_config`, from values already parsed."""
    if not isinstance(data, Mapping):
        problem = "the top must be a mapping with keys such as workers, policy, listen"
        raise ConfigError(file_name=file_name, key_path="", value=data, problem=problem)
    merged = apply_flags(apply_environment(data, environment or {}), flags or {})
    try:
        return FleetConfig.model_validate(merged)
    except ValidationError as error:
        path, value, problem, shows_value = _describe(error.errors(include_url=False)[0])
        source, name = find_origin(path, file_name, environment or {}, flags or {})
        raise ConfigError(
            file_name=source, key_path=name, value=value, problem=problem, shows_value=shows_value
        ) from None


def _describe(detail: ErrorDetails) -> tuple[list[str], object, str, bool]:
    """As `describe_refusal`, without what may be secret; a fleet without workers is told how to name one."""
    path, value, problem, shows_value = describe_refusal(detail)
    if may_be_secret(".".join(path)):
        return path, None, problem, False
    if detail["type"] == "no_worker":
        return path, None, NO_WORKER, False
    return path, value, problem, shows_value


def describe_schema() -> dict[str, Any]:
    """JSON schema of `fleet.yaml`, for editors."""
    return FleetConfig.model_json_schema()
