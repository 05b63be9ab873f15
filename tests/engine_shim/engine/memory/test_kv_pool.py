"""The pool has a place for every token of every layer."""

import torch

from engine_shim.engine.memory.kv_pool import KvPool
from engine_shim.engine.spec import EngineSpec, ModelSpec

SPEC = EngineSpec(page_tokens=4, pool_pages=6, model=ModelSpec(layers=3, kv_heads=2, head_dim=8))


def test_the_pool_is_as_large_as_the_spec_says():
    pool = KvPool(SPEC, dtype=torch.bfloat16)
    assert pool.keys.shape == pool.values.shape == (3, 6, 4, 2, 8)
    assert pool.size_bytes == 2 * 3 * SPEC.capacity_tokens * 2 * 8 * 2


def test_a_layer_is_a_view_of_the_pool():
    pool = KvPool(SPEC, dtype=torch.float32)
    keys, values = pool.layer(1)
    keys[5, 3] = 1.0
    values[0, 0] = 2.0
    assert pool.keys.sum() == 16
    assert pool.values[1].sum() == pool.values.sum() == 32
