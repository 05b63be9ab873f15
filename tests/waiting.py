"""Waiting for what must come, however busy the machine is.

No test depends on how fast the machine is: what must happen has this long, and only a broken test waits for all of it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

#: Longest wait for anything, seconds. A machine that stands still for half of it is no defect of ours.
PATIENCE_S = 60.0
#: The same for a process that loads torch before it says that it listens.
LOADING_S = 180.0
_PAUSE_S = 0.002


def wait_until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Ask again until a condition of another thread or process holds; what it gave."""
    until_s = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < until_s, f"waited in vain for {what}"
        time.sleep(_PAUSE_S)
    return found


async def eventually(condition: Callable[[], Any]) -> Any:
    """The same on an event loop, for what other tasks of it do; what the condition gave."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := condition()):  # noqa: ASYNC110  (the conditions are of many kinds)
            await asyncio.sleep(_PAUSE_S)
    return found
