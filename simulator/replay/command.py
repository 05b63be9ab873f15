"""`dovecote replay`: a recorded trace sent to any OpenAI-compatible endpoint, and measured."""

import asyncio
import os
import signal
import sys
import time

import typer
from rich.console import Console

from simulator.replay import flags
from simulator.replay.drive import LoadPlan, drive
from simulator.replay.options import ReplayOptions, plan_load
from simulator.replay.run import Ending
from simulator.replay.show import print_report
from simulator.replay.target import Api, PromptAs, TargetError
from simulator.traces.lines import TraceError

#: Shell convention: 128 and the signal's number.
INTERRUPTED_EXIT = 128 + signal.SIGINT


def replay(
    *,
    trace: flags.Trace,
    target: flags.TargetUrl,
    model: flags.Model = "",
    api: flags.ApiName = Api.CHAT,
    prompt_as: flags.Prompt = PromptAs.TEXT,
    token_ids: flags.TokenIds = "1000:4000",  # noqa: S107  (ids of tokens are no secret)
    api_key_env: flags.ApiKeyEnv = None,
    header: flags.Headers = None,
    fields: flags.Fields = None,
    ignore_eos: flags.IgnoreEos = True,
    session_header: flags.SessionHeader = "X-Dovecote-Session",
    parent_header: flags.ParentHeader = "X-Dovecote-Parent",
    worker_header: flags.WorkerHeader = "X-Dovecote-Worker",
    rank_header: flags.RankHeader = "X-Dovecote-DP-Rank",
    ca: flags.CaFile = None,
    insecure: flags.Insecure = False,
    timeout: flags.Timeout = 600.0,
    concurrency: flags.Concurrency = 256,
    sessions: flags.Sessions = None,
    requests: flags.Requests = None,
    duration: flags.Duration = None,
    retries: flags.Retries = 0,
    rate: flags.Rate = 0.14,
    max_requests: flags.MaxRequests = 40,
    max_prompt_tokens: flags.MaxPromptTokens = 160_000,
    max_output_tokens: flags.MaxOutputTokens = None,
    prompt_ratio: flags.PromptRatio = 1.0,
    time_ratio: flags.TimeRatio = 1.0,
    max_pause: flags.MaxPause = 60.0,
    seed: flags.Seed = 1,
    max_error_ratio: flags.MaxErrorRatio = 0.0,
    json: flags.Json = False,
) -> None:
    """Send a recorded trace to any OpenAI-compatible endpoint, closed-loop, and measure it."""
    options = ReplayOptions(**locals())  # a command has its flags as parameters; everything below wants one value
    try:
        code = _run(plan_load(options, os.environ), max_error_ratio, as_json=json)
    except (TargetError, TraceError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


def _run(plan: LoadPlan, max_error_ratio: float, *, as_json: bool) -> int:
    """Carry out the load and print its report; the exit code."""
    report = asyncio.run(drive(plan, Console(stderr=True), time.monotonic))
    if as_json:
        typer.echo(report.as_json())
    else:
        print_report(report, Console(file=sys.stdout))
    if report.ending is Ending.INTERRUPTED:
        return INTERRUPTED_EXIT
    return int(report.ending is Ending.REFUSED or report.figures.failed_ratio > max_error_ratio)
