"""Whether balancers should send requests here: `/readyz`, and `/livez` beside it for whoever restarts processes.

A router that is told to end is not ready at once, goes on taking requests until balancers have noticed, and only then
stops listening and finishes what runs.
Source: docs/faults.md D09.
"""

import time
from collections.abc import Callable

from fastapi import APIRouter
from fastapi.responses import JSONResponse

#: A balancer that asked within this time is waited for.
ASKED_WITHIN_S = 60.0
#: How long it is waited for where the configuration does not say.
WAIT_S = 5.0


class Readiness:
    """One router's readiness."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked_at_s: float | None = None
        #: It was told to end.
        self.is_leaving = False

    def ask(self) -> bool:
        """Whether it is ready; somebody wants to know, and will again."""
        self._asked_at_s = self._clock()
        return not self.is_leaving

    def leave(self, wait_s: float | None) -> float:
        """It is told to end: not ready from now on; the seconds for which it takes requests all the same.

        Args:
            wait_s: By configuration; None waits only where somebody has been asking.
        """
        self.is_leaving = True
        if wait_s is not None:
            return wait_s
        was_asked = self._asked_at_s is not None and self._clock() - self._asked_at_s <= ASKED_WITHIN_S
        return WAIT_S if was_asked else 0.0


def build_readiness_routes(readiness: Readiness, count_taking: Callable[[], int]) -> APIRouter:
    """The routes.

    Args:
        readiness: What the process knows.
        count_taking: Workers that take requests.
    """
    routes = APIRouter()

    @routes.get("/readyz")
    async def readyz() -> JSONResponse:
        """200 while requests should be sent here, else 503."""
        if not readiness.ask():
            return JSONResponse({"status": "leaving"}, status_code=503)
        taking = count_taking()
        body = {"status": "ready" if taking else "no worker takes requests", "workers": taking}
        return JSONResponse(body, status_code=200 if taking else 503)

    @routes.get("/livez")
    async def livez() -> JSONResponse:
        """200: the process answers."""
        return JSONResponse({"status": "alive"})

    return routes
