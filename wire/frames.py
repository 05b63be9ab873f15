"""Frames of the event sockets: live messages, replay requests and replay answers.

Raw ZeroMQ frames come in and go out; no socket here. Frames of unknown shape are values, not errors.
"""

from collections.abc import Sequence

import msgspec

from wire.malformed import Malformed

#: Largest payload accepted: a batch of several events at their limits.
MAX_PAYLOAD_BYTES = 64 << 20
#: Number that ends a replay.
END_SEQ = -1
_SEQ_BYTES = 8


class LiveFrame(msgspec.Struct, frozen=True):
    """One message of a PUB socket."""

    topic: str
    #: Number of the batch, counted per publisher process from 0.
    seq: int
    payload: bytes


class ReplayFrame(msgspec.Struct, frozen=True):
    """One batch out of a publisher's replay buffer."""

    seq: int
    payload: bytes
    #: None where the publisher keeps none.
    topic: str | None = None


class ReplayEnd(msgspec.Struct, frozen=True):
    """The replay is complete."""


def parse_live(frames: Sequence[bytes]) -> LiveFrame | Malformed:
    """Read `[topic, sequence number, payload]`."""
    if len(frames) != 3:
        return Malformed("frame count")
    topic, number, payload = frames
    seq = _read_seq(number)
    if seq is None:
        return Malformed("sequence number")
    if len(payload) > MAX_PAYLOAD_BYTES:
        return Malformed("payload size")
    return LiveFrame(bytes(topic).decode("utf-8", "replace"), seq, bytes(payload))


def parse_replay(frames: Sequence[bytes]) -> ReplayFrame | ReplayEnd | Malformed:
    """Read a replay answer of either generation: `[delimiter?, topic?, sequence number, payload]`.

    Old publishers keep no topic in their buffer and a REQ socket strips the delimiter, so two to
    four frames are right; the payload is last and its number stands before it.
    """
    if not 2 <= len(frames) <= 4:
        return Malformed("frame count")
    if len(frames) == 4 and frames[0]:
        return Malformed("delimiter")
    number, payload = frames[-2], frames[-1]
    if len(number) == _SEQ_BYTES and int.from_bytes(number, "big", signed=True) == END_SEQ:
        return ReplayEnd()
    seq = _read_seq(number)
    if seq is None:
        return Malformed("sequence number")
    if len(payload) > MAX_PAYLOAD_BYTES:
        return Malformed("payload size")
    topic = frames[-3] if len(frames) > 2 else b""
    return ReplayFrame(seq, bytes(payload), bytes(topic).decode("utf-8", "replace") or None)


def parse_replay_request(frames: Sequence[bytes]) -> int | Malformed:
    """First number asked for, from the frames a ROUTER sees after the caller's identity."""
    if len(frames) != 2 or frames[0]:
        return Malformed("frame count")
    seq = _read_seq(frames[1])
    return Malformed("sequence number") if seq is None else seq


def encode_live(topic: str, seq: int, payload: bytes) -> list[bytes]:
    """Frames of one live message."""
    return [topic.encode(), _write_seq(seq), payload]


def encode_replay_request(start_seq: int) -> list[bytes]:
    """Frames a DEALER sends to ask for everything from `start_seq` on."""
    return [b"", _write_seq(start_seq)]


def encode_replay(seq: int, payload: bytes, *, topic: str | None = None) -> list[bytes]:
    """Frames of one replayed batch, after the caller's identity; `topic` only for consumers of vLLM 0.26 on."""
    return [b"", _write_seq(seq), payload] if topic is None else [b"", topic.encode(), _write_seq(seq), payload]


def encode_replay_end(*, topic_frame: bool = False) -> list[bytes]:
    """Frames that end a replay, in the shape of the batches before them."""
    end = [_write_seq(END_SEQ), b""]
    return [b"", b"", *end] if topic_frame else [b"", *end]


def _read_seq(number: bytes) -> int | None:
    if len(number) != _SEQ_BYTES:
        return None
    seq = int.from_bytes(number, "big", signed=True)
    return seq if seq >= 0 else None


def _write_seq(seq: int) -> bytes:
    return seq.to_bytes(_SEQ_BYTES, "big", signed=True)
