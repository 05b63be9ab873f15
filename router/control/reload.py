"""The policy read from a file: again whenever the file changes, taken whole or refused whole (`watched_file`).

Log, metrics and `GET /v1/policy` say why a file was refused; the old policy goes on.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from router.config.policy import PolicyConfig
from router.config_files import check_policy_text
from router.control.watched_file import POLL_S, SETTLE_S, WatchedFile
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
        self.watch = WatchedFile(path, self._read, what="policy", poll_s=poll_s, settle_s=settle_s)
        #: What acts.
        self.config = initial

    async def _read(self, text: str, path: Path) -> None:
        config = await asyncio.to_thread(check_policy_text, text, path)
        acting, shadow = build_policies(config)
        if config != self.config:
            self._apply(acting, shadow)
            self.config = config
            self.watch.counts.taken += 1
            _log.info("policy_taken file=%s policy=%s", path, config.name.value)

    def to_json(self) -> dict[str, Any]:
        """What acts, where it comes from, and what is wrong with the file."""
        return {
            "file": None if self.watch.path is None else str(self.watch.path),
            "policy": self.config.model_dump(mode="json", exclude={"file"}),
            "problem": self.watch.problem,
            "taken": self.watch.counts.taken,
            "refused": self.watch.counts.refused,
        }
