"""One load from its plan to its report: connections, the run, signals, progress."""

import asyncio
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aiohttp
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from simulator.demo.progress import RunProgress
from simulator.graph.request import BlockTrace
from simulator.replay.cut import Cut
from simulator.replay.measure import Measurements
from simulator.replay.prompts import PromptWriter
from simulator.replay.reuse import find_reusable_ratio
from simulator.replay.run import LoadLimits, LoadRun, Outcome
from simulator.replay.show import LoadReport
from simulator.replay.target import Api, Target, TargetPlan, find_model

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class LoadPlan(Struct, frozen=True, kw_only=True):
    """What one load is."""

    target: TargetPlan
    limits: LoadLimits
    trace_name: str
    trace: BlockTrace
    #: How the trace was made smaller.
    cut: Cut
    seed: int
    token_ids: range
    worker_header: str
    rank_header: str | None
    #: The key, which nothing that is shown may hold.
    secret: str | None
    tls: ssl.SSLContext


async def drive(plan: LoadPlan, console: Console, clock: Callable[[], float]) -> LoadReport:
    """Carry out a load; SIGINT and SIGTERM end it early, a second one at once.

    Raises:
        TargetError: The target cannot be reached, refuses the key, or lists no model while none was named.
    """
    connector = aiohttp.TCPConnector(limit=0, ssl=plan.tls)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as http:
        target_plan = replace(plan.target, model=await find_model(http, plan.target))
        writer = PromptWriter(plan.trace, seed=plan.seed, prompt_ratio=plan.cut.prompt_ratio, token_ids=plan.token_ids)
        measurements = Measurements(
            plan.worker_header, plan.rank_header, prompt_ratio=plan.cut.prompt_ratio, secret=plan.secret
        )
        with RunProgress(console, "replay", len(plan.trace.requests)) as progress:
            run = LoadRun(
                Target(http, target_plan, writer, clock),
                plan.limits,
                clock=clock,
                sleep=asyncio.sleep,
                on_outcome=lambda outcome: _take(outcome, measurements, progress, run),
            )
            with _interrupted_by_signals(run):
                start_s = clock()
                await run.run(plan.trace)
                wall_s = clock() - start_s
    return _describe(replace(plan, target=target_plan), run, measurements, wall_s)


def _take(outcome: Outcome, measurements: Measurements, progress: RunProgress, run: LoadRun) -> None:
    failure = measurements.take(outcome)
    shown = None if failure is None else "".join(letter if letter.isprintable() else " " for letter in failure)
    ratio = measurements.cached_ratio
    cached = "" if ratio is None else f", cached {ratio:.3f}"
    progress.count(outcome.request.request_id, shown, f"{run.in_flight} in flight{cached}")


@contextmanager
def _interrupted_by_signals(run: LoadRun) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        for number in STOPPING_SIGNALS:
            loop.remove_signal_handler(number)
        run.interrupt()

    for number in STOPPING_SIGNALS:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in STOPPING_SIGNALS:
            loop.remove_signal_handler(number)


def _describe(plan: LoadPlan, run: LoadRun, measurements: Measurements, wall_s: float) -> LoadReport:
    figures = measurements.figures()
    requests = plan.trace.requests
    roots = {each.parent or each.session or each.request_id for each in requests}
    return LoadReport(
        trace=plan.trace_name,
        target=plan.target.base_url,
        api=plan.target.api.value,
        prompt_as="messages" if plan.target.api is Api.CHAT else plan.target.prompt_as.value,
        model=plan.target.model,
        seed=plan.seed,
        prompt_ratio=plan.cut.prompt_ratio,
        time_ratio=plan.cut.time_ratio,
        concurrency=plan.limits.concurrency,
        requests=len(requests),
        sessions=len(roots),
        reusable_ratio=find_reusable_ratio(plan.trace),
        ending=run.ending,
        sent=run.sent,
        cancelled=run.in_flight,
        most_in_flight=run.most_in_flight,
        wall_s=wall_s,
        requests_per_s=figures.complete / wall_s if wall_s > 0 else 0.0,
        output_tokens_per_s=figures.output_tokens / wall_s if wall_s > 0 else 0.0,
        figures=figures,
    )
