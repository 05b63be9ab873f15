"""The policy read from a file: again whenever the file changes, taken whole or refused whole.

Looked at every few seconds (time, size and number of the file, then its bytes), at SIGHUP and when asked to. A file
that cannot be read or used changes nothing: the old policy goes on, and log, metrics and `GET /v1/policy` say why.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from router.config_check import check_policy_text, read_text
from router.config_policy import PolicyConfig
from router.errors import ConfigError
from router.policy.base import Policy
from router.policy.catalogue import build_policies

_log = logging.getLogger("dovecote.control")
#: Seconds between two looks at the file.
POLL_S = 2.0


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
    """

    def __init__(
        self,
        path: Path | None,
        initial: PolicyConfig,
        apply: Callable[[Policy, Policy | None], None],
        *,
        poll_s: float = POLL_S,
    ) -> None:
        self._path = path
        self._apply = apply
        self._poll_s = poll_s
        self._text: str | None = None
        self._mark: tuple[int, int, int] | None = None
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
            try:
                await self.look(is_asked=self._asked.is_set())
            except Exception:  # noqa: BLE001
                # The watch must outlive whatever stands in the file.
                _log.exception("policy_watch_failed file=%s", self._path)
            self._asked.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._asked.wait()

    async def look(self, *, is_asked: bool = False) -> bool:
        """Read the file where it changed, or where that was asked for; whether its policy acts now."""
        if self._path is None:
            return False
        mark = await asyncio.to_thread(_find_mark, self._path)
        if mark == self._mark and mark is not None and not is_asked:
            return self.problem is None
        self._mark = mark
        try:
            text = await asyncio.to_thread(read_text, self._path)
            if text == self._text and not is_asked:
                return self.problem is None
            self._text = text
            self._take(await asyncio.to_thread(check_policy_text, text, self._path))
        except ConfigError as error:
            self._refuse(error)
        return self.problem is None

    def _take(self, config: PolicyConfig) -> None:
        self.problem = None
        acting, shadow = build_policies(config)
        is_new = config != self.config
        self.config = config
        if is_new:
            self._apply(acting, shadow)
            self.counts.taken += 1
            _log.info("policy_taken file=%s policy=%s", self._path, config.name.value)

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


def _find_mark(path: Path) -> tuple[int, int, int] | None:
    """Tells one state of a file from another; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
