"""The policy read from a file: again whenever the file changes, taken whole or refused whole (`watched_file`).

Log, metrics and `GET /v1/policy` say why a file was refused; the old policy goes on.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from router.config_check import check_policy_text
from router.config_policy import PolicyConfig
from router.control.watched_file import POLL_S, SETTLE_S, ReloadCounts, WatchedFile
from router.policy.base import Policy
from router.policy.catalogue import build_policies

_log = logging.getLogger("dovecote.control")


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
        self._apply = apply
        self._file: WatchedFile | None = None
        if path is not None:
            self._file = WatchedFile(path, self._read, what="policy", poll_s=poll_s, settle_s=settle_s)
        self._task: asyncio.Task[None] | None = None
        #: What acts.
        self.config = initial
        self.counts = ReloadCounts() if self._file is None else self._file.counts

    @property
    def path(self) -> Path | None:
        """The file."""
        return None if self._file is None else self._file.path

    @property
    def problem(self) -> str | None:
        """Why the file as it stands was refused; None where it was taken."""
        return None if self._file is None else self._file.problem

    async def start(self) -> None:
        """Watch the file, and take SIGHUP as a wish to read it anew where this thread may."""
        if self._file is not None:
            self._task = asyncio.create_task(self._file.watch())

    async def stop(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self, *, is_asked: bool = False) -> bool:
        """Read the file where it changed, or where that was asked for; whether its policy acts now."""
        return self._file is not None and await self._file.look(is_asked=is_asked)

    async def _read(self, text: str) -> None:
        if self._file is not None:
            self._take(await asyncio.to_thread(check_policy_text, text, self._file.path))

    def _take(self, config: PolicyConfig) -> None:
        acting, shadow = build_policies(config)
        if config != self.config:
            self._apply(acting, shadow)
            self.config = config
            self.counts.taken += 1
            _log.info("policy_taken file=%s policy=%s", self.path, config.name.value)

    def to_json(self) -> dict[str, Any]:
        """What acts, where it comes from, and what is wrong with the file."""
        return {
            "file": None if self.path is None else str(self.path),
            "policy": self.config.model_dump(mode="json", exclude={"file"}),
            "problem": self.problem,
            "taken": self.counts.taken,
            "refused": self.counts.refused,
        }
