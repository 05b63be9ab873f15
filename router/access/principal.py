"""Whom a call is from: what its key allows. No secrets, so that it may be logged and shown."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec


class Role(StrEnum):
    """Which paths a key opens."""

    #: What clients ask engines for.
    CLIENT = "client"
    #: The metrics page, and nothing else.
    METRICS = "metrics"
    #: Everything.
    ADMIN = "admin"


class KeyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one key may ask for; None where there is none."""

    requests_per_minute: int | None = None
    #: Prompt and output tokens together.
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    body_bytes: int | None = None


NO_LIMITS = KeyLimits()


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a call is from."""

    #: Name of the key; a word of the configuration, and so fit for labels.
    name: str
    #: Whose cache and sessions it shares; empty where the router knows no tenants.
    tenant: str = ""
    role: Role = Role.CLIENT
    #: Whether a client of this key may set fields that are the router's: ranks, pairs of prefill and decode.
    is_trusted: bool = False
    #: Models it may ask for; None where it may ask for any.
    models: frozenset[str] | None = None
    limits: KeyLimits = NO_LIMITS
    #: Highest priority that its requests may have.
    max_priority: int = 0

    def may_ask_for(self, model: str) -> bool:
        """Whether a model is one that it may ask for."""
        return self.models is None or model in self.models


#: Whoever reaches a router without keys: that is a matter of its address alone.
OPERATOR = Principal(name="anonymous", role=Role.ADMIN, max_priority=9)
#: Whoever comes without a key where that is allowed beside keys.
ANONYMOUS = Principal(name="anonymous", tenant="anonymous")
#: Whoever came past no guard: an ordinary client, of whom nothing is known.
NOBODY = Principal(name="unknown")
#: Where the principal stands in the scope of an ASGI call.
SCOPE_KEY = "dovecote.principal"


def find_principal(scope: Mapping[str, Any]) -> Principal:
    """Whom an ASGI call is from, as the guard found."""
    principal = scope.get(SCOPE_KEY)
    return principal if isinstance(principal, Principal) else NOBODY
