"""Streams whose events have names: Anthropic's messages and OpenAI's responses."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from engine_shim.engine.server.answer import Answer, Delta, Usage
from engine_shim.engine.server.errors import ApiError
from engine_shim.engine.server.generation import Generation

Json = dict[str, Any]


class NamedShape(Protocol):
    """How one such endpoint writes an answer."""

    def body(self, answers: Sequence[Answer], usage: Usage) -> object:
        """The whole answer."""

    def start(self, usage: Usage) -> Sequence[Json]:
        """Events before the first text."""

    def delta(self, delta: Delta) -> Sequence[Json]:
        """Events of one output."""

    def end(self, answer: Answer, usage: Usage) -> Sequence[Json]:
        """Events after the last text."""

    def error(self, error: ApiError) -> Json:
        """The event that an error is."""


def encode_named(event: Json) -> bytes:
    """One event, named by its type."""
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


async def stream_named(generation: Generation, shape: NamedShape) -> AsyncIterator[bytes]:
    """The one answer of a generation as named events; an error is the last of them."""
    has_started = False
    try:
        async for delta in generation.deltas():
            events = [*(() if has_started else shape.start(generation.usage)), *shape.delta(delta)]
            has_started = True
            if delta.finish_reason is not None:
                events += shape.end(generation.answers[0], generation.usage)
            for event in events:
                yield encode_named(event)
    except ApiError as error:
        yield encode_named(shape.error(error))
