"""Shapes of events on the wire, typed so that one pass of the decoder also checks them.

Private to `wire.dialects`: nothing here leaves the package but as `wire.events`.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

MAX_HASHES = 65_536
MAX_TOKENS = 1_048_576
#: Engines publish one batch a step; even a whole pool's turnover is far fewer events.
MAX_EVENTS = 65_536
#: Engines use 8 to 32 bytes; no digest has an odd number of them, which `check_hash_bytes` looks at.
MIN_HASH_BYTES, MAX_HASH_BYTES = 4, 64

Hash = int | Annotated[bytes, Meta(min_length=MIN_HASH_BYTES, max_length=MAX_HASH_BYTES)]
Hashes = Annotated[tuple[Hash, ...], Meta(max_length=MAX_HASHES)]
Token = Annotated[int, Meta(ge=0, lt=1 << 32)]
Tokens = Annotated[tuple[Token, ...], Meta(max_length=MAX_TOKENS)]
Pairs = Annotated[tuple[tuple[Token, Token], ...], Meta(max_length=MAX_TOKENS)]
BlockTokens = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
Keys = Annotated[list[list[Any] | None], Meta(max_length=MAX_TOKENS)] | None


class Batch(Struct, array_like=True, frozen=True):
    """`[ts, events, dp_rank?, ...]`, the same in all generations."""

    ts: float
    events: Annotated[list[Raw], Meta(max_length=MAX_EVENTS)]
    dp_rank: int | None = None


class StoredArray(Struct, array_like=True, tag="BlockStored", frozen=True):
    """Positional BlockStored; the eighth element is SGLang's map of metadata or vLLM's adapter name."""

    block_hashes: Hashes
    parent_block_hash: Hash | None
    token_ids: Raw
    block_size: BlockTokens
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | dict[str, Any] | None = None
    extra_keys: Keys = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class RemovedArray(Struct, array_like=True, tag="BlockRemoved", frozen=True):
    """Positional BlockRemoved."""

    block_hashes: Hashes
    medium: str | None = None
    group_idx: int | None = None


class ClearedArray(Struct, array_like=True, tag="AllBlocksCleared", frozen=True):
    """Positional AllBlocksCleared."""


class StoredMap(Struct, tag="BlockStored", frozen=True):
    """Keyed BlockStored of SGLang and vLLM."""

    block_hashes: Hashes
    token_ids: Raw
    block_size: BlockTokens
    parent_block_hash: Hash | None = None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    cache_salt: str | None = None
    extra_keys: Keys = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    session_id: str | None = None


class RemovedMap(Struct, tag="BlockRemoved", frozen=True):
    """Keyed BlockRemoved."""

    block_hashes: Hashes
    medium: str | None = None
    group_idx: int | None = None


class ClearedMap(Struct, tag="AllBlocksCleared", frozen=True):
    """Keyed AllBlocksCleared."""


class ForeignArray(Struct, array_like=True, frozen=True):
    """A positional event of any type; what follows the tag is passed over."""

    type: str


class ForeignMap(Struct, frozen=True):
    """A keyed event of any type."""

    type: str


def check_hash_bytes(shape: Struct) -> None:
    """Raise ValueError where a hash in bytes is no digest: it was cut, or is something else."""
    if not isinstance(shape, StoredArray | StoredMap | RemovedArray | RemovedMap):
        return
    parent = None if isinstance(shape, RemovedArray | RemovedMap) else shape.parent_block_hash
    for name in (parent, *shape.block_hashes):
        if isinstance(name, bytes) and len(name) % 2:
            raise ValueError(f"a hash of {len(name)} bytes")


read_foreign_array = msgspec.msgpack.Decoder(ForeignArray).decode
read_foreign_map = msgspec.msgpack.Decoder(ForeignMap).decode
read_batch = msgspec.msgpack.Decoder(Batch).decode
read_array = msgspec.msgpack.Decoder(StoredArray | RemovedArray | ClearedArray).decode
read_map = msgspec.msgpack.Decoder(StoredMap | RemovedMap | ClearedMap).decode
read_tokens = msgspec.msgpack.Decoder(Tokens).decode
read_pairs = msgspec.msgpack.Decoder(Pairs).decode
