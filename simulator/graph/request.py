"""What every trace of block ids becomes: requests, each with what it waits for. Values only."""

from array import array
from enum import StrEnum

from msgspec import Struct

#: Block ids of prompts are below this; those above name what engines generate.
ID_LIMIT = 1 << 31


class Trigger(StrEnum):
    """The moment of an earlier request that a later one counts its pause from."""

    COMPLETION = "completion"
    DISPATCH = "dispatch"


class Wait(Struct, frozen=True):
    """A request starts no sooner than `pause_s` after another one's end or start."""

    #: Place of the other request in the trace.
    place: int
    trigger: Trigger
    pause_s: float


class BlockRequest(Struct, frozen=True, kw_only=True):
    """One request."""

    #: Unique in the trace.
    request_id: str
    #: Conversation; a sub-agent's is its own.
    session: str | None
    #: Conversation that started a sub-agent's.
    parent: str | None = None
    #: Ids of the prompt's full blocks, each standing for the whole prefix that ends with it.
    blocks: "array[int]"
    prompt_tokens: int
    output_tokens: int
    #: Starts no sooner, seconds since the start of the trace.
    not_before_s: float = 0.0
    waits: tuple[Wait, ...] = ()


class BlockTrace(Struct, frozen=True):
    """All requests of a trace."""

    #: Tokens of a block.
    block_tokens: int
    requests: tuple[BlockRequest, ...]
