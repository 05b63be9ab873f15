"""Workers of a file that is read again when it changes: `discovery.file`."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from router.config.discovery import FileDiscovery
from router.config_files import check_workers_text
from router.control.registry import Entry, Listed, Word
from router.control.sources import FILE
from router.control.watched_file import WatchedFile

_log = logging.getLogger("dovecote.control")


class FileSource:
    """One file of workers."""

    def __init__(self, config: FileDiscovery) -> None:
        self._file = WatchedFile(Path(config.path), self._take, what="workers", poll_s=config.poll_s)
        self._report: Callable[[Word], None] | None = None

    @property
    def name(self) -> str:
        """See `Source`."""
        return FILE

    @property
    def problem(self) -> str | None:
        """See `Source`."""
        return self._file.problem

    async def run(self, report: Callable[[Word], None]) -> None:
        """See `Source`."""
        self._report = report
        await self._file.watch()

    async def _take(self, text: str, path: Path) -> None:
        workers = await asyncio.to_thread(check_workers_text, text, str(path))
        if self._report is not None:
            self._report(Listed(FILE, tuple(map(Entry, workers))))
            self._file.counts.taken += 1
            _log.info("workers_taken file=%s workers=%d", path, len(workers))
