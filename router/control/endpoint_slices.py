"""The EndpointSlices of a Kubernetes service, and the workers that follow from them. Pure.

Holds every slice by name, as listed and as changed by watch events; a new list replaces all of it, so that what went
while nobody watched is gone too. An endpoint that terminates is drained, one that is not ready gets nothing.
Source: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/;
docs/faults.md D04-D06.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from pydantic import ValidationError

from router.config.discovery import KubernetesDiscovery, bracket
from router.control.registry import MAX_WORKERS, Entry

#: Addresses of these kinds can be connected to; names are not resolved.
_KINDS = frozenset({"IPv4", "IPv6"})
_MAX_SLICES = 10_000


class Conditions(msgspec.Struct, frozen=True):
    """What Kubernetes says of an endpoint; None where it does not know, which is to be taken as ready."""

    ready: bool | None = None
    terminating: bool | None = None


class _Reference(msgspec.Struct, frozen=True):
    name: str = ""


class Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    """One endpoint."""

    addresses: list[str] = []
    conditions: Conditions = Conditions()
    target_ref: _Reference | None = None


class SlicePort(msgspec.Struct, frozen=True):
    """One port of all endpoints of a slice."""

    port: int | None = None
    name: str | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Name and version of an object or a list."""

    name: str = ""
    resource_version: str = ""
    #: Where a list goes on; empty at its end. (`continue` is a word of Python.)
    next_page: str = msgspec.field(default="", name="continue")


class EndpointSlice(msgspec.Struct, frozen=True, rename="camel"):
    """One slice."""

    metadata: Metadata = Metadata()
    address_type: str = "IPv4"
    endpoints: list[Endpoint] | None = None
    ports: list[SlicePort] | None = None


class SliceList(msgspec.Struct, frozen=True):
    """A page of a list."""

    items: Annotated[list[EndpointSlice], Meta(max_length=_MAX_SLICES)] | None = None
    metadata: Metadata = Metadata()


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: Any = None


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class Seen(StrEnum):
    """What a watch event was."""

    #: Some slice changed.
    CHANGED = "changed"
    #: Only the version went on.
    NOTHING = "nothing"
    #: The server no longer has the history: list anew.
    GONE = "gone"
    #: It cannot be read, or the server reports an error: list anew.
    BAD = "bad"


class SliceMirror:
    """Every slice of one service."""

    def __init__(self, config: KubernetesDiscovery) -> None:
        self._config = config
        self._slices: dict[str, EndpointSlice] = {}
        #: Version from which a watch goes on; empty before a list.
        self.version = ""

    def replace(self, slices: Iterable[EndpointSlice], version: str) -> None:
        """A whole list."""
        self._slices = {each.metadata.name: each for each in slices}
        self.version = version

    def take(self, line: bytes) -> Seen:
        """A line of a watch; never raises."""
        try:
            event = msgspec.json.decode(line, type=WatchEvent)
            if event.type == "ERROR":
                status = msgspec.convert(event.object, _Status)
                return Seen.GONE if status.code == 410 else Seen.BAD
            told = msgspec.convert(event.object, EndpointSlice)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return Seen.BAD
        self.version = told.metadata.resource_version or self.version
        if event.type == "BOOKMARK":
            return Seen.NOTHING
        if event.type == "DELETED":
            return Seen.NOTHING if self._slices.pop(told.metadata.name, None) is None else Seen.CHANGED
        if event.type not in {"ADDED", "MODIFIED"} or len(self._slices) >= _MAX_SLICES:
            return Seen.BAD
        self._slices[told.metadata.name] = told
        return Seen.CHANGED

    def to_entries(self) -> tuple[Entry, ...]:
        """The workers, each address once: an endpoint may stand in two slices while it moves from one to the other."""
        found: dict[str, Entry] = {}
        for each in self._slices.values():
            port = self._find_port(each.ports or [])
            if each.address_type not in _KINDS or port is None:
                continue
            for endpoint in each.endpoints or []:
                entry = self._make_entry(endpoint, port)
                known = None if entry is None else found.get(entry.config.url)
                if entry is not None and (known is None or _rank(entry) > _rank(known)):
                    found[entry.config.url] = entry
        return tuple(_with_names_once(found.values()))[:MAX_WORKERS]

    def _find_port(self, ports: list[SlicePort]) -> int | None:
        """The engines' port, by name or number; without one in the configuration the first."""
        wanted = self._config.port
        if isinstance(wanted, int):
            return wanted
        named = (each.port for each in ports if wanted is None or each.name == wanted)
        return next((port for port in named if port is not None and 0 < port < 65_536), None)

    def _make_entry(self, endpoint: Endpoint, port: int) -> Entry | None:
        if not endpoint.addresses:
            return None
        host = endpoint.addresses[0]
        url = f"{self._config.scheme}://{bracket(host)}:{port}"
        name = endpoint.target_ref.name if endpoint.target_ref is not None else ""
        try:
            config = self._config.worker.make_worker(url, name or f"{bracket(host)}:{port}", host=host)
        except ValidationError:
            # Neither an address nor a name of Kubernetes: nothing that could be connected to.
            return None
        conditions = endpoint.conditions
        return Entry(config, conditions.ready is not False, bool(conditions.terminating))


def _rank(entry: Entry) -> tuple[bool, bool]:
    """Of two words about one endpoint the better one counts."""
    return not entry.draining, entry.ready


def _with_names_once(entries: Iterable[Entry]) -> Iterable[Entry]:
    """A pod with two addresses has two URLs and one name; the second goes by its address."""
    names: set[str] = set()
    for entry in entries:
        if entry.worker in names:
            config = entry.config.model_copy(update={"id": None})
            yield Entry(config, entry.ready, entry.draining)
        else:
            names.add(entry.worker)
            yield entry
