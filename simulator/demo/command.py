"""`dovecote demo`: agent sessions through a real router and real engines, one policy after the other, one table."""

import asyncio
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TextIO, cast

import typer
from rich.console import Console
from tokenizers import Tokenizer

from engine_shim.engine.tokenizer import TOY_FOLDER
from router.config import PolicyName
from simulator.demo.comparison import Comparison
from simulator.demo.output import Output
from simulator.demo.plan import DemoOptions, ForwardName, build_plan
from simulator.demo.processes import ChildEndedError, Children
from simulator.traces.lines import TraceError

#: Shell convention: 128 and the signal's number.
SIGNAL_EXIT_BASE = 128
STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WITHOUT_TORCH = (
    "the engines compute with torch, which is not installed; "
    "install it with: pip install 'dovecote[engine]', or run the demo without it: --timed"
)
DEFAULT_POLICIES = [PolicyName.ROUND_ROBIN, PolicyName.CACHE_AFFINITY]


def demo(
    *,
    trace: Annotated[Path | None, typer.Option(help="Weka, LMCache or tau-bench file, .jsonl or .jsonl.xz.")] = None,
    timed: Annotated[bool, typer.Option("--timed", help="Full-size prompts on a forward without tensors.")] = False,
    replicas: Annotated[int, typer.Option(help="Engine replicas.")] = 4,
    ranks: Annotated[int, typer.Option(help="Data-parallel ranks of a replica.")] = 2,
    sessions: Annotated[int | None, typer.Option(help="Sessions to send; sub-agents come on top.")] = None,
    turns: Annotated[int | None, typer.Option(help="Requests kept of each session.")] = None,
    seed: Annotated[int, typer.Option(help="Of the generated sessions, the arrivals and the engines' weights.")] = 1,
    prompt_ratio: Annotated[float | None, typer.Option(help="Multiplies prompt and output lengths.")] = None,
    time_ratio: Annotated[float | None, typer.Option(help="Multiplies think times.")] = None,
    policy: Annotated[
        list[PolicyName] | None,
        typer.Option("--policy", "--policy-compare", help="Policies to compare, in this order; repeatable."),
    ] = None,
    forward: Annotated[ForwardName | None, typer.Option(help="Forward of the engines, whatever --timed says.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the last fleet up until Ctrl-C.")] = False,
) -> None:
    """Compare round robin with cache affinity on agent sessions, on a fleet started here."""
    output = Output(sys.stdout)
    console = Console(file=cast("TextIO", output))
    options = DemoOptions(
        trace=trace,
        full_size=timed,
        forward=forward or (ForwardName.TIMED if timed else ForwardName.TORCH),
        replicas=replicas,
        ranks=ranks,
        seed=seed,
        sessions=sessions,
        turns=turns,
        prompt_ratio=prompt_ratio,
        time_ratio=time_ratio,
    )
    try:
        plan = build_plan(options, _count_tokens)
    except (TraceError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    if plan.forward is ForwardName.TORCH and find_spec("torch") is None:
        typer.echo(f"error: {WITHOUT_TORCH}", err=True)
        raise typer.Exit(1)
    comparison = Comparison(plan, [name.value for name in policy or DEFAULT_POLICIES], console, time.monotonic)
    raise typer.Exit(_run(comparison, console, output, keep=keep))


def _run(comparison: Comparison, console: Console, output: Output, *, keep: bool) -> int:
    """Carry out the comparison; whatever ends it, no child is left. The exit code."""
    children = Children()
    try:
        return asyncio.run(_run_until_signal(comparison, children, console, output, keep=keep))
    finally:
        # Empty after every orderly end; an exception that tears down the event loop cuts that short.
        children.kill_all()


def _count_tokens(text: str) -> int:
    tokenizer = Tokenizer.from_file(str(TOY_FOLDER / "tokenizer.json"))
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


async def _run_until_signal(
    comparison: Comparison, children: Children, console: Console, output: Output, *, keep: bool
) -> int:
    """Carry out the comparison; on SIGINT, SIGTERM or SIGHUP, or when nobody reads, stop everything. The exit code."""
    loop = asyncio.get_running_loop()
    async with children:
        work = asyncio.create_task(comparison.carry_out(children, keep=keep))
        received: list[int] = []

        def stop_on(number: int) -> None:
            _on_signal(number, received, work, children)

        for number in STOPPING_SIGNALS:
            loop.add_signal_handler(number, stop_on, number)
        # A pipe that breaks once the end has begun (Ctrl-C ends `tee` as well) is no second signal.
        output.on_closed = lambda: received or loop.call_soon_threadsafe(stop_on, signal.SIGPIPE)
        try:
            return await work
        except asyncio.CancelledError:
            if not received:
                raise
            console.print("stopping all processes")
            return SIGNAL_EXIT_BASE + received[0] if comparison.exit_code is None else comparison.exit_code
        except ChildEndedError as error:
            console.print(str(error), markup=False, highlight=False)
            return 1


def _on_signal(number: int, received: list[int], work: "asyncio.Task[int]", children: Children) -> None:
    """The first signal ends the demo in order, a second one at once."""
    received.append(number)
    if len(received) == 1:
        work.cancel()
    else:
        children.kill_all()
