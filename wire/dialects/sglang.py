"""SGLang's encoding of event batches: tagged arrays until August 2026, tagged maps after.

Takes `EventBatch`, gives bytes that an SGLang consumer of that generation reads. The batch itself
is an array in both. Source: public wire structs of SGLang, see docs/decisions.
"""

from enum import StrEnum
from typing import Any

import msgspec

from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event, EventBatch


class Generation(StrEnum):
    """Which form an event has."""

    ARRAY = "array"
    MAP = "map"


def encode_batch(batch: EventBatch, generation: Generation) -> bytes:
    """Payload of one batch in the given generation."""
    encode = _encode_array if generation is Generation.ARRAY else _encode_map
    return msgspec.msgpack.encode([batch.ts_s, [encode(event) for event in batch.events], batch.dp_rank])


def _encode_array(event: Event) -> list[Any]:
    match event:
        case BlockStored():
            fields: list[Any] = [
                "BlockStored",
                event.block_hashes,
                event.parent_block_hash,
                event.token_ids,
                event.block_tokens,
                event.lora_id,
                event.medium,
            ]
            # Consumers typed on seven fields ignore the eighth; unsalted events stay seven long.
            return fields if event.cache_salt is None else [*fields, {"cache_salt": event.cache_salt}]
        case BlockRemoved():
            return ["BlockRemoved", event.block_hashes, event.medium]
        case AllBlocksCleared():
            return ["AllBlocksCleared"]


def _encode_map(event: Event) -> dict[str, Any]:
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
            }
            # The last four are keys of vLLM, which a mirror of one passes on; no SGLang has them.
            optional = {
                "lora_name": event.lora_name,
                "cache_salt": event.cache_salt,
                "session_id": event.session_id,
                "extra_keys": event.extra_keys,
                "group_idx": event.group_idx,
                "kv_cache_spec_kind": event.group_kind,
                "kv_cache_spec_sliding_window": event.window_tokens,
            }
            return fields | {key: value for key, value in optional.items() if value is not None}
        case BlockRemoved():
            removed = {"type": "BlockRemoved", "block_hashes": event.block_hashes, "medium": event.medium}
            return removed if event.group_idx is None else removed | {"group_idx": event.group_idx}
        case AllBlocksCleared():
            return {"type": "AllBlocksCleared"}
