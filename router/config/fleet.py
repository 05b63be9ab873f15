"""The whole of `fleet.yaml`: its sections, what holds between them, and the way from a text to one that can be used.

The text of a file, its name and the environment come in as arguments. Order of precedence: default < file <
`DOVECOTE__SECTION__KEY` < flag.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from router.config.access import AccessConfig, is_loopback
from router.config.discovery import DiscoveryConfig, RegistrationConfig
from router.config.failures import BreakerConfig, ProbesConfig, RetriesConfig
from router.config.forward import ForwardConfig
from router.config.limits import BoundsConfig, LimitsConfig, TimeoutsConfig
from router.config.model import ConfigModel, Count, Seconds, Text, describe_refusal, describe_valid
from router.config.network import ListenConfig, RedisConfig, WorkerTls
from router.config.policy import PolicySection
from router.config.queue import AdmissionLimit, QueueConfig
from router.config.sources import apply_environment, apply_flags, find_origin
from router.config.text import parse_config_text
from router.config.watching import LogsConfig, TracingConfig
from router.config.workers import WorkerConfig, check_none_is_the_router, check_workers_differ
from router.errors import ConfigError
from router.shown_value import may_be_secret

#: Most workers named in an error.
MAX_NAMED = 20
NO_WORKER = "no worker given: use --workers URL or `workers:` in --config"


class TokenizerConfig(ConfigModel):
    """The tokenizer that the workers use."""

    #: Folder with tokenizer.json and tokenizer_config.json.
    path: Text


class SessionsConfig(ConfigModel):
    """How long a conversation keeps its home."""

    #: Pause after which a home is forgotten; coding agents pause up to an hour.
    idle_ttl_s: Seconds = 3_600.0
    #: Homes kept; the longest unused goes first.
    max_sessions: Count = 100_000


class ShutdownConfig(ConfigModel):
    """How a router ends at SIGTERM: not ready at once, then no new requests, then gone."""

    #: Time for which it takes requests after `/readyz` said 503, so that balancers can notice; 5 s where left out and
    #: somebody asked `/readyz` within the last minute, else none. SIGINT does not wait.
    wait_s: Annotated[float, Field(strict=True, ge=0, le=3_600)] | None = None
    #: Time for which running requests may go on after that.
    grace_s: Seconds = 30.0


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
        check_none_is_the_router(self.workers, self.listen.host, self.listen.port)
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
