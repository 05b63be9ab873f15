"""A capture file as values: event messages, and requests with their answers.

One JSON object a line in order of arrival; kinds that a check does not need are left out. The
format is described beside the captures.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import msgspec

from wire.dialects import decode_batch
from wire.frames import parse_live
from wire.malformed import Malformed

EXPECTED = (
    "a capture has one JSON object a line, whose `k` names its kind: msg (with t, sub, frames), request (i, t, body), "
    "response (i, t, usage, body), or another that is left out"
)


class CaptureError(Exception):
    """The file is no capture; the message names file, line and what is wrong."""


class Message(msgspec.Struct, frozen=True):
    """One message of an event socket."""

    #: When it arrived, seconds since the capture began.
    at_s: float
    #: Subscriber socket it arrived at.
    socket: int
    frames: tuple[bytes, ...]
    #: When the engine made it, by the engine's own clock; None where the batch cannot be read.
    engine_s: float | None
    dp_rank: int | None


class Exchange(msgspec.Struct, frozen=True):
    """One request with the engine's own count of reused tokens."""

    number: int
    sent_at_s: float
    answered_at_s: float
    #: Token ids of each prompt in the request.
    prompts: tuple[tuple[int, ...], ...]
    #: Tokens the engine says it reused, over all prompts.
    cached_tokens: int
    cache_salt: str | None
    #: Answers asked for to each prompt.
    choices: int
    #: Data-parallel rank the request was pinned to; None where the engine chose.
    pinned_rank: int | None


class Capture(msgspec.Struct, frozen=True):
    """What a file holds."""

    name: str
    messages: tuple[Message, ...]
    exchanges: tuple[Exchange, ...]
    #: Answered requests that say no token counts or no prompt tokens, and so cannot be checked.
    uncounted: int

    @property
    def sockets(self) -> dict[int, int]:
        """Rank behind each socket: as its batches say, else the socket's own number."""
        ranks: dict[int, int] = {}
        for message in self.messages:
            if message.socket not in ranks or ranks[message.socket] is None:
                ranks[message.socket] = message.socket if message.dp_rank is None else message.dp_rank
        return ranks

    @property
    def latency_floor_s(self) -> float:
        """Smallest distance between arrival and the engine's clock: the two clocks' offset."""
        return min((each.at_s - each.engine_s for each in self.messages if each.engine_s is not None), default=0.0)


def read_capture(name: str, lines: Iterable[str]) -> Capture:
    """Parse a capture.

    Raises:
        CaptureError: A line is no JSON object of the format.
    """
    messages: list[Message] = []
    exchanges: list[Exchange] = []
    requests: dict[int, dict[str, Any]] = {}
    uncounted = 0
    for line_number, line in enumerate(lines, 1):
        try:
            entry = _read_entry(line)
            if entry["k"] == "msg":
                messages.append(_read_message(entry))
            elif entry["k"] == "request":
                requests[entry["i"]] = entry
            elif entry["k"] == "response":
                if entry["i"] not in requests:
                    raise _NoEntryError("a response without its request")
                exchange = _read_exchange(requests.pop(entry["i"]), entry)
                uncounted += exchange is None
                exchanges.extend([exchange] if exchange is not None else [])
        except _NO_ENTRY as error:
            raise CaptureError(f"{name}, line {line_number}: {_say_problem(error)}; {EXPECTED}") from error
    return Capture(name, tuple(messages), tuple(exchanges), uncounted)


class _NoEntryError(ValueError):
    """A line is no entry; the message says why."""


#: What a line can raise that is no entry: its values are of any type.
_NO_ENTRY = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def _say_problem(error: Exception) -> str:
    if isinstance(error, _NoEntryError):
        return str(error)
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else "a value is not of its type"


def _read_entry(line: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _NoEntryError("no JSON object") from error


def _read_message(entry: dict[str, Any]) -> Message:
    try:
        frames = tuple(base64.b64decode(frame, validate=True) for frame in entry["frames"])
    except binascii.Error as error:
        raise _NoEntryError("the frames are not base64") from error
    live = parse_live(frames)
    batch = live if isinstance(live, Malformed) else decode_batch(live.payload)
    if isinstance(batch, Malformed):
        return Message(float(entry["t"]), int(entry["sub"]), frames, None, None)
    return Message(float(entry["t"]), int(entry["sub"]), frames, batch.ts_s, batch.dp_rank)


def _read_exchange(request: dict[str, Any], response: dict[str, Any]) -> Exchange | None:
    """The exchange, or None where the answer does not say what was reused of which tokens."""
    usage = response.get("usage") or {}
    body = request.get("body") or {}
    choices = body.get("n") or 1
    prompts = _read_prompts(response, choices)
    if not prompts or "prompt_tokens" not in usage:
        return None
    details = usage.get("prompt_tokens_details") or {}
    return Exchange(
        number=int(request["i"]),
        sent_at_s=float(request["t"]),
        answered_at_s=float(response["t"]),
        prompts=prompts,
        cached_tokens=int(details.get("cached_tokens") or 0),
        cache_salt=body.get("cache_salt"),
        choices=int(choices),
        pinned_rank=_read_rank(request.get("headers") or {}),
    )


def _read_prompts(response: dict[str, Any], choices: int) -> tuple[tuple[int, ...], ...]:
    """Prompt tokens of a whole answer (chat: in the body; completions: in each choice) or of a stream's first chunk."""
    for part in (response.get("body"), *(response.get("first") or ())):
        if not isinstance(part, dict):
            continue
        if part.get("prompt_token_ids"):
            return (tuple(part["prompt_token_ids"]),)
        answers = part.get("choices") or []
        prompts = [answer["prompt_token_ids"] for answer in answers[::choices] if answer.get("prompt_token_ids")]
        if prompts:
            return tuple(tuple(prompt) for prompt in prompts)
    return ()


def _read_rank(headers: dict[str, str]) -> int | None:
    """Rank in the pinning header; a value that is no number is ignored, as the engine does."""
    for name, value in headers.items():
        if name.lower() == "x-data-parallel-rank" and value.isdecimal():
            return int(value)
    return None
