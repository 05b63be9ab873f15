"""Flags of the demo command: their types, bounds and help texts. Declares only."""

from pathlib import Path
from typing import Annotated

import typer

from router.config.policy import PolicyName
from simulator.demo.plan import ForwardName

Trace = Annotated[Path | None, typer.Option(help="Weka, LMCache or tau-bench file, .jsonl or .jsonl.xz.")]
Timed = Annotated[bool, typer.Option("--timed", help="Full-size prompts on a forward without tensors.")]
Replicas = Annotated[int, typer.Option(help="Engine replicas.")]
Ranks = Annotated[int, typer.Option(help="Data-parallel ranks of a replica.")]
Sessions = Annotated[int | None, typer.Option(help="Sessions to send; sub-agents come on top.")]
Turns = Annotated[int | None, typer.Option(help="Requests kept of each session.")]
Seed = Annotated[int, typer.Option(help="Of the generated sessions, the arrivals and the engines' weights.")]
PromptRatio = Annotated[float | None, typer.Option(help="Multiplies prompt and output lengths.")]
TimeRatio = Annotated[float | None, typer.Option(help="Multiplies think times.")]
Policies = Annotated[
    list[PolicyName] | None,
    typer.Option("--policy", "--policy-compare", help="Policies to compare, in this order; repeatable."),
]
Forward = Annotated[ForwardName | None, typer.Option(help="Forward of the engines, whatever --timed says.")]
CheckSimulation = Annotated[
    bool,
    typer.Option(
        "--check-simulation",
        help="Four policies on slow timed engines, then the same requests in the simulator; exit code 1 when the "
        "policies' orders differ.",
    ),
]
NoiseRatio = Annotated[
    float,
    typer.Option(
        min=0.0, max=1.0, help="Figures closer than this share of the larger are tied, when orders are compared."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables; words go to stderr.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the last fleet up until Ctrl-C.")]
