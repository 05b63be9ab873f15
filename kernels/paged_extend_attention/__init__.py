"""Causal attention of new tokens over the paged context of their sequences; decode is a row of one token."""

from torch import Tensor

from kernels.errors import ShapeMismatch
from kernels.paged_extend_attention.reference import paged_extend_attention_reference
from kernels.paged_rows import PagedRows
from kernels.pool_checks import check_heads, check_pools

__all__ = ["paged_extend_attention"]


def paged_extend_attention(
    queries: Tensor, key_pool: Tensor, value_pool: Tensor, rows: PagedRows, *, scale: float
) -> Tensor:
    """Attend from each new token to all tokens of its sequence up to and including itself.

    The new tokens' keys and values are in the pools already (`paged_append`).

    Args:
        queries: Queries of all rows, flat, [tokens, query_heads, head_dim].
        key_pool: [pages, page_tokens, kv_heads, head_dim], contiguous, same dtype.
        value_pool: Same shape and dtype.
        rows: Which tokens these are, and where their sequences' pages lie. Rows may share pages.
        scale: Factor on the scores, usually head_dim ** -0.5.

    Returns:
        [tokens, query_heads, head_dim], same dtype; query head h reads key head h // (query_heads // kv_heads).

    Raises:
        ShapeMismatch: Dimensions do not fit, or query_heads is no multiple of kv_heads.
        DtypeMismatch: `queries` and the pools differ in dtype.
        PageOutOfRange: A row's page is not one of the pool's.

    Cost: 4 * query_heads * head_dim operations a pair of query and key; each row's context is read once.
    Reference: kernels/paged_extend_attention/reference.py.
    """
    check_pools(key_pool, value_pool, page_tokens=rows.page_tokens)
    check_heads("queries", queries, key_pool)
    if queries.shape[1] % key_pool.shape[2]:
        raise ShapeMismatch(f"{queries.shape[1]} query heads are no multiple of {key_pool.shape[2]} key heads")
    rows.check(tokens=queries.shape[0], pool_pages=key_pool.shape[0])
    return paged_extend_attention_reference(queries, key_pool, value_pool, rows, scale=scale)
