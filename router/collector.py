"""When the interpreter looks for garbage in cycles, and how long that stops everything.

A collection of the oldest generation walks over all that lives, conversations, decisions and homes among it: tens of
milliseconds in which no request and no event moves. By itself Python does it after so many allocations, that is under
load. Here young generations are collected by themselves, which takes a millisecond or two and finds nearly all there is
to find, and the oldest only while no request runs, or when it has waited for long.
"""

import asyncio
import gc
import time
from collections.abc import Callable

from router.histogram import Histogram

#: Collections of the middle generation before one of the oldest: never by itself.
NEVER = 1_000_000_000
#: Objects that are made and stay before the youngest are collected, and such collections before one of the middle
#: generation. Python's own 700 and 10 find the objects of every request under way alive, again and again: 3.5% of all
#: that a request of 1 KB costs. With these it is 0.3%, and one of the middle generation looks at some 20,000 objects.
YOUNGEST = 5_000
MIDDLE = 4
#: Seconds between two looks at whether nobody waits.
LOOK_S = 1.0
#: Least and most time between two collections of the oldest generation.
LEAST_S = 30.0
MOST_S = 600.0
PAUSE_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def keep_for_good() -> None:
    """Leave what stands now (code, tokenizers, templates) out of later collections, which stop every request."""
    gc.collect()
    gc.freeze()


def leave_oldest_alone() -> None:
    """The oldest generation is collected when it is asked for and at no other time, younger ones less often."""
    gc.set_threshold(YOUNGEST, MIDDLE, NEVER)


class PauseLog:
    """How long collections took; called by the interpreter, so that it takes no lock and makes next to nothing."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self.pauses_s = Histogram(PAUSE_BOUNDS_S)
        self.longest_s = 0.0

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        """See `gc.callbacks`."""
        now_s = self._clock()
        if phase == "start":
            self._began_s = now_s
        elif self._began_s is not None:
            taken_s = now_s - self._began_s
            self._began_s = None
            self.pauses_s.observe(taken_s)
            self.longest_s = max(self.longest_s, taken_s)


class IdleCollector:
    """Collects the oldest generation at a good moment. Belongs to the event loop that starts it."""

    def __init__(
        self,
        count_running: Callable[[], int],
        *,
        count_aged: Callable[[], int] = lambda: gc.get_stats()[1]["collections"],
        collect: Callable[[], object] = gc.collect,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what it goes by.

        Args:
            count_running: Requests under way.
            count_aged: How often something grew old: collections of the middle generation.
            collect: Collects everything.
            clock: Monotonic time.
        """
        self._count_running = count_running
        self._count_aged = count_aged
        self._collect = collect
        self._clock = clock
        self._collected_at_s = clock()
        self._aged = count_aged()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look again and again."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End that."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> bool:
        """Collect where nobody waits for it, or where it has waited for long; whether it did."""
        waited_s = self._clock() - self._collected_at_s
        if waited_s < LEAST_S or self._count_aged() == self._aged:
            return False
        if self._count_running() and waited_s < MOST_S:
            return False
        self._collect()
        self._collected_at_s = self._clock()
        self._aged = self._count_aged()
        return True
