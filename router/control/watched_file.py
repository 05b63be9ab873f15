"""One file read again whenever it changes: taken whole or refused whole.

Looked at every few seconds (time, size and number of the file, then its bytes), at SIGHUP and when asked to. A file
that cannot be read or used changes nothing: what was taken last goes on, and `problem` says why. A change that is
noticed is left alone until it stands still: part of a file can be a good one.
Source: docs/faults.md D07.
"""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from router.errors import ConfigError
from router.regular_file import Mark, find_mark, make_error, read_still

_log = logging.getLogger("dovecote.control")
#: Seconds between two looks at the file.
POLL_S = 2.0
#: A changed file is read once it has stood still for so long, or after so many looks at it.
SETTLE_S = 0.2
MAX_SETTLES = 25
#: A file that was written so short a time ago is read once more.
FRESH_NS = 1_000_000_000


class ReloadCounts(msgspec.Struct):
    """How often the file was read anew."""

    taken: int = 0
    refused: int = 0


class Hangups:
    """Who wants to know of SIGHUP: the event loop keeps one handler for a signal, and several files are watched."""

    def __init__(self) -> None:
        self._wishes: set[asyncio.Event] = set()

    def add(self, wish: asyncio.Event) -> None:
        """Set this at each SIGHUP, where this thread may handle signals."""
        self._wishes.add(wish)
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._tell)

    def remove(self, wish: asyncio.Event) -> None:
        """No longer."""
        self._wishes.discard(wish)
        if not self._wishes:
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)

    def _tell(self) -> None:
        for wish in self._wishes:
            wish.set()


#: Of this process.
HANGUPS = Hangups()


class WatchedFile:
    """Watches one file. Belongs to the event loop that starts it.

    Args:
        path: The file; None where there is none to watch, so that starting does nothing.
        take: Takes its text, whole, and its path; raises ConfigError where it cannot be used.
        what: What the file is, in logs.
        poll_s: Seconds between two looks.
        settle_s: Seconds for which a change that the watch notices must have stood still.
    """

    def __init__(
        self,
        path: Path | None,
        take: Callable[[str, Path], Awaitable[None]],
        *,
        what: str,
        poll_s: float = POLL_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self.path = path
        self._take = take
        self._what = what
        self._poll_s = poll_s
        self._settle_s = settle_s
        #: What was read last; None where nothing was, or not to the end.
        self._text: str | None = None
        self._mark: Mark | None = None
        #: One look at a time: a text that was read first must not be taken last.
        self._looking = asyncio.Lock()
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: Why the file as it stands was refused; None where it was taken.
        self.problem: str | None = None
        self.counts = ReloadCounts()

    def start(self) -> None:
        """Watch in a task of its own, and take SIGHUP as a wish to have the file read anew where this thread may."""
        if self.path is not None:
            self._task = asyncio.get_running_loop().create_task(self.watch())

    async def stop(self) -> None:
        """End that task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def watch(self) -> None:
        """Watch until the task is cancelled."""
        if self.path is None:
            return
        HANGUPS.add(self._asked)
        try:
            while True:
                await self._watch_once(self.path)
        finally:
            HANGUPS.remove(self._asked)

    async def _watch_once(self, path: Path) -> None:
        is_asked = self._asked.is_set()
        self._asked.clear()
        try:
            if not is_asked:
                await self._settle(path)
            await self.look(is_asked=is_asked)
        except Exception:  # noqa: BLE001
            # The watch must outlive whatever stands in the file.
            _log.exception("%s_watch_failed file=%s", self._what, path)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll_s):
                await self._asked.wait()

    async def _settle(self, path: Path) -> None:
        """Wait while the file changes; a wish to have it read ends that."""
        mark = await asyncio.to_thread(find_mark, path)
        for _ in range(MAX_SETTLES):
            if mark == self._mark or self._asked.is_set():
                return
            await asyncio.sleep(self._settle_s)
            before, mark = mark, await asyncio.to_thread(find_mark, path)
            if mark == before:
                return

    async def look(self, *, is_asked: bool = False) -> bool:
        """Read the file where it changed, or where that was asked for; whether what stands in it is in force."""
        path = self.path
        if path is None:
            return False
        async with self._looking:
            try:
                await self._look(path, is_asked=is_asked)
            except ConfigError as error:
                self._refuse(error)
            except Exception as error:  # noqa: BLE001
                # Our own defect: no reason to take half of a file, or to say nothing.
                _log.exception("%s_not_taken file=%s", self._what, path)
                problem = f"cannot be taken ({type(error).__name__}); the log has the story"
                self._refuse(make_error(path, problem))
        return self.problem is None

    async def _look(self, path: Path, *, is_asked: bool) -> None:
        mark = await asyncio.to_thread(find_mark, path)
        if mark == self._mark and mark is not None and not is_asked:
            return
        known, self._mark, self._text = self._text, None, None
        still, text = await asyncio.to_thread(read_still, path)
        # What was written just now may be written again without looking any different.
        self._mark = still if time.time_ns() - still[0] > FRESH_NS else None
        self._text = text
        if text != known or (is_asked and self.problem is not None):
            await self._take(text, path)
            self.problem = None

    def _refuse(self, error: ConfigError) -> None:
        if error.message != self.problem:
            self.counts.refused += 1
            _log.error(
                "%s_refused file=%s reason=%r effect='what was taken before stays'",
                self._what, self.path, error.message,
            )  # fmt: skip
        self.problem = error.message
