"""Which workers there should be, from everyone who says so. Pure.

A source (configuration, file, Kubernetes, the API, later Redis) tells what it knows: all of it at once, or one worker
that came, changed or went. What comes out are edits: added, changed, gone. Where two sources name the same worker the
one that stands first counts, and the other as soon as that one lets go; one URL is one worker, whatever its names.
Source: docs/faults.md D04, D06.
"""

from collections.abc import Iterable, Sequence

import msgspec

from router.config.workers import WorkerConfig
from wire.ids import WorkerId

#: Most workers of one source; what it tells beyond that is refused whole.
MAX_WORKERS = 10_000


class Entry(msgspec.Struct, frozen=True):
    """One worker as a source describes it."""

    config: WorkerConfig
    #: Its source wants requests to go there, as far as it can tell.
    ready: bool = True
    #: It is about to leave: it finishes what it has and gets nothing new.
    draining: bool = False
    #: Whoever named it is not the configuration: it may name no other host for its sockets than its own.
    is_guest: bool = False

    @property
    def worker(self) -> WorkerId:
        """Its name."""
        return WorkerId(self.config.worker_id)

    @property
    def address(self) -> str:
        """What makes it the same process under another name."""
        return self.config.url.lower()


class Listed(msgspec.Struct, frozen=True):
    """All that a source knows now; what it named before and does not name here is gone."""

    source: str
    entries: tuple[Entry, ...]


class Put(msgspec.Struct, frozen=True):
    """A source has a worker, new or changed."""

    source: str
    entry: Entry


class Removed(msgspec.Struct, frozen=True):
    """A source has a worker no more."""

    source: str
    worker: WorkerId


Word = Listed | Put | Removed


class WorkerAdded(msgspec.Struct, frozen=True):
    """A worker belongs to the fleet now."""

    entry: Entry


class WorkerChanged(msgspec.Struct, frozen=True):
    """A worker of the fleet is described otherwise now."""

    before: Entry
    entry: Entry


class WorkerGone(msgspec.Struct, frozen=True):
    """A worker belongs to the fleet no more."""

    entry: Entry


Edit = WorkerAdded | WorkerChanged | WorkerGone


class Registry:
    """What every source told, and the fleet that follows from it.

    Args:
        sources: Names of the sources, the one that counts most first.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self._told: dict[str, dict[WorkerId, Entry]] = {source: {} for source in sources}
        #: The fleet: each worker with its entry.
        self.fleet: dict[WorkerId, Entry] = {}
        #: Source that a worker of the fleet is of.
        self.origins: dict[WorkerId, str] = {}
        #: Workers that a source names and that do not count, each with the source and why, in words.
        self.shadowed: tuple[tuple[str, WorkerId, str], ...] = ()

    def apply(self, word: Word) -> tuple[Edit, ...]:
        """Take in what a source told; the fleet goes over in one step.

        Gone come first, then changed, then added: a process that only got another name is gone before it is added.

        Raises:
            KeyError: No such source.
            ValueError: It names more workers than are taken.
        """
        told = self._told[word.source]
        if isinstance(word, Listed):
            told = {entry.worker: entry for entry in word.entries}
        elif isinstance(word, Put):
            told = {**told, word.entry.worker: word.entry}
        else:
            told = {worker: entry for worker, entry in told.items() if worker != word.worker}
        if len(told) > MAX_WORKERS:
            raise ValueError(f"{word.source} names {len(told)} workers; at most {MAX_WORKERS} are taken")
        self._told[word.source] = told
        before = self.fleet
        self._settle()
        return _compare(before, self.fleet)

    def count(self) -> dict[str, int]:
        """Workers that each source names."""
        return {source: len(told) for source, told in self._told.items()}

    def knows(self, source: str, worker: WorkerId) -> bool:
        """Whether a source names a worker."""
        return worker in self._told[source]

    def _settle(self) -> None:
        fleet: dict[WorkerId, Entry] = {}
        origins: dict[WorkerId, str] = {}
        owners: dict[str, WorkerId] = {}
        shadowed: list[tuple[str, WorkerId, str]] = []
        for source, told in self._told.items():
            for worker, entry in told.items():
                if worker in fleet:
                    shadowed.append((source, worker, f"{origins[worker]} names a worker of this id too"))
                elif (owner := owners.get(entry.address)) is not None:
                    shadowed.append((source, worker, f"{entry.config.url} is worker {owner} of {origins[owner]}"))
                else:
                    fleet[worker], origins[worker], owners[entry.address] = entry, source, worker
        self.fleet, self.origins, self.shadowed = fleet, origins, tuple(shadowed)


def _compare(before: dict[WorkerId, Entry], after: dict[WorkerId, Entry]) -> tuple[Edit, ...]:
    gone: Iterable[Edit] = (WorkerGone(entry) for worker, entry in before.items() if worker not in after)
    changed: Iterable[Edit] = (
        WorkerChanged(before[worker], entry)
        for worker, entry in after.items()
        if worker in before and before[worker] != entry
    )
    added: Iterable[Edit] = (WorkerAdded(entry) for worker, entry in after.items() if worker not in before)
    return (*gone, *changed, *added)
