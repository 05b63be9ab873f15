"""Write new keys and values into the pages of their sequences."""

import torch
from torch import Tensor

from kernels.checks import check_apart, check_distinct, check_index, check_pools
from kernels.dispatch import can_read, check_devices, implementation
from kernels.errors import DtypeMismatch, ShapeMismatch

__all__ = ["paged_append"]

_CONVERTED = (torch.float32, torch.bfloat16, torch.float16)


def paged_append(
    keys: Tensor,
    values: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    slots: Tensor,
    *,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> None:
    """Write each token's keys and values at its slot; every other slot stays bit-identical.

    Args:
        keys: New keys, [tokens, kv_heads, head_dim]; heads and head_dim without gaps, tokens as far apart as may be.
        values: New values, same shape and dtype.
        key_pool: [pages, page_tokens, kv_heads, head_dim], contiguous; written in place. Of the dtype of `keys`, or
            float8_e4m3fn.
        value_pool: Same shape and dtype; written in place.
        slots: Where each token goes, `page * page_tokens + place`, [tokens], int32 or int64, none twice; a token whose
            slot is -1 is skipped.
        key_scale: A float8 pool holds `keys / key_scale`, held to the largest float8; of no other pool.
        value_scale: The same of values.

    Raises:
        ShapeMismatch: Dimensions do not fit, a slot is named twice, or a pool overlaps the other or the rows.
        DtypeMismatch: Dtypes or devices differ; only to float8 is anything converted.
        PageOutOfRange: A slot is not one of the pool's.

    Cost: bytes of keys and values read, and of their slots written; one launch; no sync.
    Reference: kernels/paged_append/reference.py.
    """
    check_pools(key_pool, value_pool)
    pages, page_tokens, *row = key_pool.shape
    if keys.shape != values.shape or keys.dim() != 3 or list(keys.shape[1:]) != row:
        raise ShapeMismatch(f"keys {tuple(keys.shape)}, values {tuple(values.shape)}, pool {tuple(key_pool.shape)}")
    _check_dtypes(keys, values, key_pool, key_scale, value_scale)
    for name, rows in (("keys", keys), ("values", values)):
        if rows.numel() and not rows[0].is_contiguous():
            raise ShapeMismatch(f"a token's {name} must be contiguous")
    check_index("slots", slots, limit=pages * page_tokens, lowest=-1)
    if len(slots) != len(keys):
        raise ShapeMismatch(f"{len(slots)} slots for {len(keys)} tokens")
    if can_read(slots):
        check_distinct("slots", slots[slots >= 0])
    check_devices(keys=keys, values=values, key_pool=key_pool, value_pool=value_pool, slots=slots)
    check_apart(("key_pool", "value_pool"), keys=keys, values=values, key_pool=key_pool, value_pool=value_pool)
    module = implementation("paged_append", keys)
    module.paged_append(keys, values, key_pool, value_pool, slots, key_scale, value_scale)


def _check_dtypes(keys: Tensor, values: Tensor, pool: Tensor, key_scale: float, value_scale: float) -> None:
    if keys.dtype != values.dtype:
        raise DtypeMismatch(f"keys {keys.dtype}, values {values.dtype}")
    is_converted = pool.dtype == torch.float8_e4m3fn and keys.dtype in _CONVERTED
    if keys.dtype != pool.dtype and not is_converted:
        raise DtypeMismatch(f"keys {keys.dtype}, the pool {pool.dtype}")
    if not is_converted and (key_scale, value_scale) != (1.0, 1.0):
        raise DtypeMismatch(f"scales are for a float8 pool, this one is {pool.dtype}")
