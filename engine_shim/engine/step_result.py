"""What the engine tells its server: the result of a step, and its sums. Values only."""

import msgspec

from engine_shim.engine.admission.outcome import TokenOutput
from wire.events import Event


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one step brought."""

    #: The clock that the step was given, seconds.
    now_s: float
    #: New tokens and ends, oldest request first.
    outputs: tuple[TokenOutput, ...]
    #: Cache changes in the order they happened; to be published before the outputs are handed on.
    events: tuple[Event, ...]


class EngineCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Sums since the start of one rank."""

    #: Prompt tokens of admitted requests, each counted once.
    prompt_tokens: int
    #: Of those, found in the cache at the first admission.
    cached_tokens: int
    #: Tokens prefilled, those computed again after a retraction included.
    computed_tokens: int
    generated_tokens: int
    #: Pages dropped from the cache to make room.
    evicted_pages: int
    #: Times that a running request gave its pages back.
    retracted_requests: int
    finished_requests: int
    aborted_requests: int
