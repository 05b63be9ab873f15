"""The demo's processes: engine replicas on free ports and one router at a time in front of them."""

import asyncio
from collections.abc import Callable

import aiohttp
import msgspec

from simulator.demo.plan import DemoPlan, ForwardName, name_worker
from simulator.demo.processes import Child, ChildEndedError, Children
from simulator.demo.scrape import MetricsPage

MODEL = "dovecote-toy"
#: How long the engines may take to listen (they load torch), the router, and the router's first look at the fleet; on a
#: machine that is busy with other things all that is slow.
ENGINE_DEADLINE_S = ROUTER_DEADLINE_S = READY_DEADLINE_S = 120.0
POLL_S = 0.1
#: Tensor libraries must not start a thread per core in each of the engines.
ENGINE_ENV = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class DemoFleet:
    """Starts and stops what one demo needs.

    Args:
        children: Owns the processes.
        http: For health and metrics pages.
        plan: Sizes.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, children: Children, http: aiohttp.ClientSession, plan: DemoPlan, clock: Callable[[], float]
    ) -> None:
        self._children, self._http, self._plan, self._clock = children, http, plan, clock
        self._engines: list[Child] = []
        self._routers: list[Child] = []

    async def start_engines(self) -> None:
        """Start all replicas and wait until each listens.

        Raises:
            ChildEndedError: One of them ended or never listened.
        """
        names = [f"engine {serial + 1}" for serial in range(self._plan.replicas)]
        arguments = ["engine_shim.engine", *engine_flags(self._plan)]
        self._engines = [await self._children.start(name, arguments, ENGINE_ENV) for name in names]
        await asyncio.gather(*(engine.wait_listening(ENGINE_DEADLINE_S) for engine in self._engines))

    async def stop(self) -> None:
        """Stop the router and all replicas, if there are any."""
        await self._children.stop(*self._routers, *self._engines)
        self._engines, self._routers = [], []

    async def start_router(self, policy: str) -> Child:
        """Start a router with this policy and wait until it sees every replica healthy.

        Raises:
            ChildEndedError: It ended, never listened, or did not find the replicas in time.
        """
        arguments = ["router", "serve", "--port", "0", "--policy", policy]
        named = [{"url": engine.url, "id": name_worker(place)} for place, engine in enumerate(self._engines)]
        workers = {"DOVECOTE__WORKERS": msgspec.json.encode(named).decode()}
        router = await self._children.start(f"router ({policy})", arguments, workers)
        self._routers.append(router)
        await router.wait_listening(ROUTER_DEADLINE_S)
        await self._wait_ready(router)
        return router

    async def metrics(self, router: Child) -> MetricsPage:
        """The router's metrics page as it is now."""
        async with self._http.get(f"{router.url}/metrics") as response:
            response.raise_for_status()
            return MetricsPage(await response.text())

    async def _wait_ready(self, router: Child) -> None:
        deadline_s = self._clock() + READY_DEADLINE_S
        while self._clock() < deadline_s:
            try:
                if is_ready(await self.metrics(router), self._plan.replicas):
                    return
            except aiohttp.ClientError:
                pass  # not there yet: asked again until the deadline
            await asyncio.sleep(POLL_S)
        raise ChildEndedError(f"{router.name} did not find its {self._plan.replicas} replicas healthy in time")


def is_ready(page: MetricsPage, replicas: int) -> bool:
    """Whether the router sees every replica healthy."""
    return page.total("dovecote_router_worker_healthy") >= replicas


def engine_flags(plan: DemoPlan) -> list[str]:
    """Command line of one replica."""
    flags: dict[str, object] = {
        "--port": 0,
        "--model": MODEL,
        "--forward": plan.forward.value,
        "--dp-size": plan.ranks,
        "--page-tokens": plan.page_tokens,
        "--pool-pages": plan.pool_pages,
        "--max-model-len": plan.max_model_len,
        "--prefill-chunk-tokens": plan.chunk_tokens,
        "--seed": plan.seed,
    }
    if plan.forward is ForwardName.TIMED:
        flags["--timed-prefill-tokens-per-s"] = plan.pace.prefill_tokens_per_s
        flags["--timed-decode-step-ms"] = plan.pace.decode_step_ms
    return [str(word) for pair in flags.items() for word in pair]
