"""The `tls` sections of the configuration: what the router shows its clients and workers, and whom it believes."""

from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from router.config_model import ConfigModel, Text


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
