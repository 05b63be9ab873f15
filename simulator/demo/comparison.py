"""Run the same sessions under one policy after the other, each on a fresh fleet, and show the table."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import aiohttp
from msgspec import Struct
from rich.console import Console

from simulator.demo.check import CheckResult, OrderCheck
from simulator.demo.client import AgentClient, Reply
from simulator.demo.fleet import MODEL, DemoFleet
from simulator.demo.plan import DemoPlan
from simulator.demo.processes import Child, ChildEndedError, Children
from simulator.demo.progress import RunProgress
from simulator.demo.replay import Replay
from simulator.demo.report import Summary, summarise
from simulator.demo.scrape import router_counters
from simulator.demo.show import describe_decision, show_check, show_plan, show_table

#: A request that takes longer counts as failed, seconds.
REQUEST_TIMEOUT_S = 60.0
#: More failed requests than this share make the demo fail.
MAX_FAILED_RATIO = 0.01
#: How many of the last requests are looked at for a decision worth explaining; the router keeps a bounded number.
EXPLAINABLE_REPLIES = 100

T = TypeVar("T")


class Run(Struct, frozen=True):
    """One policy's run: its figures and its replies."""

    summary: Summary
    replies: list[Reply]


class Comparison:
    """Carries out a plan.

    Args:
        plan: Sessions and sizes.
        policies: Policies in the order of their runs.
        console: Where everything is shown.
        clock: Seconds, monotonic.
        check: Compares the runs with simulated ones; None leaves that out.
    """

    def __init__(
        self,
        plan: DemoPlan,
        policies: Sequence[str],
        console: Console,
        clock: Callable[[], float],
        check: OrderCheck | None = None,
    ) -> None:
        self._plan, self._policies, self._console, self._clock, self._check = plan, policies, console, clock, check
        #: The policies' runs so far.
        self.runs: list[Run] = []
        #: What the check came to; None before it, and where there is none.
        self.result: CheckResult | None = None
        #: Exit code of a comparison whose table was shown; None before.
        self.exit_code: int | None = None

    async def carry_out(self, children: Children, *, keep: bool) -> int:
        """Run all policies and show the table; the exit code, 1 when too many failed or the orders differ.

        Raises:
            ChildEndedError: A process of the fleet ended while it was needed.
            NotAlikeError: The runs cannot be compared with simulated ones.
            RefusedError: They could not be simulated.
        """
        show_plan(self._console, self._plan)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            fleet = DemoFleet(children, http, self._plan, self._clock)
            for policy in self._policies:
                await fleet.stop()
                router = await self._start(fleet, policy)
                self.runs.append(await self._run_policy(policy, children, fleet, router, http))
            show_table(self._console, [run.summary for run in self.runs])
            await self._explain(http, router, self.runs[-1].replies)
            code = int(any(run.summary.failed_ratio > MAX_FAILED_RATIO for run in self.runs))
            self.exit_code = code or await self._check_order()
            if keep:
                self._console.print("The last fleet stays up and the two pages can be opened; Ctrl-C ends it.")
                await _unless_child_ends(children, asyncio.Event().wait())
            else:
                self._console.print("The two pages end with the demo; --keep leaves the last fleet up.")
        return self.exit_code

    async def _check_order(self) -> int:
        """Simulate what was sent and say whether the policies come in the same order; 1 when they do not."""
        if self._check is None:
            return 0
        self._console.print("the same requests in the simulator ...")
        summaries, replies = [run.summary for run in self.runs], [run.replies for run in self.runs]
        self.result = await asyncio.to_thread(self._check.carry_out, summaries, replies)
        show_check(self._console, self.result)
        return int(not self.result.agreement.holds)

    async def _start(self, fleet: DemoFleet, policy: str) -> Child:
        plan = self._plan
        self._console.print(f"{policy}: starting {plan.replicas} replicas of {plan.ranks} ranks and the router")
        await fleet.start_engines()
        return await fleet.start_router(policy)

    async def _run_policy(
        self, policy: str, children: Children, fleet: DemoFleet, router: Child, http: aiohttp.ClientSession
    ) -> Run:
        client = AgentClient(http, router.url, MODEL, self._clock, REQUEST_TIMEOUT_S)
        start_s = self._clock()
        with RunProgress(self._console, policy, self._plan.requests) as progress:
            replay = Replay(client.send, asyncio.sleep, progress.take)
            work = replay.run(self._plan.sessions, arrival_s=self._plan.arrival_s, seed=self._plan.seed)
            replies = await _unless_child_ends(children, work)
        wall_s = self._clock() - start_s
        counters = router_counters(await fleet.metrics(router))
        ranks = self._plan.replicas * self._plan.ranks
        return Run(summarise(policy, replies, ranks=ranks, router=counters, wall_s=wall_s), replies)

    async def _explain(self, http: aiohttp.ClientSession, router: Child, replies: Sequence[Reply]) -> None:
        """Print where the metrics are and one decision with its reason."""
        self._console.print(f"metrics page:  {router.url}/metrics", soft_wrap=True)
        reply = most_telling(replies)
        if reply is None:
            self._console.print("no request was answered, so there is no decision to explain")
            return
        url = f"{router.url}/v1/decisions/{reply.request_id}"
        self._console.print(f"one decision:  {url}", soft_wrap=True)
        async with http.get(url) as response:
            if response.status != 200:
                self._console.print(f"the router no longer has it (HTTP {response.status})")
                return
            self._console.print(describe_decision(await response.json()), markup=False, highlight=False, soft_wrap=True)


def most_telling(replies: Sequence[Reply]) -> Reply | None:
    """Of the last replies, the one with the most cached tokens: its decision has a reason worth reading."""
    answered = [reply for reply in replies if reply.failure is None and reply.request_id]
    return max(answered[-EXPLAINABLE_REPLIES:], key=lambda reply: reply.cached_tokens, default=None)


async def _unless_child_ends(children: Children, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, unless a child of the demo ends first."""
    task = asyncio.create_task(work)
    death = asyncio.create_task(children.first_death())
    either: list[asyncio.Future[Any]] = [task, death]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ChildEndedError(death.result())
    finally:
        for future in either:
            future.cancel()
        await asyncio.gather(*either, return_exceptions=True)
