"""Write new keys and values into the pages of their sequences."""

from torch import Tensor

from kernels.errors import DtypeMismatch, ShapeMismatch
from kernels.paged_append.reference import paged_append_reference
from kernels.paged_rows import PagedRows
from kernels.pool_checks import check_heads, check_pools

__all__ = ["paged_append"]


def paged_append(keys: Tensor, values: Tensor, key_pool: Tensor, value_pool: Tensor, rows: PagedRows) -> None:
    """Write each row's keys and values at their positions; every other slot stays bit-identical.

    Args:
        keys: New keys of all rows, flat, [tokens, kv_heads, head_dim].
        values: New values, same shape and dtype.
        key_pool: [pages, page_tokens, kv_heads, head_dim], contiguous, same dtype; written in place.
        value_pool: Same shape and dtype; written in place.
        rows: Which token goes where. Two rows may not write one page.

    Raises:
        ShapeMismatch: Dimensions do not fit, or a row does not end in its pages.
        DtypeMismatch: `keys`, `values` and the pools differ in dtype; nothing is converted silently.
        PageOutOfRange: A row's page is not one of the pool's.

    Cost: 2 * (keys.nbytes + values.nbytes) of memory traffic.
    Reference: kernels/paged_append/reference.py.
    """
    check_pools(key_pool, value_pool, page_tokens=rows.page_tokens)
    check_heads("keys", keys, key_pool)
    if keys.shape != values.shape or keys.shape[1] != key_pool.shape[2]:
        raise ShapeMismatch(f"keys {tuple(keys.shape)}, values {tuple(values.shape)}, pool {tuple(key_pool.shape)}")
    if values.dtype != keys.dtype:
        raise DtypeMismatch(f"keys {keys.dtype}, values {values.dtype}")
    rows.check(tokens=keys.shape[0], pool_pages=key_pool.shape[0])
    paged_append_reference(keys, values, key_pool, value_pool, rows)
