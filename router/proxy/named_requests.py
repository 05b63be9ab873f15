"""Running requests by the names under which their clients may end them, and what their engines call them.

A client's `rid` is a name among its own tenant's; engines are given one made here in its place. Those have one length,
so that an engine which ends every request whose name begins with the one it is told ends no other.
Source: docs/faults.md C05, G03.
"""

import re
from typing import Protocol

import msgspec

from router.errors import RequestError
from router.proxy.fresh_ids import make_fresh_id
from router.proxy.kept import check_id
from wire.ids import Target

#: Most names of one request.
MAX_NAMES = 4_096
_MADE = re.compile(r"[0-9a-f]{32}(?:-[0-9]{1,4})?")


class NamedRequest(Protocol):
    """One running request."""

    @property
    def engine_names(self) -> tuple[str, ...]:
        """What its engines call it, a name a prompt where its client gave several; empty where they were given none."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """Ranks that have a share of it now."""

    def interrupt(self) -> None:
        """End it here, which closes its connections."""


class NamedRequests:
    """All of them."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], list[NamedRequest]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def add(self, tenant: str, names: tuple[str, ...], request: NamedRequest) -> None:
        """A request runs."""
        for name in names:
            self._running.setdefault((tenant, name), []).append(request)

    def remove(self, tenant: str, names: tuple[str, ...], request: NamedRequest) -> None:
        """It has ended."""
        for name in names:
            alike = self._running[tenant, name]
            alike.remove(request)
            if not alike:
                del self._running[tenant, name]

    def find(self, tenant: str, name: str) -> list[NamedRequest]:
        """The running requests of exactly that name."""
        return list(self._running.get((tenant, name), ()))


def read_rids(value: object) -> tuple[str, ...]:
    """The names in a body's `rid`: one, or one a prompt.

    Raises:
        RequestError: It is neither.
    """
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    if len(values) > MAX_NAMES:
        raise RequestError(f"rid holds {len(values)} names; at most {MAX_NAMES} are taken", param="rid")
    return tuple(dict.fromkeys(check_id(each, "rid") for each in values))


def make_engine_names(rid: object) -> tuple[str, ...]:
    """Names that no other request has, as many as the client gave."""
    if rid is None:
        return ()
    name = make_engine_name()
    return tuple(f"{name}-{place}" for place in range(len(rid))) if isinstance(rid, list) else (name,)


def make_engine_name() -> str:
    """A name that no other request has, and no other one begins with."""
    return make_fresh_id()


def is_engine_name(name: str) -> bool:
    """Whether a name is of the form that routers make."""
    return _MADE.fullmatch(name) is not None


def encode_rid(rid: object, engine_names: tuple[str, ...]) -> bytes:
    """What stands in the body in place of the client's `rid`."""
    return msgspec.json.encode(engine_names if isinstance(rid, list) else engine_names[0])
