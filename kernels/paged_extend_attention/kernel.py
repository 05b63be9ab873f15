"""Extend attention in Triton: a program takes a tile of queries, of one key head and all query heads that share it.

Rows of the tile are pairs of token and query head, so that keys are read once for a group. Tiles of keys that every
query of the tile sees whole are computed without a mask; those at the window's edge and on the diagonal with one.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.paged_extend_attention.call import ExtendCall
from kernels.paged_tiles import load_pages

#: Rows of a tile of queries, and keys of a tile.
QUERY_ROWS, KEY_TOKENS = 128, 64
WARPS, STAGES = 8, 3
#: The same where a row is wide or of 4 bytes an element, or there is a mask: half the rows, so that all fits.
WIDE_QUERY_ROWS, WIDE_STAGES = 64, 2
_NARROW_ROW_BYTES = 256
_UNBOUNDED = 2**31 - 1

_RUNTIME = ["rows", "table_stride", "mask_stride", "window_tokens", "scale", "value_scale"]
_INDICES = ["page_table", "row_offsets", "start_tokens", "mask", "stands"]


@triton.jit(do_not_specialize=_RUNTIME, do_not_specialize_on_alignment=_INDICES)
def extend_kernel(
    queries: tl.tensor,
    key_pool: tl.tensor,
    value_pool: tl.tensor,
    page_table: tl.tensor,
    row_offsets: tl.tensor,
    start_tokens: tl.tensor,
    mask: tl.tensor,
    stands: tl.tensor,
    sinks: tl.tensor,
    out: tl.tensor,
    lse: tl.tensor,
    rows: tl.tensor,
    table_stride: tl.tensor,
    mask_stride: tl.tensor,
    window_tokens: tl.tensor,
    scale: tl.tensor,
    value_scale: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
    QUERY_ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    TILE: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    """Attend for one tile of one row's queries; tiles are counted so that each row begins a new one."""
    TOKENS: tl.constexpr = QUERY_ROWS // GROUP_ROWS
    # The longest contexts come first, so that short ones fill the gaps at the end.
    tile, head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    line = _find_row(row_offsets, rows, tile, TOKENS)
    offset = tl.load(row_offsets + line).to(tl.int32)
    new_tokens = tl.load(row_offsets + line + 1).to(tl.int32) - offset
    first = (tile - offset // TOKENS - line) * TOKENS
    if first < new_tokens:
        start = tl.load(start_tokens + line).to(tl.int32)
        row, lane = tl.arange(0, QUERY_ROWS), tl.arange(0, DIM)
        token, in_group = first + row // GROUP_ROWS, row % GROUP_ROWS
        is_query = (token < new_tokens) & (in_group < GROUP)
        query_at = (offset + token).to(tl.int64) * (KV_HEADS * GROUP) + head * GROUP + in_group
        is_moved = is_query[:, None] & (lane < HEAD_DIM)[None, :]
        query = tl.load(queries + query_at[:, None] * HEAD_DIM + lane[None, :], mask=is_moved, other=0.0)
        stand = start + token
        if HAS_MASK and HAS_WINDOW:
            stand = tl.load(stands + offset + token, mask=is_query, other=0)

        # All of a tile's queries see the keys in [first_whole, end_whole); some see others in [first_key, end_key).
        end_key = start + (new_tokens if HAS_MASK else tl.minimum(first + TOKENS, new_tokens))
        end_whole = (start if HAS_MASK else start + first + 1) // TILE
        first_key, first_whole = 0, 0
        if HAS_WINDOW:
            first_key = tl.maximum((start - 1 if HAS_MASK else start + first) + 1 - window_tokens, 0)
            last_stand = start + (new_tokens if HAS_MASK else tl.minimum(first + TOKENS, new_tokens)) - 1
            first_whole = tl.maximum(last_stand + 1 - window_tokens + TILE - 1, 0) // TILE
        pages = page_table + line.to(tl.int64) * table_stride
        summed = tl.zeros((QUERY_ROWS, DIM), dtype=tl.float32)
        most = tl.full((QUERY_ROWS,), -1e30, dtype=tl.float32)
        weight = tl.zeros((QUERY_ROWS,), dtype=tl.float32)
        mask_at, stands_at = mask + (offset + token).to(tl.int64) * mask_stride, stands + offset
        end_tile = (end_key + TILE - 1) // TILE
        edge = tl.minimum(first_whole, end_tile)
        end_whole = tl.maximum(edge, end_whole)
        for phase in tl.static_range(0 if HAS_WINDOW else 1, 3):
            if phase == 0:
                low, high = first_key // TILE, edge
            elif phase == 1:
                low, high = edge, end_whole
            else:
                low, high = end_whole, end_tile
            summed, most, weight = _attend(
                query,
                summed,
                most,
                weight,
                key_pool,
                value_pool,
                pages,
                mask_at,
                stands_at,
                stand,
                is_query,
                low,
                high,
                start,
                new_tokens,
                end_key,
                window_tokens,
                head,
                scale,
                KV_HEADS,
                HEAD_DIM,
                DIM,
                PAGE_TOKENS,
                TILE,
                HAS_MASK,
                HAS_WINDOW,
                phase != 1,
                STAGES,
            )
        if HAS_SINKS:
            sink = tl.load(sinks + head * GROUP + in_group, mask=is_query, other=0.0) * 1.4426950408889634
            higher = tl.maximum(most, sink)
            kept = tl.exp2(most - higher)
            summed, weight, most = summed * kept[:, None], weight * kept + tl.exp2(sink - higher), higher
        is_any = weight != 0.0  # so of no number too, which has to show
        weight = tl.where(is_any, weight, 1.0)
        summed = summed / weight[:, None] * value_scale
        tl.store(out + query_at[:, None] * HEAD_DIM + lane[None, :], summed.to(out.dtype.element_ty), mask=is_moved)
        logarithm = tl.where(is_any, most * 0.6931471805599453 + tl.log(weight), float("-inf"))
        tl.store(lse + query_at, logarithm, mask=is_query)


@triton.jit
def _attend(
    query: tl.tensor,
    summed: tl.tensor,
    most: tl.tensor,
    weight: tl.tensor,
    key_pool: tl.tensor,
    value_pool: tl.tensor,
    pages: tl.tensor,
    mask_at: tl.tensor,
    stands_at: tl.tensor,
    stand: tl.tensor,
    is_query: tl.tensor,
    first_tile: tl.tensor,
    end_tile: tl.tensor,
    start: tl.tensor,
    new_tokens: tl.tensor,
    end_key: tl.tensor,
    window_tokens: tl.tensor,
    head: tl.tensor,
    scale: tl.tensor,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    TILE: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    IS_MASKED: tl.constexpr,
    STAGES: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Go over tiles `[first_tile, end_tile)` of keys with a running maximum."""
    lane = tl.arange(0, DIM)
    # Pages are read a tile ahead, so that keys and values can be asked for before they are needed.
    page = load_pages(pages, first_tile, end_key, PAGE_TOKENS, TILE)
    for one in tl.range(first_tile, end_tile, num_stages=STAGES):
        position = one * TILE + tl.arange(0, TILE)  # [TILE]
        is_read = position < end_key
        slot = page.to(tl.int64) * PAGE_TOKENS + position % PAGE_TOKENS
        at = ((slot * KV_HEADS + head) * HEAD_DIM)[:, None] + lane[None, :]  # [TILE, DIM]
        if IS_MASKED:
            is_visible = _find_visible(
                position, mask_at, stands_at, stand, is_query, start, new_tokens, window_tokens, HAS_MASK, HAS_WINDOW
            )
            # What no query sees may be anything, NaN too.
            is_read &= tl.max(is_visible.to(tl.int32), 0) > 0
            is_moved = is_read[:, None] & (lane < HEAD_DIM)[None, :]
        else:
            is_moved = tl.full((TILE, 1), True, dtype=tl.int1) & (lane < HEAD_DIM)[None, :]
        key = tl.load(key_pool + at, mask=is_moved, other=0.0).to(query.dtype)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * (scale * 1.4426950408889634)
        if IS_MASKED:
            score = tl.where(is_visible, score, -1e30)  # [QUERY_ROWS, TILE]
        higher = tl.maximum(most, tl.max(score, 1))
        share = tl.exp2(score - higher[:, None])
        if IS_MASKED:
            share = tl.where(is_visible, share, 0.0)
        kept = tl.exp2(most - higher)
        value = tl.load(value_pool + at, mask=is_moved, other=0.0).to(query.dtype)
        weight = weight * kept + tl.sum(share, 1)
        summed = summed * kept[:, None]
        summed = tl.dot(share.to(query.dtype), value, summed, input_precision="ieee")
        most = higher
        page = load_pages(pages, one + 1, end_key, PAGE_TOKENS, TILE)
    return summed, most, weight


@triton.jit
def _find_visible(
    position: tl.tensor,
    mask_at: tl.tensor,
    stands_at: tl.tensor,
    stand: tl.tensor,
    is_query: tl.tensor,
    start: tl.tensor,
    new_tokens: tl.tensor,
    window_tokens: tl.tensor,
    HAS_MASK: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
) -> tl.tensor:
    """Which query of the tile sees which of these positions, [QUERY_ROWS, TILE]."""
    if HAS_MASK:
        drafted = position - start
        is_new = (drafted >= 0) & (drafted < new_tokens)
        is_allowed = tl.load(mask_at[:, None] + drafted[None, :], mask=is_query[:, None] & is_new[None, :], other=0)
        is_visible = (drafted < 0)[None, :] | (is_allowed != 0)
        if HAS_WINDOW:
            key_stand = tl.load(stands_at + drafted, mask=is_new, other=0)
            position = tl.where(is_new, key_stand, position)
    else:
        is_visible = position[None, :] <= stand[:, None]
    if HAS_WINDOW:
        is_visible &= position[None, :] > stand[:, None] - window_tokens
    return is_visible & is_query[:, None]


@triton.jit
def _find_row(row_offsets: tl.tensor, rows: tl.tensor, tile: tl.tensor, TOKENS: tl.constexpr) -> tl.tensor:
    """The row that a tile belongs to: row s begins at tile `row_offsets[s] // TOKENS + s`."""
    low, high = rows * 0, rows - 1
    while low < high:
        middle = (low + high + 1) // 2
        if tl.load(row_offsets + middle).to(tl.int32) // TOKENS + middle <= tile:
            low = middle
        else:
            high = middle - 1
    return low


def paged_extend_attention(call: ExtendCall, out: Tensor, lse: Tensor) -> None:
    """See `kernels.paged_extend_attention.paged_extend_attention_with_lse`; the arguments are checked there."""
    tokens, heads, head_dim = call.queries.shape
    if not call.queries.numel():
        return
    kv_heads, page_tokens = call.key_pool.shape[2], call.key_pool.shape[1]
    group_rows = triton.next_power_of_2(heads // kv_heads)
    dim = max(16, triton.next_power_of_2(head_dim))
    is_narrow = call.mask is None and dim * call.queries.element_size() <= _NARROW_ROW_BYTES
    query_rows = max(group_rows, QUERY_ROWS if is_narrow else WIDE_QUERY_ROWS)
    table, unused = call.rows.page_table, call.rows.row_offsets
    extend_kernel[(tokens // (query_rows // group_rows) + call.rows.rows, kv_heads)](
        call.queries.contiguous(),
        call.key_pool,
        call.value_pool,
        table,
        call.rows.row_offsets,
        call.rows.start_tokens,
        unused if call.mask is None else call.mask.view(torch.int8),
        unused if call.mask is None or call.window_tokens is None else find_stands(call),
        lse if call.sinks is None else call.sinks,
        out,
        lse,
        call.rows.rows,
        table.stride(0),
        0 if call.mask is None else call.mask.stride(0),
        _UNBOUNDED if call.window_tokens is None else call.window_tokens,
        float(call.scale),
        float(call.value_scale),
        KV_HEADS=kv_heads,
        GROUP=heads // kv_heads,
        GROUP_ROWS=group_rows,
        QUERY_ROWS=query_rows,
        HEAD_DIM=head_dim,
        DIM=dim,
        PAGE_TOKENS=page_tokens,
        TILE=KEY_TOKENS,
        HAS_MASK=call.mask is not None,
        HAS_WINDOW=call.window_tokens is not None,
        HAS_SINKS=call.sinks is not None,
        STAGES=STAGES if is_narrow else WIDE_STAGES,
        num_warps=WARPS,
    )


def find_stands(call: ExtendCall) -> Tensor:
    """Position that each masked token stands at: behind the row's start by the tokens of its row that it sees."""
    mask, rows = call.mask, call.rows
    if mask is None:
        raise ValueError("without a mask a token stands where it lies")
    tokens = torch.arange(len(mask), device=mask.device)
    row = torch.searchsorted(rows.row_offsets, tokens, right=True) - 1
    is_own = torch.arange(mask.shape[1], device=mask.device) < rows.row_tokens[row][:, None]
    return (rows.start_tokens[row] - 1 + (mask & is_own).sum(1)).to(torch.int32)
