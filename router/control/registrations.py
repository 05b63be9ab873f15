"""Workers that register themselves: checked against the allow-list, pinned to the addresses that were checked.

A name is resolved once, here, and the worker is reached at the address that was looked at and at no other: what the
name stands for later does not matter. Over https the name stays, for its certificate: whoever answers in its place
must have that. Where certificates are not checked, it is pinned like any other.
Source: docs/faults.md G02.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

import msgspec

from router.config.discovery import RegistrationConfig, bracket
from router.config.workers import WorkerConfig
from router.control.allow_list import AllowList
from router.control.registry import Entry, Put, Registry, Removed, Word
from router.control.sources import API
from router.lookout import own_time
from wire.ids import WorkerId

#: Longest that a name may take to be resolved, and most addresses looked at.
RESOLVE_S = 5.0
MAX_ADDRESSES = 16
Resolve = Callable[[str, int], Awaitable[list[str]]]


class Refused(msgspec.Struct, frozen=True):
    """Why a registration was not taken."""

    status: int
    code: str
    message: str
    param: str | None = None


async def resolve(host: str, port: int) -> list[str]:
    """Addresses of a host.

    Raises:
        OSError: It has none.
        TimeoutError: Nobody said.
    """
    async with own_time(RESOLVE_S):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))[:MAX_ADDRESSES]


class Registrations:
    """Takes workers in and lets them go.

    Args:
        config: Whom to take; None takes nobody.
        registry: Where they are known.
        apply: Tells the fleet.
        find_addresses: Resolves names.
        checks_certificates: Whether whoever answers over https has to be who it is asked for.
    """

    def __init__(
        self,
        config: RegistrationConfig | None,
        registry: Registry,
        apply: Callable[[Word], None],
        *,
        find_addresses: Resolve = resolve,
        checks_certificates: bool = True,
    ) -> None:
        self._config = config
        self._registry = registry
        self._apply = apply
        self._find_addresses = find_addresses
        self._checks_certificates = checks_certificates
        self._allowed = None if config is None else AllowList(config.hosts, config.cidrs, config.ports)

    async def add(self, config: WorkerConfig) -> Entry | Refused:
        """Take a worker in, or say why not. Nothing is asked of it before."""
        if self._config is None or self._allowed is None:
            return Refused(403, "registration_off", "workers do not register here; the key `registration` allows it")
        if not isinstance(config.events, str):
            return Refused(422, "not_allowed", "a worker that registers tells its own event sockets", "events")
        pinned: dict[str, str] = {}
        for key in ("url", "sidecar"):
            url = getattr(config, key)
            checked = None if url is None else await self._check(url, key)
            if isinstance(checked, Refused):
                return checked
            if checked is not None:
                pinned[key] = checked
        name = config.worker_id
        entry = Entry(config.model_copy(update={**pinned, "id": name}), is_guest=True)
        return self._take(entry)

    async def _check(self, url: str, key: str) -> str | Refused:
        """The URL to reach it at, with the address that was looked at."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        try:
            addresses = await self._find_addresses(host, parts.port or 0)
        except (OSError, UnicodeError) as error:
            return Refused(422, "not_allowed", f"{host} cannot be resolved ({type(error).__name__})", key)
        problem = None if self._allowed is None else self._allowed.find_url_problem(url, addresses)
        if problem is not None:
            return Refused(422, "not_allowed", problem, key)
        if parts.scheme == "https" and self._checks_certificates:
            return url
        port = "" if parts.port is None else f":{parts.port}"
        return urlunsplit((parts.scheme, bracket(addresses[0]) + port, parts.path, "", ""))

    def _take(self, entry: Entry) -> Entry | Refused:
        known = self._registry.knows(API, entry.worker)
        limit = 0 if self._config is None else self._config.max_workers
        if not known and self._registry.count()[API] >= limit:
            return Refused(409, "too_many_workers", f"{limit} workers are registered, as many as may be")
        owner = self._registry.origins.get(entry.worker, API)
        if owner != API:
            return Refused(409, "worker_exists", f"{owner} names a worker of this id", "id")
        other = self._find_other(entry)
        if other is not None:
            return Refused(409, "worker_exists", f"its address is that of worker {other}", "url")
        self._apply(Put(API, entry))
        return entry

    def _find_other(self, entry: Entry) -> WorkerId | None:
        same = (name for name, each in self._registry.fleet.items() if each.address == entry.address)
        return next((name for name in same if name != entry.worker), None)

    def remove(self, worker: WorkerId) -> Refused | None:
        """Let a worker go that registered itself; it finishes what it has."""
        if not self._registry.knows(API, worker):
            owner = self._registry.origins.get(worker)
            if owner is None:
                return Refused(404, "worker_not_found", "there is no worker of that id")
            return Refused(409, "not_registered", f"{owner} names this worker: it goes when it is named there no more")
        self._apply(Removed(API, worker))
        return None
