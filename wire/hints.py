"""Hints: advice about cached blocks that an engine may refuse, in the `kv_hints` envelope 0.1.

Takes and gives JSON bytes. Correctness never depends on a hint; unknown action types are kept as
text, so that the engine can answer them with `rejected`.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from wire.malformed import Malformed

PROTOCOL_VERSION = "0.1"
#: Limits of one envelope.
MAX_ENVELOPE_BYTES = 1 << 20
MAX_ACTIONS = 256

_Name = Annotated[str, Meta(min_length=1, max_length=256)]


class HintAction(StrEnum):
    """Actions this version gives a meaning to."""

    PREFETCH = "kv.prefetch"
    DEMOTE = "kv.demote"
    PIN = "kv.pin"
    SHARE = "kv.share"


class HintStatus(StrEnum):
    """What became of one action."""

    ACCEPTED = "accepted"
    CLIPPED = "clipped"
    DEFERRED = "deferred"
    REJECTED = "rejected"
    DONE = "done"


class KvAction(msgspec.Struct, frozen=True):
    """One piece of advice."""

    action_id: _Name
    #: One of `HintAction`'s words, or a foreign one.
    action_type: _Name
    action_version: Annotated[str, Meta(max_length=32)] = "1.0"
    payload: dict[str, Any] = {}


class KvHints(msgspec.Struct, frozen=True):
    """The envelope."""

    message_id: _Name
    actions: Annotated[tuple[KvAction, ...], Meta(max_length=MAX_ACTIONS)]
    protocol_version: str = PROTOCOL_VERSION


class HintOutcome(msgspec.Struct, frozen=True):
    """The engine's answer to one action."""

    message_id: str
    action_id: str
    status: HintStatus
    #: Why, in words; None when there is nothing to say.
    reason: str | None = None


_read_hints = msgspec.json.Decoder(KvHints).decode
_read_outcome = msgspec.json.Decoder(HintOutcome).decode


def decode_hints(body: bytes) -> KvHints | Malformed:
    """The envelope in `body`; never raises."""
    if len(body) > MAX_ENVELOPE_BYTES:
        return Malformed("payload size")
    try:
        hints = _read_hints(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Malformed("kv_hints")
    return hints if hints.protocol_version == PROTOCOL_VERSION else Malformed("protocol version")


def decode_outcome(body: bytes) -> HintOutcome | Malformed:
    """The outcome in `body`; never raises."""
    if len(body) > MAX_ENVELOPE_BYTES:
        return Malformed("payload size")
    try:
        return _read_outcome(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Malformed("hint outcome")


def encode_hints(hints: KvHints) -> bytes:
    """JSON of an envelope, as it goes into a request's `kv_hints` field or `POST /v1/kv_hints`."""
    return msgspec.json.encode(hints)


def encode_outcome(outcome: HintOutcome) -> bytes:
    """JSON of an outcome, as it goes out on the outcome topic."""
    return msgspec.json.encode(outcome)


def reject_all(hints: KvHints, reason: str) -> tuple[HintOutcome, ...]:
    """The answer of an engine that carries out none of the actions."""
    return tuple(
        HintOutcome(hints.message_id, action.action_id, HintStatus.REJECTED, reason) for action in hints.actions
    )
