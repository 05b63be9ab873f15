"""Bytes of one event batch, in any public generation, to values.

Takes a payload from a socket that is not trusted, gives an `EventBatch` or `Malformed`; never raises.
An event that is not understood is left out and counted; those around it still count.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from wire.dialects import shapes
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event, EventBatch, Medium
from wire.frames import MAX_PAYLOAD_BYTES
from wire.malformed import Malformed

#: What the decoder can raise on hostile bytes: bad encoding, bad UTF-8, nesting without end.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_KNOWN_TYPES = frozenset({"BlockStored", "BlockRemoved", "AllBlocksCleared"})
_MEDIA = {medium.value: medium for medium in Medium}
_MAP_OPCODES = frozenset(range(0x80, 0x90)) | {0xDE, 0xDF}


def decode_batch(payload: bytes) -> EventBatch | Malformed:
    """Events of a payload `[ts, events, dp_rank?, ...]`, arrays and maps alike.

    Returns:
        The batch, with one entry in `skipped` for each event left out (`unknown_type`, `malformed`),
        or `Malformed` when the batch itself cannot be read.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        return Malformed("payload size")
    try:
        batch = shapes.read_batch(payload)
    except _UNREADABLE:
        return Malformed("batch")
    events: list[Event] = []
    skipped: list[str] = []
    for raw in batch.events:
        event = _decode_event(raw)
        if isinstance(event, str):
            skipped.append(event)
        else:
            events.append(event)
    return EventBatch(ts_s=batch.ts, events=tuple(events), dp_rank=batch.dp_rank, skipped=tuple(skipped))


def _decode_event(raw: msgspec.Raw) -> Event | str:
    """The event, or the reason why it was left out."""
    keyed = memoryview(raw)[0] in _MAP_OPCODES
    try:
        shape = shapes.read_map(raw) if keyed else shapes.read_array(raw)
        shapes.check_hash_bytes(shape)
        return _to_event(shape)
    except _UNREADABLE:
        return "unknown_type" if _is_foreign(raw, keyed=keyed) else "malformed"


def _is_foreign(raw: msgspec.Raw, *, keyed: bool) -> bool:
    """True for a well-formed event of a type this version does not know; builds nothing but its tag."""
    try:
        tag = (shapes.read_foreign_map(raw) if keyed else shapes.read_foreign_array(raw)).type
    except _UNREADABLE:
        return False
    return tag not in _KNOWN_TYPES


def _to_event(shape: msgspec.Struct) -> Event:
    if isinstance(shape, shapes.StoredArray | shapes.StoredMap):
        return _to_stored(shape)
    if isinstance(shape, shapes.RemovedArray | shapes.RemovedMap):
        return BlockRemoved(block_hashes=shape.block_hashes, medium=_to_medium(shape.medium), group_idx=shape.group_idx)
    return AllBlocksCleared()


def _to_stored(shape: shapes.StoredArray | shapes.StoredMap) -> BlockStored:
    name = shape.lora_name
    if isinstance(shape, shapes.StoredMap):
        salt: object = shape.cache_salt
        session_id = shape.session_id
    else:
        salt = name.get("cache_salt") if isinstance(name, dict) else None
        session_id = None
    return BlockStored(
        block_hashes=shape.block_hashes,
        parent_block_hash=shape.parent_block_hash,
        token_ids=_to_tokens(shape.token_ids),
        block_tokens=shape.block_size,
        medium=_to_medium(shape.medium),
        lora_id=shape.lora_id,
        lora_name=name if isinstance(name, str) else None,
        cache_salt=salt if isinstance(salt, str) else None,
        extra_keys=_to_keys(shape.extra_keys),
        group_idx=shape.group_idx,
        group_kind=shape.kv_cache_spec_kind,
        window_tokens=shape.kv_cache_spec_sliding_window,
        session_id=session_id,
    )


def _to_tokens(raw: msgspec.Raw) -> tuple[int, ...]:
    """Flat tokens; pairs (EAGLE) are flattened to the first token of each."""
    try:
        return shapes.read_tokens(raw)
    except msgspec.ValidationError:
        return tuple(first for first, _ in shapes.read_pairs(raw))


def _to_medium(word: str | None) -> Medium | str:
    return Medium.DEVICE if word is None else _MEDIA.get(word, word)


def _to_keys(keys: Sequence[list[Any] | None] | None) -> tuple[tuple[str | int | bytes, ...] | None, ...] | None:
    if keys is None:
        return None
    return tuple(None if block is None else tuple(_flatten_keys(block)) for block in keys)


def _flatten_keys(keys: list[Any]) -> list[str | int | bytes]:
    """Keys of one block in order; what is nested (an image's id and offset) is laid flat, the rest becomes text."""
    flat: list[str | int | bytes] = []
    for key in keys:
        if isinstance(key, list):
            flat.extend(_flatten_keys(key))
        elif isinstance(key, str | bytes) or (isinstance(key, int) and not isinstance(key, bool)):
            flat.append(key)
        else:
            flat.append(str(key))
    return flat
