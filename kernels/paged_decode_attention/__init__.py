"""Attention of one new token a sequence over its paged context, with lengths that only the device knows."""

import torch
from torch import Tensor

from kernels.checks import check_groups, check_index, check_integers, check_like, check_pools, check_range
from kernels.dispatch import can_read, check_devices, check_multiplies, implementation
from kernels.errors import DtypeMismatch, ShapeMismatch
from kernels.index_build import build_split_plan
from kernels.index_build.reference import build_split_plan as build_plainly
from kernels.paged_decode_attention.call import DecodeCall

__all__ = ["paged_decode_attention", "paged_decode_attention_with_lse"]


def paged_decode_attention(
    queries: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    page_ids: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    page_offsets: Tensor | None = None,
    window_tokens: int | None = None,
    sinks: Tensor | None = None,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
    tile_offsets: Tensor | None = None,
) -> Tensor:
    """Attend from the last token of each sequence; see `paged_decode_attention_with_lse`."""
    return paged_decode_attention_with_lse(
        queries,
        key_pool,
        value_pool,
        page_ids,
        seq_lens,
        scale=scale,
        page_offsets=page_offsets,
        window_tokens=window_tokens,
        sinks=sinks,
        key_scale=key_scale,
        value_scale=value_scale,
        tile_offsets=tile_offsets,
    )[0]


def paged_decode_attention_with_lse(
    queries: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    page_ids: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    page_offsets: Tensor | None = None,
    window_tokens: int | None = None,
    sinks: Tensor | None = None,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
    tile_offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend from the last token of each sequence to its context, the token included.

    The new token's key and value are in the pools already (`paged_append`). Programs share the tiles of all contexts
    evenly, wherever one sequence ends and the next begins: one long context takes as many programs as many short ones.

    Args:
        queries: [sequences, query_heads, head_dim], contiguous; float32, bfloat16 or float16.
        key_pool: [pages, page_tokens, kv_heads, head_dim], contiguous, same dtype or float8_e4m3fn.
        value_pool: Same shape and dtype.
        page_ids: Pages of each sequence in order: a table [sequences, pages_max], or with `page_offsets` a list of all
            sequences' pages one after the other. int32 or int64.
        seq_lens: Length of each context, the new token included, [sequences], int32 or int64; 0 gives zeros.
        scale: Factor on the scores, usually head_dim ** -0.5.
        page_offsets: Where each sequence's pages begin in `page_ids`, and their end, [sequences + 1].
        window_tokens: Only the last so many tokens of a context are seen.
        sinks: A score of each query head that takes part in the softmax without a value, [query_heads], float32.
        key_scale: What keys of a float8 pool are multiplied by.
        value_scale: What values of a float8 pool are multiplied by.
        tile_offsets: `index_build.build_split_plan(seq_lens, window_tokens=window_tokens)`, made once a step for all
            layers; made here when not given.

    Returns:
        [sequences, query_heads, head_dim] in the queries' dtype, and the natural logarithm of the softmax's sum, sink
        included, [sequences, query_heads], float32. Query head h reads key head h // (query_heads // kv_heads).

    Raises:
        ShapeMismatch: Dimensions do not fit, a context does not end in its pages, or the plan is another's.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A page is not one of the pool's.

    Cost: each context's keys and values read once; two launches; no sync.
    Reference: kernels/paged_decode_attention/reference.py.
    """
    _check_tensors(queries, key_pool, value_pool, key_scale, value_scale)
    if window_tokens is not None and window_tokens < 1:
        raise ShapeMismatch(f"a window of {window_tokens} tokens")
    if sinks is not None:
        check_like("sinks", sinks, (queries.shape[1],), torch.float32)
    check_index("seq_lens", seq_lens, limit=2**31)
    if len(seq_lens) != len(queries):
        raise ShapeMismatch(f"{len(seq_lens)} lengths for {len(queries)} sequences")
    _check_pages(page_ids, page_offsets, seq_lens, key_pool)
    check_devices(queries=queries, key_pool=key_pool, value_pool=value_pool, page_ids=page_ids, seq_lens=seq_lens)
    check_devices(queries=queries, page_offsets=page_offsets, sinks=sinks, tile_offsets=tile_offsets)
    tile_offsets = _take_plan(tile_offsets, seq_lens, window_tokens)
    out = torch.empty_like(queries)
    lse = torch.empty(queries.shape[:2], dtype=torch.float32, device=queries.device)
    module = implementation("paged_decode_attention", queries)
    module.paged_decode_attention(
        DecodeCall(
            queries=queries,
            key_pool=key_pool,
            value_pool=value_pool,
            page_ids=page_ids,
            page_offsets=page_offsets,
            seq_lens=seq_lens,
            tile_offsets=tile_offsets,
            sinks=sinks,
            window_tokens=window_tokens,
            scale=scale * key_scale,
            value_scale=value_scale,
        ),
        out,
        lse,
    )
    return out, lse


def _check_tensors(queries: Tensor, key_pool: Tensor, value_pool: Tensor, key_scale: float, value_scale: float) -> None:
    check_pools(key_pool, value_pool)
    if queries.dim() != 3 or queries.shape[2] != key_pool.shape[3] or not queries.is_contiguous():
        raise ShapeMismatch(f"queries {tuple(queries.shape)}, head_dim of the pool is {key_pool.shape[3]}")
    if queries.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise DtypeMismatch(f"queries are {queries.dtype}")
    if key_pool.dtype not in (queries.dtype, torch.float8_e4m3fn):
        raise DtypeMismatch(f"queries are {queries.dtype}, the pool {key_pool.dtype}")
    if key_pool.dtype == queries.dtype and (key_scale, value_scale) != (1.0, 1.0):
        raise DtypeMismatch(f"scales are for a float8 pool, this one is {key_pool.dtype}")
    check_groups(queries, key_pool)
    check_multiplies(queries)


def _check_pages(page_ids: Tensor, page_offsets: Tensor | None, seq_lens: Tensor, pool: Tensor) -> None:
    check_integers("page_ids", page_ids)
    pages, page_tokens = pool.shape[:2]
    if page_offsets is None:
        if page_ids.dim() != 2 or len(page_ids) != len(seq_lens):
            raise ShapeMismatch(f"page_ids {tuple(page_ids.shape)} for {len(seq_lens)} sequences")
    else:
        check_index("page_ids", page_ids, limit=2**31, lowest=-(2**31))
        check_index("page_offsets", page_offsets, limit=len(page_ids) + 1)
        if len(page_offsets) != len(seq_lens) + 1:
            raise ShapeMismatch(f"{len(page_offsets)} page offsets for {len(seq_lens)} sequences")
    if not can_read(seq_lens) or not len(seq_lens):
        return
    counts = page_ids.shape[1] if page_offsets is None else page_offsets.diff()
    used = (seq_lens + page_tokens - 1) // page_tokens
    if bool((used > counts).any()):
        raise ShapeMismatch(f"a context needs {int((used - counts).max())} pages more than it has")
    for number, count in enumerate(used.tolist()):
        start = 0 if page_offsets is None else int(page_offsets[number])
        listed = page_ids[number] if page_offsets is None else page_ids
        check_range(f"pages of sequence {number}", listed[start : start + count], limit=pages)


def _take_plan(tile_offsets: Tensor | None, seq_lens: Tensor, window_tokens: int | None) -> Tensor:
    if tile_offsets is None:
        return build_split_plan(seq_lens, window_tokens=window_tokens)
    check_like("tile_offsets", tile_offsets, (len(seq_lens) + 1,), torch.int32)
    if can_read(tile_offsets) and can_read(seq_lens):
        expected = torch.empty_like(tile_offsets)
        build_plainly(seq_lens, window_tokens, expected)
        if not torch.equal(tile_offsets, expected):
            raise ShapeMismatch("tile_offsets were made for other lengths or another window")
    return tile_offsets
