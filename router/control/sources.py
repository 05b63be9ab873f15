"""Where workers come from while the router runs: what every source is, and the one that cannot change.

A source runs in a task of the fleet watch and reports what it knows as words of the registry; the watch ends it. What
it cannot read or reach it reports as a problem, and what it knew stays until it knows better.
"""

from collections.abc import Callable
from typing import Protocol

from router.control.registry import Word

#: Names of the sources, in the order in which they count.
CONFIG, FILE, API = "config", "file", "api"


class Source(Protocol):
    """Someone who knows of workers."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        ...

    @property
    def problem(self) -> str | None:
        """What keeps it from knowing better, in words; None where nothing does."""
        ...

    async def run(self, report: Callable[[Word], None]) -> None:
        """Report what there is and every change of it, until the task is cancelled."""
