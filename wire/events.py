"""KV cache events as values: what an engine says it stored, removed or cleared.

Decoded from any public dialect (`wire.dialects`), consumed by prefix_index; the engine's publisher
makes the same values. Never says what a hash means: an engine's block hash is opaque.
"""

from enum import StrEnum

import msgspec

#: An engine's own name for a block: an integer (signed or unsigned 64 bit) or 32 raw bytes.
EngineHash = int | bytes


class Medium(StrEnum):
    """Where a block's bytes lie, slowest last. The values are the words on the wire."""

    DEVICE = "GPU"
    HOST = "CPU_PINNED"
    DISK = "DISK"
    EXTERNAL = "EXTERNAL"


class BlockStored(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks became reusable, in chain order."""

    #: One hash a block; fewer than the tokens cover for a window group that dropped its oldest blocks.
    block_hashes: tuple[EngineHash, ...]
    #: Hash of the block before the first token; None at the start of a prompt.
    parent_block_hash: EngineHash | None
    #: Tokens of all blocks in order. Under EAGLE each unit is a pair, flattened to its first token.
    token_ids: tuple[int, ...]
    #: Tokens in each block.
    block_tokens: int
    #: Tier that now holds the blocks; unknown words are kept as text and never count as a hit.
    medium: Medium | str = Medium.DEVICE
    lora_id: int | None = None
    lora_name: str | None = None
    #: Namespace the engine mixed into the hashes; None where the dialect does not say.
    cache_salt: str | None = None
    #: Per block, what else the engine mixed into its hash (multimodal keys, salt, adapter).
    extra_keys: tuple[tuple[str | int | bytes, ...] | None, ...] | None = None
    #: KV cache group of a hybrid model; None where the engine has one group or does not say.
    group_idx: int | None = None
    #: Kind of the group: `full_attention`, `sliding_window`, `mamba`...; None where not said.
    group_kind: str | None = None
    #: Window of a sliding group, in tokens.
    window_tokens: int | None = None
    #: Request or session that caused the store; a label, not an owner.
    session_id: str | None = None


class BlockRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of each block left a tier."""

    block_hashes: tuple[EngineHash, ...]
    medium: Medium | str = Medium.DEVICE
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True):
    """The engine dropped everything it held, in every tier."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine step published."""

    #: Engine's wall clock, seconds since the epoch.
    ts_s: float
    events: tuple[Event, ...]
    #: Data-parallel rank as the batch says; None where it does not.
    dp_rank: int | None = None
    #: Events that were not understood and left out, by reason (`unknown_type`, `malformed`).
    skipped: tuple[str, ...] = ()
