"""Attention of new tokens over the paged context of their sequences, of which part may be cached."""

import torch
from torch import Tensor

from kernels.checks import check_groups, check_like, check_pools
from kernels.dispatch import can_read, check_devices, check_multiplies, implementation
from kernels.errors import DtypeMismatch, ShapeMismatch
from kernels.paged_extend_attention.call import ExtendCall
from kernels.paged_rows import PagedRows

__all__ = ["paged_extend_attention", "paged_extend_attention_with_lse"]


def paged_extend_attention(
    queries: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    rows: PagedRows,
    *,
    scale: float,
    window_tokens: int | None = None,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> Tensor:
    """Attend from each new token to its sequence up to itself; see `paged_extend_attention_with_lse`."""
    return paged_extend_attention_with_lse(
        queries,
        key_pool,
        value_pool,
        rows,
        scale=scale,
        window_tokens=window_tokens,
        mask=mask,
        sinks=sinks,
        key_scale=key_scale,
        value_scale=value_scale,
    )[0]


def paged_extend_attention_with_lse(
    queries: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    rows: PagedRows,
    *,
    scale: float,
    window_tokens: int | None = None,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Attend from each new token to all tokens of its sequence up to and including itself.

    The new tokens' keys and values are in the pools already (`paged_append`).

    Args:
        queries: Queries of all rows, flat, [tokens, query_heads, head_dim]; float32, bfloat16 or float16.
        key_pool: [pages, page_tokens, kv_heads, head_dim], contiguous, same dtype or float8_e4m3fn.
        value_pool: Same shape and dtype.
        rows: Which tokens these are, and where their sequences' pages lie. Rows may share pages.
        scale: Factor on the scores, usually head_dim ** -0.5.
        window_tokens: A token sees only the last so many tokens, itself included.
        mask: Which new token of its row each token sees, [tokens, at least the longest row], bool, instead of those
            up to itself: drafted branches that are verified together. All tokens before the row are seen, within the
            window; a token then stands as far from the row's start as it sees tokens of the row.
        sinks: A score of each query head that takes part in the softmax without a value, [query_heads], float32.
        key_scale: What keys of a float8 pool are multiplied by.
        value_scale: What values of a float8 pool are multiplied by.

    Returns:
        [tokens, query_heads, head_dim] in the queries' dtype, and the natural logarithm of the softmax's sum, sink
        included, [tokens, query_heads], float32. Query head h reads key head h // (query_heads // kv_heads).

    Raises:
        ShapeMismatch: Dimensions do not fit, or query_heads is no multiple of kv_heads.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A row's page is not one of the pool's.

    Cost: 4 * query_heads * head_dim operations a pair of query and key; each row's context is read once a tile of
        queries; one launch; no sync.
    Reference: kernels/paged_extend_attention/reference.py.
    """
    check_pools(key_pool, value_pool, page_tokens=rows.page_tokens)
    _check_queries(queries, key_pool, key_scale, value_scale)
    if window_tokens is not None and window_tokens < 1:
        raise ShapeMismatch(f"a window of {window_tokens} tokens")
    if sinks is not None:
        check_like("sinks", sinks, (queries.shape[1],), torch.float32)
    rows.check(tokens=queries.shape[0], pool_pages=key_pool.shape[0])
    if mask is not None:
        _check_mask(mask, rows, len(queries))
    check_devices(queries=queries, key_pool=key_pool, value_pool=value_pool, rows=rows.page_table)
    check_devices(queries=queries, mask=mask, sinks=sinks)
    out = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
    lse = torch.empty(queries.shape[:2], dtype=torch.float32, device=queries.device)
    call = ExtendCall(
        queries=queries,
        key_pool=key_pool,
        value_pool=value_pool,
        rows=rows,
        mask=mask,
        sinks=sinks,
        window_tokens=window_tokens,
        scale=scale * key_scale,
        value_scale=value_scale,
    )
    implementation("paged_extend_attention", queries).paged_extend_attention(call, out, lse)
    return out, lse


def _check_queries(queries: Tensor, pool: Tensor, key_scale: float, value_scale: float) -> None:
    if queries.dim() != 3 or queries.shape[2] != pool.shape[3]:
        raise ShapeMismatch(f"queries {tuple(queries.shape)}, head_dim of the pool is {pool.shape[3]}")
    if queries.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise DtypeMismatch(f"queries are {queries.dtype}")
    if pool.dtype not in (queries.dtype, torch.float8_e4m3fn):
        raise DtypeMismatch(f"queries are {queries.dtype}, the pool {pool.dtype}")
    if pool.dtype == queries.dtype and (key_scale, value_scale) != (1.0, 1.0):
        raise DtypeMismatch(f"scales are for a float8 pool, this one is {pool.dtype}")
    check_groups(queries, pool)
    check_multiplies(queries)


def _check_mask(mask: Tensor, rows: PagedRows, tokens: int) -> None:
    if mask.dtype != torch.bool:
        raise DtypeMismatch(f"mask is {mask.dtype}, not torch.bool")
    if mask.dim() != 2 or len(mask) != tokens or not mask.is_contiguous():
        raise ShapeMismatch(f"mask is {tuple(mask.shape)} for {tokens} tokens")
    if can_read(rows.row_offsets) and rows.rows and int(rows.row_tokens.max()) > mask.shape[1]:
        raise ShapeMismatch(f"mask is {tuple(mask.shape)}, the longest row has {int(rows.row_tokens.max())} tokens")
