"""Sizes of the kernels' benchmark: those of a 70B model on one GPU, and small ones that show that it runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """See `FULL` and `DRY`."""

    #: Layers, each with keys and values.
    layers: int
    #: Pages that are moved, and that a pool has.
    moved_pages: int
    pool_pages: int
    page_tokens: int
    query_heads: int
    kv_heads: int
    head_dim: int
    #: Sequences and length of each in the decode rows.
    decode: tuple[tuple[int, int], ...]
    #: Window, of the longest of them.
    window_tokens: int
    #: Cached and new tokens of the extend row.
    extend: tuple[int, int]
    append_tokens: tuple[int, ...]
    #: Layers with a recurrent state, states moved, and slots of the pool.
    state_layers: int
    moved_states: int
    state_slots: int
    #: Sequences, tokens of each, key heads and value heads of the gated delta rows.
    delta: tuple[tuple[int, int, int, int], ...]
    delta_decode: tuple[int, ...]
    delta_heads: tuple[int, int]
    delta_dim: int
    checkpoint_tokens: int
    #: Parts and tokens of a merge.
    merge: tuple[int, int]
    #: Sequences of an index building.
    index_sequences: int
    #: Tokens of the reshard rows.
    reshard_tokens: int
    sampled_pages: int
    copy_bytes: int
    matmul_side: int


FULL = Sizes(
    layers=48,
    moved_pages=2048,
    pool_pages=2304,
    page_tokens=64,
    query_heads=64,
    kv_heads=8,
    head_dim=128,
    decode=((64, 8_192), (64, 32_768), (16, 131_072), (1, 131_072)),
    window_tokens=4_096,
    extend=(131_072, 2_048),
    append_tokens=(64, 8_192, 65_536),
    state_layers=36,
    moved_states=64,
    state_slots=96,
    delta=((1, 8_192, 16, 16), (4, 8_192, 16, 16), (8, 8_192, 16, 16), (1, 8_192, 16, 32), (1, 65_536, 16, 32)),
    delta_decode=(64, 256),
    delta_heads=(16, 32),
    delta_dim=128,
    checkpoint_tokens=1_024,
    merge=(8, 256),
    index_sequences=256,
    reshard_tokens=65_536,
    sampled_pages=64,
    copy_bytes=4_000_000_000,
    matmul_side=8_192,
)
DRY = Sizes(
    layers=1,
    moved_pages=3,
    pool_pages=5,
    page_tokens=4,
    query_heads=4,
    kv_heads=2,
    head_dim=16,
    decode=((2, 9), (1, 70)),
    window_tokens=5,
    extend=(9, 5),
    append_tokens=(3, 300),
    state_layers=1,
    moved_states=2,
    state_slots=3,
    delta=((1, 20, 1, 1), (2, 9, 1, 2)),
    delta_decode=(2,),
    delta_heads=(1, 2),
    delta_dim=16,
    checkpoint_tokens=64,
    merge=(2, 3),
    index_sequences=3,
    reshard_tokens=12,
    sampled_pages=2,
    copy_bytes=4_096,
    matmul_side=16,
)
