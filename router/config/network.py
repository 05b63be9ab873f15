"""The `listen:`, `worker_tls:` and `redis:` of the configuration: where the router is reached and what it reaches.

With them what the router shows its clients and workers over TLS, and whom it believes.
"""

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from router.config.model import ConfigModel, Port, Text


class ServerTls(ConfigModel):
    """Certificates of the router's own listeners; TLS 1.2 and up. Files that change are read again."""

    #: PEM file with the certificate, and those between it and its authority.
    cert_file: Text
    #: PEM file with its private key.
    key_file: Text
    #: Password of the private key, where it has one.
    key_password: SecretStr | None = None
    #: PEM file with the authorities of clients' certificates; with it a client without one is not let in.
    client_ca_file: Text | None = None


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


class WorkerTls(ConfigModel):
    """How workers with `https://` addresses are known, and sidecars too."""

    #: PEM file with their authorities; the system's where left out.
    ca_file: Text | None = None
    #: PEM files with the certificate and private key that the router shows them.
    cert_file: Text | None = None
    key_file: Text | None = None
    #: Take any certificate. Whoever is between router and worker then reads and changes everything.
    insecure: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problem = None
        if (self.cert_file is None) != (self.key_file is None):
            key, problem = "cert_file" if self.cert_file is None else "key_file", "cert_file and key_file go together"
        elif self.insecure and self.ca_file is not None:
            key, problem = "insecure", "takes any certificate, so that ca_file says nothing; leave out one of the two"
        if problem is not None:
            told = {"key": key, "value": getattr(self, key), "problem": problem}
            raise PydanticCustomError("bad_tls", "{problem}", told)
        return self


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
