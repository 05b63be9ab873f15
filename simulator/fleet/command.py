"""`dovecote simulate TRACE`: policies on recorded sessions, with simulated engines, in virtual time."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from router.errors import ConfigError
from simulator.fleet.models import EngineName, FleetPlan
from simulator.fleet.policies import parse_policy
from simulator.fleet.report import RunReport
from simulator.fleet.run import RunSettings
from simulator.fleet.run import simulate as run_policy
from simulator.fleet.simulation import RefusedError
from simulator.graph.reader import read_trace
from simulator.graph.weka import WekaSampling
from simulator.traces.lines import TraceError

COLUMNS = ("reuse", "TTFT", "p50", "p99", "TPOT", "e2e", "e2e p99", "busy", "max/min")
DEFAULT_POLICIES = ["round_robin", "session_hash", "cache_affinity"]


def simulate(
    trace: Annotated[Path, typer.Argument(help="Weka sessions, agentic Mooncake v2 or Mooncake, .jsonl or .jsonl.xz.")],
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="name, name:setting=value,... or policy.yaml; repeatable, compared in this order."),
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="What steps of an engine take.")] = EngineName.DYNAMO,
    workers: Annotated[int, typer.Option(min=1, max=4_096, help="Engine replicas.")] = 8,
    ranks: Annotated[int, typer.Option(min=1, max=1_024, help="Data-parallel ranks of a replica.")] = 1,
    cache_blocks: Annotated[int, typer.Option(min=1, max=1 << 24, help="Blocks that a rank's cache holds.")] = 8_192,
    speed: Annotated[float, typer.Option(min=1e-3, max=1e6, help="Divides every duration of the engines.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the sessions drawn, their arrivals and the router's ties.")] = 1,
    sessions: Annotated[int, typer.Option(min=1, max=1_000_000, help="Weka: sessions drawn.")] = 150,
    rate: Annotated[float, typer.Option(min=1e-6, max=1e6, help="Weka: session arrivals a second.")] = 0.14,
    max_prompt_tokens: Annotated[int, typer.Option(min=64, help="Weka: longer prompts are left out.")] = 160_000,
    max_requests: Annotated[int, typer.Option(min=1, help="Weka: requests kept of an agent.")] = 40,
    max_pause: Annotated[float, typer.Option(min=0, max=1e9, help="Weka: longest pause kept, seconds.")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Compare policies on recorded sessions with simulated engines, in virtual time."""
    sampling = WekaSampling(
        sessions=sessions,
        arrivals_per_s=rate,
        max_prompt_tokens=max_prompt_tokens,
        max_requests=max_requests,
        max_pause_s=max_pause,
        seed=seed,
    )
    plan = FleetPlan(engine=engine, workers=workers, ranks=ranks, cache_blocks=cache_blocks, speedup_ratio=speed)
    try:
        policies = [(text, parse_policy(text)) for text in policy or DEFAULT_POLICIES]
        requests = read_trace(trace, sampling=sampling)
        settings = RunSettings(seed=seed)
        reports = [run_policy(requests, plan, each, name=text, settings=settings) for text, each in policies]
    except (ConfigError, RefusedError, TraceError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    if json:
        answer = {"trace": trace.name, "fleet": plan, "seed": seed, "runs": reports}
        typer.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        Console().print(_make_table(reports))


def _make_table(reports: list[RunReport]) -> Table:
    """Times are milliseconds, means where nothing else is said."""
    table = Table(title=f"{reports[0].requests:,} requests; times in ms", box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("policy", overflow="fold", min_width=16)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for report in reports:
        ttft, e2e = report.ttft, report.e2e
        table.add_row(
            report.policy,
            f"{report.reuse_ratio:.3f}",
            f"{ttft.mean_ms:.0f}",
            f"{ttft.p50_ms:.0f}",
            f"{ttft.p99_ms:.0f}",
            f"{report.tpot_mean_ms:.2f}",
            f"{e2e.mean_ms:.0f}",
            f"{e2e.p99_ms:.0f}",
            f"{report.busy_ratio:.2f}",
            f"{report.busiest_share:.2f}/{report.idlest_share:.2f}",
        )
    return table
