"""Flags of the replay command: their types, bounds and help texts. Declares only."""

from pathlib import Path
from typing import Annotated

import typer

from simulator.replay.target import Api, PromptAs

MAX_COUNT = 1_000_000
MAX_PAUSE_S = 1e9

Trace = Annotated[Path, typer.Option(help="Weka sessions, agentic Mooncake v2 or Mooncake, .jsonl or .jsonl.xz.")]
TargetUrl = Annotated[str, typer.Option("--target", help="Base URL of the endpoint, with or without /v1.")]
Model = Annotated[str, typer.Option(help="Model to ask for; by default the first that the target lists.")]
ApiName = Annotated[Api, typer.Option("--api", help="Route to send to.")]
Prompt = Annotated[PromptAs, typer.Option("--prompt-as", help="Form of the prompts of --api completions.")]
TokenIds = Annotated[str, typer.Option(help="Ids that --prompt-as ids draws from, LOW:HIGH, HIGH not included.")]
ApiKeyEnv = Annotated[str | None, typer.Option(help="Environment variable that holds the API key.")]
Headers = Annotated[
    list[str] | None, typer.Option("--header", help="'Name: value' sent with every request; repeatable.")
]
Fields = Annotated[str | None, typer.Option("--fields", help="JSON object of further fields of every body.")]
IgnoreEos = Annotated[
    bool, typer.Option(help="Ask for answers of exactly the recorded length; no field of OpenAI's own.")
]
SessionHeader = Annotated[str, typer.Option(help="Header with the conversation's name; '' sends none.")]
ParentHeader = Annotated[str, typer.Option(help="Header with the name of a sub-agent's parent; '' sends none.")]
WorkerHeader = Annotated[str, typer.Option(help="Response header in which the router names the worker.")]
RankHeader = Annotated[str, typer.Option(help="Response header that names the worker's rank.")]
CaFile = Annotated[Path | None, typer.Option("--ca", help="PEM file of authorities to trust.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Take any certificate.")]
Timeout = Annotated[float, typer.Option(min=0.001, max=MAX_PAUSE_S, help="Longest a request may take, seconds.")]
Concurrency = Annotated[int, typer.Option(min=1, max=100_000, help="Requests in flight, at most.")]
Sessions = Annotated[int | None, typer.Option(min=1, max=MAX_COUNT, help="Conversations, at most; Weka: drawn.")]
Requests = Annotated[int | None, typer.Option(min=1, help="Requests of the trace, its first ones.")]
Duration = Annotated[float | None, typer.Option(min=0.001, max=MAX_PAUSE_S, help="Send nothing after so many seconds.")]
Retries = Annotated[
    int, typer.Option(min=0, max=100, help="Times to come again after 429 or 503, as Retry-After asks.")
]
Rate = Annotated[float, typer.Option(min=1e-6, max=1e6, help="Weka: session arrivals a second.")]
MaxRequests = Annotated[int, typer.Option(min=1, help="Weka: requests kept of an agent.")]
MaxPromptTokens = Annotated[int, typer.Option(min=64, help="Longer recorded prompts are left out.")]
MaxOutputTokens = Annotated[int | None, typer.Option(min=1, help="Longest answer asked for.")]
PromptRatio = Annotated[float, typer.Option(help="Multiplies prompt and output lengths; above 0, at most 1.")]
TimeRatio = Annotated[float, typer.Option(min=0, max=1e6, help="Multiplies pauses and arrival times.")]
MaxPause = Annotated[float, typer.Option(min=0, max=MAX_PAUSE_S, help="Longest pause kept, seconds.")]
Seed = Annotated[int, typer.Option(help="Of the sessions drawn, their arrivals and the prompts.")]
MaxErrorRatio = Annotated[
    float, typer.Option(min=0, max=1, help="Exit code 1 when a larger share of the requests failed.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables; words go to stderr.")]
