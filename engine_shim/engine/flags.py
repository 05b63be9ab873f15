"""Flags of the engine command: their types, bounds and help texts. Declares only."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from engine_shim.engine.publish import EventDialect


class ForwardKind(StrEnum):
    """What computes."""

    TORCH = "torch"
    TIMED = "timed"


class LogLevels(StrEnum):
    """Least severe lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Host = Annotated[str, typer.Option(help="Interface of the HTTP and event sockets.")]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="HTTP port; 0 takes a free one.")]
DpSize = Annotated[int, typer.Option(min=1, max=256, help="Independent ranks in this process.")]
Forward = Annotated[ForwardKind, typer.Option(help="torch computes; timed sleeps by a cost model.")]
Model = Annotated[str, typer.Option(help="Name under which the model is served.")]
Tokenizer = Annotated[Path, typer.Option(help="Folder with tokenizer.json and tokenizer_config.json.")]
PageTokens = Annotated[int, typer.Option(min=1, help="Tokens in a page of the KV pool.")]
PoolPages = Annotated[int, typer.Option(min=1, help="Pages of each rank's pool.")]
MaxRunningRequests = Annotated[int, typer.Option(min=1, help="Requests in one rank's batch.")]
PrefillChunkTokens = Annotated[int, typer.Option(min=1, help="Prompt tokens computed in one step.")]
MaxModelLen = Annotated[int, typer.Option(min=2, help="Prompt plus output of one request, in tokens.")]
Seed = Annotated[int, typer.Option(help="Seed of weights and sampling.")]
Dialect = Annotated[EventDialect, typer.Option(help="Encoding of cache events.")]
KvEventsPortBase = Annotated[int, typer.Option(min=0, max=65_535, help="Event port of rank 0; 0 takes a free run.")]
ReplayPortBase = Annotated[int, typer.Option(min=0, max=65_535, help="Replay port of rank 0; 0 takes a free run.")]
BufferSteps = Annotated[int, typer.Option(min=1, max=1_000_000, help="Batches kept for replay.")]
KvEventsConfig = Annotated[str | None, typer.Option(help="Event sockets as JSON in SGLang's form, instead of ports.")]
TimedPrefillTokensPerS = Annotated[float, typer.Option(min=1, help="Timed: prefill speed.")]
TimedPrefillPairNs = Annotated[float, typer.Option(min=0, help="Timed: cost of a token pair in prefill attention.")]
TimedDecodeStepMs = Annotated[float, typer.Option(min=0, help="Timed: a step that decodes.")]
TimeScale = Annotated[float, typer.Option(min=0, help="Timed: multiplies every duration; 0 never sleeps.")]
MaxBodyBytes = Annotated[int, typer.Option(min=1_024, help="Largest request body.")]
LogLevel = Annotated[LogLevels, typer.Option(help="Least severe lines that are logged.")]
