"""Batches of cache events as entries of a Redis stream: one stream a rank, for fleets of many routers. Pure.

An entry's id is `LIFE-NUMBER`: LIFE rises with each start of a publisher, NUMBER is the batch's own plus one, since
Redis knows no entry 0. Its fields are the topic and the payload of the live message; nothing else is ever read.
"""

from collections.abc import Mapping
from typing import Any

from wire.frames import MAX_PAYLOAD_BYTES, encode_live
from wire.malformed import Malformed

TOPIC, PAYLOAD = b"t", b"p"
#: Longest topic that is read.
_MAX_TOPIC_BYTES = 1_024
_MAX_DIGITS = 18


def name_stream(name: str, dp_rank: int) -> str:
    """Stream of a rank, of a publisher's name."""
    return f"{name}:{dp_rank}"


def name_entry(life: int, seq: int) -> str:
    """Id of a batch."""
    return f"{life}-{seq + 1}"


def read_life(entry_id: Any) -> int | None:
    """Life of an entry; None where the id is of another form."""
    numbers = _read_id(entry_id)
    return None if numbers is None else numbers[0]


def write_entry(topic: str, payload: bytes) -> dict[bytes, bytes]:
    """Fields of a batch."""
    return {TOPIC: topic.encode(), PAYLOAD: payload}


def read_entry(entry_id: Any, fields: Any) -> list[bytes] | Malformed:
    """Frames of the live message that an entry stands for."""
    numbers = _read_id(entry_id)
    if numbers is None or numbers[1] < 1:
        return Malformed("entry id")
    topic, payload = (fields.get(TOPIC), fields.get(PAYLOAD)) if isinstance(fields, Mapping) else (None, None)
    if not isinstance(topic, bytes) or not isinstance(payload, bytes):
        return Malformed("entry fields")
    if len(topic) > _MAX_TOPIC_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        return Malformed("payload size")
    return encode_live(topic.decode("utf-8", "replace"), numbers[1] - 1, payload)


def _read_id(entry_id: Any) -> tuple[int, int] | None:
    if not isinstance(entry_id, bytes) or len(entry_id) > 2 * _MAX_DIGITS + 1:
        return None
    life, dash, number = entry_id.partition(b"-")
    known = bool(dash) and life.isdigit() and number.isdigit() and max(len(life), len(number)) <= _MAX_DIGITS
    return (int(life), int(number)) if known else None
