"""What keeps tenants apart: salts of their prompts, and names of their sessions and of state in engines. Pure.

A prompt's salt is an HMAC over the tenant and what its client said as `cache_salt`, under a secret of the router: a
client can make namespaces inside its own tenant, and reach none of another one, whatever it sends. The salt itself is
no secret of much worth (engines publish it in their events), and yet cannot be chosen: what a client sends only ever
goes into the HMAC.
Source: docs/faults.md G05.
"""

import hmac
from typing import Any

#: Begins a salt made here; the key's hash names its version.
_LABEL = "dv1-"
_SALT_BYTES = 16
#: Longest `cache_salt` of a client.
MAX_SALT_CHARS = 1_024


class Tenancy:
    """How the tenants of one fleet are kept apart."""

    def __init__(self, secret: bytes | None) -> None:
        """Set the secret.

        Args:
            secret: What salts are made from; None where tenants share what is cached.
        """
        self._secret = secret
        self._plain: dict[str, str] = {}

    def isolates(self, tenant: str) -> bool:
        """Whether a tenant's prompts are salted. The nameless one of a router without keys is not."""
        return self._secret is not None and tenant != ""

    def make_salt(self, tenant: str, said: str | None) -> str:
        """The salt of a tenant's prompt.

        Args:
            tenant: One that is isolated.
            said: The client's own salt, for a namespace inside the tenant's; None or empty without one.
        """
        if said:
            return self._make(tenant, said)
        # There are as many as configured tenants.
        known = self._plain.get(tenant)
        if known is None:
            known = self._plain[tenant] = self._make(tenant, "")
        return known

    def _make(self, tenant: str, said: str) -> str:
        if self._secret is None:
            raise RuntimeError("tenants share what is cached: there is no salt")
        # Names of tenants have no zero byte, so that no two pairs make one text.
        text = f"{tenant}\0{said}".encode("utf-8", "surrogatepass")
        return _LABEL + hmac.digest(self._secret, text, "sha256")[:_SALT_BYTES].hex()


def find_salt_problem(said: Any) -> str | None:
    """Why what a client sent as `cache_salt` is none; None where it is one."""
    if said is None or (isinstance(said, str) and len(said) <= MAX_SALT_CHARS):
        return None
    return f"cache_salt must be a string of at most {MAX_SALT_CHARS} characters"


def scope_name(tenant: str, name: str) -> str:
    """A name that a client gave or learned, as it stands beside those of other tenants."""
    # Names of tenants have no slash.
    return f"{tenant}/{name}" if tenant else name
