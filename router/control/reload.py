"""The policy read from a file: again whenever the file changes, taken whole or refused whole.

Looked at every few seconds (time, size and number of the file, then its bytes), at SIGHUP and when asked to. A file
that cannot be read or used changes nothing: the old policy goes on, and log, metrics and `GET /v1/policy` say why.

Part of a file can be a good policy, so that a file which is being written must not be taken: a change that is noticed
is left alone until it stands still, and text counts only where the file was the same before and after it was read.
"""

import asyncio
import contextlib
import logging
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from router.config_check import check_policy_text
from router.config_policy import MAX_TEXT_CHARS, PolicyConfig
from router.errors import ConfigError
from router.policy.base import Policy
from router.policy.catalogue import build_policies

_log = logging.getLogger("dovecote.control")
#: Seconds between two looks at the file.
POLL_S = 2.0
#: A changed file is read once it has stood still for so long, or after so many looks at it.
SETTLE_S = 0.2
MAX_SETTLES = 25
#: Times that a file is read which changes meanwhile.
MAX_READS = 3
#: A file that was written so short a time ago is read once more.
FRESH_NS = 1_000_000_000
Mark = tuple[int, int, int]


class ReloadCounts(msgspec.Struct):
    """How often the file was read anew."""

    taken: int = 0
    refused: int = 0


class PolicyFile:
    """Watches one file. Belongs to the event loop that starts it.

    Args:
        path: The file; None where the policy is part of the fleet's file, and nothing is watched.
        initial: What acts from the start.
        apply: Takes the policy that acts and the one that only scores; must not raise.
        poll_s: Seconds between two looks.
        settle_s: Seconds for which a change that the watch notices must have stood still.
    """

    def __init__(
        self,
        path: Path | None,
        initial: PolicyConfig,
        apply: Callable[[Policy, Policy | None], None],
        *,
        poll_s: float = POLL_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._path = path
        self._apply = apply
        self._poll_s = poll_s
        self._settle_s = settle_s
        #: What was read last; None where nothing was, or not to the end.
        self._text: str | None = None
        self._mark: Mark | None = None
        #: One look at a time: a text that was read first must not be taken last.
        self._looking = asyncio.Lock()
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: What acts.
        self.config = initial
        #: Why the file as it stands was refused; None where it was taken.
        self.problem: str | None = None
        self.counts = ReloadCounts()

    @property
    def path(self) -> Path | None:
        """The file."""
        return self._path

    async def start(self) -> None:
        """Watch the file, and take SIGHUP as a wish to read it anew where this thread may."""
        if self._path is None:
            return
        self._task = asyncio.create_task(self._watch())
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked.set)

    async def stop(self) -> None:
        """End the watch."""
        if self._task is None:
            return
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            is_asked = self._asked.is_set()
            self._asked.clear()
            try:
                if not is_asked:
                    await self._settle()
                await self.look(is_asked=is_asked)
            except Exception:  # noqa: BLE001
                # The watch must outlive whatever stands in the file.
                _log.exception("policy_watch_failed file=%s", self._path)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._asked.wait()

    async def _settle(self) -> None:
        """Wait while the file changes; a wish to have it read ends that."""
        if self._path is None:
            return
        mark = await asyncio.to_thread(find_mark, self._path)
        for _ in range(MAX_SETTLES):
            if mark == self._mark or self._asked.is_set():
                return
            await asyncio.sleep(self._settle_s)
            before, mark = mark, await asyncio.to_thread(find_mark, self._path)
            if mark == before:
                return

    async def look(self, *, is_asked: bool = False) -> bool:
        """Read the file where it changed, or where that was asked for; whether its policy acts now."""
        if self._path is None:
            return False
        async with self._looking:
            try:
                await self._look(self._path, is_asked=is_asked)
            except ConfigError as error:
                self._refuse(error)
            except Exception as error:  # noqa: BLE001
                # Our own defect: no reason to act on half of a policy, or to say nothing.
                _log.exception("policy_not_taken file=%s", self._path)
                problem = f"cannot be taken ({type(error).__name__}); the log has the story"
                self._refuse(_make_error(self._path, problem))
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
            self._take(await asyncio.to_thread(check_policy_text, text, path))

    def _take(self, config: PolicyConfig) -> None:
        acting, shadow = build_policies(config)
        if config != self.config:
            self._apply(acting, shadow)
            self.config = config
            self.counts.taken += 1
            _log.info("policy_taken file=%s policy=%s", self._path, config.name.value)
        self.problem = None

    def _refuse(self, error: ConfigError) -> None:
        if error.message != self.problem:
            self.counts.refused += 1
            _log.error("policy_refused file=%s reason=%r effect='the old policy stays'", self._path, error.message)
        self.problem = error.message

    def to_json(self) -> dict[str, Any]:
        """What acts, where it comes from, and what is wrong with the file."""
        return {
            "file": None if self._path is None else str(self._path),
            "policy": self.config.model_dump(mode="json", exclude={"file"}),
            "problem": self.problem,
            "taken": self.counts.taken,
            "refused": self.counts.refused,
        }


def find_mark(path: Path) -> Mark | None:
    """Tells one state of a file from another; None where there is none."""
    try:
        return _mark(path.stat())
    except (OSError, ValueError):
        return None


def read_still(path: Path) -> tuple[Mark, str]:
    """A regular file's text, read while nobody wrote it, and its mark then.

    Raises:
        ConfigError: It cannot be read, is no regular file, or does not stand still.
    """
    for _ in range(MAX_READS):
        try:
            before, text, after = _read(path)
        except UnicodeDecodeError as error:
            raise _make_error(path, "is not UTF-8 text") from error
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise _make_error(path, f"cannot be read: {reason}") from error
        if before == after:
            return before, text
    raise _make_error(path, "is being written")


def _read(path: Path) -> tuple[Mark, str, Mark | None]:
    # A pipe would keep the reader waiting for ever, and a device give no end.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        with os.fdopen(number, encoding="utf-8", closefd=False) as file:
            text = file.read(MAX_TEXT_CHARS + 1)
        return _mark(status), text, find_mark(path)
    finally:
        os.close(number)


def _mark(status: os.stat_result) -> Mark:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _make_error(path: Path, problem: str) -> ConfigError:
    return ConfigError(file_name=str(path), key_path="", value=None, problem=problem, shows_value=False)
