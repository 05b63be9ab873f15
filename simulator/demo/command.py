"""`dovecote demo`: agent sessions through a real router and real engines, one policy after the other, one table."""

import asyncio
import signal
import sys
import time
from importlib.util import find_spec
from typing import TextIO, cast

import typer
from rich.console import Console

from engine_shim.engine.tokenizer import TOY_FOLDER, Tokenizer
from router.config.policy import PolicyName
from simulator.demo import flags
from simulator.demo.agreement import NOISE_RATIO
from simulator.demo.check import NotAlikeError, OrderCheck
from simulator.demo.comparison import Comparison
from simulator.demo.json_form import describe_as_json
from simulator.demo.output import Output
from simulator.demo.plan import DemoOptions, DemoPlan, ForwardName, build_plan
from simulator.demo.processes import ChildEndedError, Children
from simulator.fleet.simulation import RefusedError
from simulator.traces.lines import TraceError

#: Shell convention: 128 and the signal's number.
SIGNAL_EXIT_BASE = 128
STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WITHOUT_TORCH = (
    "the engines compute with torch, which is not installed; "
    "install it with: pip install 'dovecote[engine]', or run the demo without it: --timed"
)
DEFAULT_POLICIES = [PolicyName.ROUND_ROBIN, PolicyName.CACHE_AFFINITY]
CHECKED_POLICIES = [
    PolicyName.ROUND_ROBIN, PolicyName.SESSION_HASH, PolicyName.OVERLAP_LINEAR, PolicyName.CACHE_AFFINITY
]  # fmt: skip


def demo(
    *,
    trace: flags.Trace = None,
    timed: flags.Timed = False,
    replicas: flags.Replicas = 4,
    ranks: flags.Ranks = 2,
    sessions: flags.Sessions = None,
    turns: flags.Turns = None,
    seed: flags.Seed = 1,
    prompt_ratio: flags.PromptRatio = None,
    time_ratio: flags.TimeRatio = None,
    policy: flags.Policies = None,
    forward: flags.Forward = None,
    check_simulation: flags.CheckSimulation = False,
    noise_ratio: flags.NoiseRatio = NOISE_RATIO,
    json: flags.Json = False,
    keep: flags.Keep = False,
) -> None:
    """Compare round robin with cache affinity on agent sessions, on a fleet started here."""
    output = Output(sys.stderr if json else sys.stdout)
    console = Console(file=cast("TextIO", output))
    options = DemoOptions(
        trace=trace,
        is_slow=check_simulation,
        full_size=timed,
        forward=forward or (ForwardName.TIMED if timed or check_simulation else ForwardName.TORCH),
        replicas=replicas,
        ranks=ranks,
        seed=seed,
        sessions=sessions,
        turns=turns,
        prompt_ratio=prompt_ratio,
        time_ratio=time_ratio,
    )
    tokenizer = Tokenizer(TOY_FOLDER)
    plan = _make_plan(options, tokenizer)
    check = OrderCheck(plan, tokenizer, noise_ratio=noise_ratio) if check_simulation else None
    names = [name.value for name in policy or (CHECKED_POLICIES if check_simulation else DEFAULT_POLICIES)]
    comparison = Comparison(plan, names, console, time.monotonic, check)
    code = _run(comparison, console, output, keep=keep)
    if json:
        typer.echo(describe_as_json(plan, [run.summary for run in comparison.runs], comparison.result))
    raise typer.Exit(code)


def _make_plan(options: DemoOptions, tokenizer: Tokenizer) -> DemoPlan:
    """The plan; what cannot be carried out ends the command before anything is started."""
    try:
        plan = build_plan(options, lambda text: len(tokenizer.encode(text)))
    except (TraceError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    if plan.forward is ForwardName.TORCH and find_spec("torch") is None:
        typer.echo(f"error: {WITHOUT_TORCH}", err=True)
        raise typer.Exit(1)
    return plan


def _run(comparison: Comparison, console: Console, output: Output, *, keep: bool) -> int:
    """Carry out the comparison; whatever ends it, no child is left. The exit code."""
    children = Children()
    try:
        return asyncio.run(_run_until_signal(comparison, children, console, output, keep=keep))
    finally:
        # Empty after every orderly end; an exception that tears down the event loop cuts that short.
        children.kill_all()


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
        except (ChildEndedError, NotAlikeError, RefusedError) as error:
            console.print(str(error), markup=False, highlight=False)
            return 1


def _on_signal(number: int, received: list[int], work: "asyncio.Task[int]", children: Children) -> None:
    """The first signal ends the demo in order, a second one at once."""
    received.append(number)
    if len(received) == 1:
        work.cancel()
    else:
        children.kill_all()
