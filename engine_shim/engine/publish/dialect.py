"""Which public encoding the event stream speaks, by name."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial

import msgspec

from wire.dialects import sglang, vllm
from wire.events import BlockRemoved, BlockStored, EngineHash, Event, EventBatch

_VLLM_MAP_VERSION = "0.32"
_VLLM_ARRAY_VERSION = "0.23"
_HASH_MASK = (1 << 64) - 1


class EventDialect(StrEnum):
    """Encodings that the publisher speaks."""

    SGLANG_MAP = "sglang-map"
    SGLANG_ARRAY = "sglang-array"
    VLLM_MAP = "vllm-map"
    VLLM_ARRAY = "vllm-array"

    @property
    def replays_topic(self) -> bool:
        """True where replay answers carry the topic frame."""
        return self is EventDialect.VLLM_MAP and vllm.replays_with_topic(_VLLM_MAP_VERSION)

    def encoder(self) -> Callable[[EventBatch], bytes]:
        """The function that writes a batch in this encoding."""
        match self:
            case EventDialect.SGLANG_MAP:
                return partial(sglang.encode_batch, generation=sglang.Generation.MAP)
            case EventDialect.SGLANG_ARRAY:
                return partial(sglang.encode_batch, generation=sglang.Generation.ARRAY)
            case EventDialect.VLLM_MAP:
                return partial(_encode_vllm, version=_VLLM_MAP_VERSION)
            case EventDialect.VLLM_ARRAY:
                return partial(_encode_vllm, version=_VLLM_ARRAY_VERSION)


def _encode_vllm(batch: EventBatch, version: str) -> bytes:
    events = tuple(_as_vllm(event) for event in batch.events)
    return vllm.encode_batch(msgspec.structs.replace(batch, events=events), version)


def _as_vllm(event: Event) -> Event:
    """Hashes of vLLM are unsigned, and it tells a salt among the extra keys of a prompt's first block."""
    match event:
        case BlockStored(block_hashes=hashes, parent_block_hash=parent):
            return msgspec.structs.replace(
                event,
                block_hashes=tuple(_unsigned(name) for name in hashes),
                parent_block_hash=None if parent is None else _unsigned(parent),
                extra_keys=_salt_keys(event) if event.cache_salt else event.extra_keys,
            )
        case BlockRemoved(block_hashes=hashes):
            return msgspec.structs.replace(event, block_hashes=tuple(_unsigned(name) for name in hashes))
    return event


def _salt_keys(event: BlockStored) -> tuple[tuple[str | int | bytes, ...] | None, ...]:
    first = (event.cache_salt or "",) if event.parent_block_hash is None else None
    return (first, *([None] * (len(event.block_hashes) - 1)))


def _unsigned(name: EngineHash) -> EngineHash:
    return name & _HASH_MASK if isinstance(name, int) else name
