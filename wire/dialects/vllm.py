"""vLLM's encoding of event batches: tagged arrays from 0.13 to 0.23, tagged maps from 0.26 on.

Takes `EventBatch`, gives the bytes an engine of the given version publishes; a field that a
version does not have yet is left out.
"""

from typing import Any

import msgspec

from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event, EventBatch

#: First version whose events are maps.
_MAPS_SINCE = (0, 26)
_ADAPTER_SINCE, _KEYS_SINCE, _GROUP_SINCE, _KIND_SINCE, _SESSION_SINCE = (0, 16), (0, 18), (0, 20), (0, 23), (0, 31)


def encode_batch(batch: EventBatch, version: str) -> bytes:
    """Payload of one batch as vLLM `version` (such as "0.16") writes it.

    Raises:
        ValueError: The version is not `major.minor`, or below 0.13.
    """
    number = _read_version(version)
    encode = _encode_map if number >= _MAPS_SINCE else _encode_array
    return msgspec.msgpack.encode([batch.ts_s, [encode(event, number) for event in batch.events], batch.dp_rank])


def replays_with_topic(version: str) -> bool:
    """True where replay answers carry the topic frame (0.26 on)."""
    return _read_version(version) >= _MAPS_SINCE


def _read_version(version: str) -> tuple[int, int]:
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        raise ValueError(f"vLLM version must look like 0.32, not {version!r}")
    number = int(parts[0]), int(parts[1])
    if number < (0, 13):
        raise ValueError(f"vLLM {version} is older than 0.13, the first whose events are known here")
    return number


def _encode_array(event: Event, number: tuple[int, int]) -> list[Any]:
    match event:
        case BlockStored():
            fields = [
                "BlockStored",
                event.block_hashes,
                event.parent_block_hash,
                event.token_ids,
                event.block_tokens,
                event.lora_id,
                event.medium,
            ]
            later = (
                (_ADAPTER_SINCE, event.lora_name),
                (_KEYS_SINCE, event.extra_keys),
                (_GROUP_SINCE, event.group_idx),
                (_KIND_SINCE, event.group_kind),
                (_KIND_SINCE, event.window_tokens),
            )
            return [*fields, *(value for since, value in later if number >= since)]
        case BlockRemoved():
            removed: list[Any] = ["BlockRemoved", event.block_hashes, event.medium]
            return [*removed, event.group_idx] if number >= _GROUP_SINCE else removed
        case AllBlocksCleared():
            return ["AllBlocksCleared"]


def _encode_map(event: Event, number: tuple[int, int]) -> dict[str, Any]:
    match event:
        case BlockStored():
            fields: dict[str, Any] = {
                "type": "BlockStored",
                "block_hashes": event.block_hashes,
                "parent_block_hash": event.parent_block_hash,
                "token_ids": event.token_ids,
                "block_size": event.block_tokens,
                "lora_id": event.lora_id,
                "medium": event.medium,
                "lora_name": event.lora_name,
            }
            optional = {
                "extra_keys": event.extra_keys,
                "group_idx": event.group_idx,
                "kv_cache_spec_kind": event.group_kind,
                "kv_cache_spec_sliding_window": event.window_tokens,
                "session_id": event.session_id if number >= _SESSION_SINCE else None,
            }
        case BlockRemoved():
            fields = {"type": "BlockRemoved", "block_hashes": event.block_hashes, "medium": event.medium}
            optional = {"group_idx": event.group_idx}
        case AllBlocksCleared():
            return {"type": "AllBlocksCleared"}
    return fields | {key: value for key, value in optional.items() if value is not None}
