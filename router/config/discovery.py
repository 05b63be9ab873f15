"""The `discovery:` and `registration:` of the configuration: who else than `workers:` names workers."""

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from router.config.model import ConfigModel, Port, Seconds, Text, describe_refusal
from router.config.text import parse_config_text
from router.config.workers import (
    CacheConfig,
    EventsConfig,
    EventsMode,
    WorkerConfig,
    check_workers_differ,
    find_url_problem,
)
from router.errors import ConfigError
from router.fleet.role import Engine, Role
from router.shown_value import may_be_secret

Name = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([a-z0-9.\-]{0,251}[a-z0-9])?$")]


class WorkerTemplate(ConfigModel):
    """What holds for every worker that is found; the keys of `workers` but for its address and name."""

    #: Data-parallel ranks; the worker is asked where left out.
    dp_size: Annotated[int, Field(strict=True, ge=1, le=1_024)] | None = None
    #: Part in a request; as its `/server_info` says where left out.
    role: Role | None = None
    #: What it is, for the dialect of a leg; as it shows where left out.
    engine: Engine | None = None
    events: EventsConfig = EventsMode.AUTO
    #: Port of the sidecar beside each, on the worker's own address; left out where there is none.
    sidecar_port: Annotated[int, Field(strict=True, ge=1, le=65_535)] | None = None
    cache: CacheConfig = CacheConfig()
    #: Port at which an SGLang prefill worker lets decode workers find it; as it says where left out.
    bootstrap_port: Annotated[int, Field(strict=True, ge=1, le=65_535)] | None = None
    #: Part of the network that they stand in.
    zone: Text | None = None

    @model_validator(mode="after")
    def _can_make_a_worker(self) -> Self:
        self.make_worker("http://127.0.0.1:1", "template", host="127.0.0.1")
        return self

    def make_worker(self, url: str, name: str, *, host: str) -> WorkerConfig:
        """The worker at an address."""
        fields = self.model_dump(exclude={"sidecar_port"})
        sidecar = None if self.sidecar_port is None else f"http://{bracket(host)}:{self.sidecar_port}"
        return WorkerConfig.model_validate({**fields, "url": url, "id": name, "sidecar": sidecar})


class FileDiscovery(ConfigModel):
    """A YAML file with `workers:`, read again when it changes and at SIGHUP."""

    #: The file; a relative path starts at the fleet's own file. A bad one changes nothing.
    path: Text
    #: Time between two looks at it.
    poll_s: Seconds = 2.0


class KubernetesDiscovery(ConfigModel):
    """The endpoints of one Kubernetes service, by its EndpointSlices, which the router's account may list and watch."""

    #: Name of the service.
    service: Name
    namespace: Name = "default"
    #: Port of the engines: its name in the service, or its number. The first one where left out.
    port: Name | Annotated[int, Field(strict=True, ge=1, le=65_535)] | None = None
    scheme: Literal["http", "https"] = "http"
    #: What holds for every worker found.
    worker: WorkerTemplate = WorkerTemplate()
    #: The API server.
    api_url: Text = "https://kubernetes.default.svc"
    #: Token of the account, read anew for each question; none where the file is not there.
    token_file: Text = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105  (a path)
    #: Certificate that the API server's is checked against.
    ca_file: Text = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    #: Time after which all is listed anew, whatever the watch says.
    resync_s: Seconds = 300.0

    @field_validator("api_url")
    @classmethod
    def _usable_url(cls, value: str) -> str:
        problem = find_url_problem(value)
        if problem is not None:
            raise PydanticCustomError("bad_url", "{problem}", {"problem": problem})
        return value.rstrip("/")

    @property
    def name(self) -> str:
        """Its name among the sources."""
        return f"kubernetes/{self.namespace}/{self.service}" + ("" if self.port is None else f":{self.port}")


class DiscoveryConfig(ConfigModel):
    """Who else than `workers` names workers. What several name counts once: `workers`, file, Kubernetes, registered."""

    file: FileDiscovery | None = None
    kubernetes: Annotated[tuple[KubernetesDiscovery, ...], Field(max_length=100)] = ()

    @model_validator(mode="after")
    def _services_differ(self) -> Self:
        names = [each.name for each in self.kubernetes]
        for place, name in enumerate(names):
            if name in names[:place]:
                problem = "the same service and port as another entry; each is listed once"
                raise PydanticCustomError(
                    "duplicate_service", "{problem}",
                    {"key": f"kubernetes.{place}.service", "value": name, "problem": problem},
                )  # fmt: skip
        return self


class WorkersFile(ConfigModel):
    """The whole of a file that `discovery.file` names."""

    #: As `workers` of the fleet's file.
    workers: Annotated[tuple[WorkerConfig, ...], Field(max_length=10_000)]

    @model_validator(mode="after")
    def _workers_differ(self) -> Self:
        check_workers_differ(self.workers)
        return self


def load_workers(text: str, file_name: str) -> tuple[WorkerConfig, ...]:
    """Parses such a file or refuses it whole.

    Raises:
        ConfigError: Names the file, key path, value and what would be valid.
    """
    data = parse_config_text(text, file_name)
    if not isinstance(data, Mapping):
        problem = "the top must be a mapping with the key workers"
        raise ConfigError(file_name=file_name, key_path="", value=data, problem=problem)
    try:
        return WorkersFile.model_validate(data).workers
    except ValidationError as error:
        path, value, problem, shows_value = describe_refusal(error.errors(include_url=False)[0])
        key_path = ".".join(path)
        is_secret = may_be_secret(key_path)
        raise ConfigError(
            file_name=file_name, key_path=key_path, value=None if is_secret else value, problem=problem,
            shows_value=shows_value and not is_secret,
        ) from None  # fmt: skip


class RegistrationConfig(ConfigModel):
    """Workers that register themselves at `POST /v1/workers` with an admin's key. None may that is not listed here."""

    #: Names of hosts, `*.` before one stands for all below it; and addresses. What a name stands for must be no
    #: address of this machine, of its link, or of a cloud's metadata, unless that very address is listed too.
    hosts: Annotated[tuple[Text, ...], Field(max_length=1_000)] = ()
    #: Networks such as 10.0.0.0/8. A wide one lets no loopback, link-local or metadata address in.
    cidrs: Annotated[tuple[Text, ...], Field(max_length=1_000)] = ()
    #: Ports, also of sidecars; all where left out.
    ports: Annotated[tuple[Port, ...], Field(min_length=1, max_length=1_000)] | None = None
    #: Workers that may be registered at once.
    max_workers: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1_000

    @field_validator("cidrs")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for place, each in enumerate(value):
            try:
                ip_network(each)
            except ValueError as error:
                problem = f"{error}; a network looks like 10.0.0.0/8"
                raise PydanticCustomError(
                    "bad_network", "{problem}", {"key": str(place), "value": each, "problem": problem}
                ) from None
        return value

    @model_validator(mode="after")
    def _allows_someone(self) -> Self:
        if self.hosts or self.cidrs:
            return self
        problem = "nobody could register; name hosts or cidrs, or leave out registration"
        raise PydanticCustomError("empty_allow_list", "{problem}", {"key": "hosts", "value": (), "problem": problem})


def bracket(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
