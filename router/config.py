"""The fleet's configuration: frozen models, their defaults and units, and errors that say what would be valid.

Declares only. The text of a file, its name and the environment come in as arguments; nothing is opened here. Order of
precedence: default < file < `DOVECOTE__SECTION__KEY` < flag.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from router.config_model import ConfigModel, Count, Port, Ratio, Seconds, SizeBytes, Text, Weight, describe_valid
from router.config_sources import apply_environment, apply_flags, find_origin
from router.config_workers import CacheConfig, EventsMode, EventSource, WorkerConfig
from router.errors import ConfigError
from router.yaml_text import YamlError, parse_yaml

__all__ = [
    "CacheConfig", "Coefficients", "EventSource", "EventsMode", "FleetConfig", "LimitsConfig", "ListenConfig",
    "PolicyConfig", "PolicyName", "PolicyWeights", "ProbesConfig", "RedisConfig", "SessionsConfig", "TimeoutsConfig",
    "TokenizerConfig", "WorkerConfig", "build_fleet_config", "describe_schema", "describe_valid", "load_fleet_config",
]  # fmt: skip

#: A configuration longer than this is refused unread.
MAX_TEXT_CHARS = 4 << 20
NO_WORKER = "no worker given: use --workers URL or `workers:` in --config"


class PolicyName(StrEnum):
    """Policies that can be configured."""

    CACHE_AFFINITY = "cache_affinity"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_LOAD = "least_load"
    SESSION_HASH = "session_hash"
    POWER_OF_TWO = "power_of_two"
    PREFIX_THRESHOLD = "prefix_threshold"
    OVERLAP_LINEAR = "overlap_linear"
    WEIGHTED_SCORES = "weighted_scores"


class PolicyWeights(ConfigModel):
    """Factor on each term of the cost; all terms are seconds, so 1 is neutral and 0 switches a term off."""

    #: Predicted seconds of work ahead of the request on a rank.
    wait: Weight = 1.0
    #: Seconds to prefill what the rank does not hold.
    reuse: Weight = 1.0
    #: Seconds by which those generating slow each other. Below 1: moving away prefills anew, which slows all.
    decode: Weight = 0.25
    #: Seconds that later requests lose by what is pushed out, and by settling a session on a busy rank.
    balance: Weight = 1.0


class Coefficients(ConfigModel):
    """What work costs on one rank. The defaults are of the order of a mid-size model on one data-centre GPU.

    Measured times scale them (`PlacerSettings.learn_pace`), so that their proportions matter more than their level.
    """

    #: Seconds of prefill for one uncached token, whatever stands before it.
    prefill_s_per_token: Annotated[float, Field(strict=True, ge=0, le=10)] = 2e-5
    #: Seconds of prefill for one uncached token and one token it attends to.
    attention_s_per_token_pair: Annotated[float, Field(strict=True, ge=0, le=1)] = 6.5e-10
    #: Seconds between two tokens of a request alone on a rank.
    decode_step_s: Annotated[float, Field(strict=True, ge=0, le=60)] = 8e-3
    #: Seconds that each further generating request adds to that.
    decode_s_per_request: Annotated[float, Field(strict=True, ge=0, le=60)] = 1e-4
    #: Seconds that each token attended to adds to that.
    decode_s_per_context_token: Annotated[float, Field(strict=True, ge=0, le=1)] = 1e-8
    #: Prompt tokens assumed for a request that others queued, where the engine reports only how many.
    foreign_request_tokens: Annotated[int, Field(strict=True, ge=0, le=10_000_000)] = 2_000
    #: Probability that a token pushed out at once would have been asked for again.
    reuse_probability: Ratio = 0.5
    #: Age in seconds at which that probability has fallen to 1/e of it.
    reuse_decay_s: Seconds = 600.0
    #: Further requests expected of a session that settles on a rank.
    future_turns: Annotated[float, Field(strict=True, ge=0, le=100_000)] = 10.0
    #: Share of a request's work that each of them is taken to wait on a rank with twice the average of recent work.
    crowding_ratio: Ratio = 0.5
    #: Share of a predicted (not yet confirmed) overlap that is believed, 0..1.
    predicted_credit_ratio: Ratio = 0.9


class PolicyConfig(ConfigModel):
    """How requests are placed."""

    name: PolicyName = PolicyName.CACHE_AFFINITY
    weights: PolicyWeights = PolicyWeights()
    coefficients: Coefficients = Coefficients()

    @field_validator("name", mode="before")
    @classmethod
    def _known_name(cls, value: object) -> object:
        names = [name.value for name in PolicyName]
        if value in names:
            return value
        raise PydanticCustomError("unknown_policy", "{problem}", {"problem": describe_valid(value, names)})


class ListenConfig(ConfigModel):
    """Where the router listens."""

    #: Loopback unless said otherwise.
    host: Text = "127.0.0.1"
    #: 0 takes a free port and prints it.
    port: Port = 8_080


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


class TimeoutsConfig(ConfigModel):
    """How long a worker may take."""

    #: To accept a connection.
    connect_s: Seconds = 5.0
    #: To the first byte of the answer, queueing and prefill included.
    first_byte_s: Seconds = 600.0
    #: Between two pieces of an answer.
    idle_s: Seconds = 120.0
    #: From the whole request to the last byte of its answer, however it dribbles.
    request_s: Seconds = 3_600.0


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


class FleetConfig(ConfigModel):
    """The whole of `fleet.yaml`."""

    listen: ListenConfig = ListenConfig()
    workers: Annotated[tuple[WorkerConfig, ...], Field(min_length=1, max_length=10_000)]
    #: Model name the fleet serves; None takes what the workers say.
    model: Text | None = None
    tokenizer: TokenizerConfig | None = None
    policy: PolicyConfig = PolicyConfig()
    limits: LimitsConfig = LimitsConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    probes: ProbesConfig = ProbesConfig()
    sessions: SessionsConfig = SessionsConfig()
    #: None reads every sidecar's own event sockets.
    redis: RedisConfig | None = None

    @model_validator(mode="after")
    def _workers_differ(self) -> Self:
        for what, names in (
            ("url", [worker.url.lower() for worker in self.workers]),
            ("id", [worker.worker_id for worker in self.workers]),
        ):
            seen: dict[str, int] = {}
            for place, name in enumerate(names):
                first = seen.setdefault(name, place)
                if first != place:
                    problem = f"the same {what} as workers.{first}; each worker is listed once"
                    context = {"key": f"workers.{place}.{what}", "value": name, "problem": problem}
                    raise PydanticCustomError("duplicate_worker", "{problem}", context)
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
    if len(text) > MAX_TEXT_CHARS:
        problem = f"longer than {MAX_TEXT_CHARS:,} characters"
        raise ConfigError(file_name=file_name, key_path="", value=f"{len(text):,} characters", problem=problem)
    try:
        data = parse_yaml(text)
    except YamlError as error:
        line = "" if error.line_number is None else f"line {error.line_number}"
        problem = f"no valid YAML: {error.problem}"
        raise ConfigError(file_name=file_name, key_path=line, value=None, problem=problem, shows_value=False) from error
    return build_fleet_config({} if data is None else data, file_name, environment, flags)


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
    """Key path, value and problem of a refusal, and whether there is a value to show."""
    path = [str(part) for part in detail["loc"] if not str(part).startswith("<")]
    context: dict[str, Any] = detail.get("ctx") or {}
    value, problem = detail["input"], detail["msg"]
    if "key" in context:
        key = context["key"]
        value = context.get("value", value.get(key) if isinstance(value, Mapping) else value)
        path += key.split(".")
    if path == ["workers"] and detail["type"] in {"missing", "too_short"}:
        return path, None, NO_WORKER, False
    is_missing = detail["type"] == "missing"
    return path, None if is_missing else value, problem, not is_missing


def describe_schema() -> dict[str, Any]:
    """JSON schema of `fleet.yaml`, for editors."""
    return FleetConfig.model_json_schema()
