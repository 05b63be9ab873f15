"""Decode attention in Triton: programs share all tiles evenly, and a second launch merges what they found.

Tiles of all sequences stand in one line (`tile_offsets`). Program c of C takes tiles `[c * T // C, (c + 1) * T // C)`
of T, whichever sequences they belong to, and leaves one partial result a sequence that it met, at place `c + sequence`:
both numbers only grow along the line, so no two partials share a place.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.index_build import TILE_TOKENS
from kernels.paged_decode_attention.call import DecodeCall
from kernels.paged_tiles import load_pages
from kernels.processors import count_processors

#: Programs that a multiprocessor holds at once, and the shared memory that they have in all.
PROGRAMS, WIDE_PROGRAMS, SHARED_BYTES = 3, 2, 224 * 1024
#: Up to this many bytes of a token's key, `PROGRAMS`; above it `WIDE_PROGRAMS`.
_NARROW_ROW_BYTES = 256
#: Shared memory of a program beside its tiles in flight.
_KEPT_BYTES = 8 * 1024
#: Programs in the interpreter: a few, so that contexts are split.
INTERPRETED_PROGRAMS = 3
#: Partials that are merged at once.
MERGED_PARTS = 16
#: Query heads of a group are padded to as many rows as a matrix unit takes.
_LEAST_ROWS = 16
_UNBOUNDED = 2**31 - 1
#: Stands for the logarithm of nothing: below any other, and its difference to itself is 0.
LOWEST = -1e30

_RUNTIME = ["sequences", "table_stride", "window_tokens", "scale"]
_INDICES = ["page_ids", "page_offsets", "seq_lens", "tile_offsets"]


@triton.jit(do_not_specialize=_RUNTIME, do_not_specialize_on_alignment=_INDICES)
def decode_kernel(
    queries: tl.tensor,
    key_pool: tl.tensor,
    value_pool: tl.tensor,
    page_ids: tl.tensor,
    page_offsets: tl.tensor,
    seq_lens: tl.tensor,
    tile_offsets: tl.tensor,
    partials: tl.tensor,
    partial_lses: tl.tensor,
    sequences: tl.tensor,
    table_stride: tl.tensor,
    window_tokens: tl.tensor,
    scale: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    TILE: tl.constexpr,
    IS_LIST: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    """Take this program's tiles, sequence by sequence, for one key head and the query heads that share it."""
    program, head = tl.program_id(0), tl.program_id(1)
    total = tl.load(tile_offsets + sequences).to(tl.int64)
    tile = (program * total // tl.num_programs(0)).to(tl.int32)
    last = ((program + 1) * total // tl.num_programs(0)).to(tl.int32)
    sequence = _find_sequence(tile_offsets, sequences, tile)
    row, lane = tl.arange(0, ROWS), tl.arange(0, DIM)
    in_group, in_head = row < GROUP, lane < HEAD_DIM
    while tile < last:
        first_tile, end_tile = tl.load(tile_offsets + sequence), tl.load(tile_offsets + sequence + 1)
        end_tile = tl.minimum(end_tile, last)
        if tile < end_tile:
            length = tl.load(seq_lens + sequence).to(tl.int32)
            first_token = tl.maximum(length - window_tokens, 0)
            skipped = first_token // TILE - first_tile
            if IS_LIST:
                pages = page_ids + tl.load(page_offsets + sequence).to(tl.int64)
            else:
                pages = page_ids + sequence.to(tl.int64) * table_stride
            query_at = (sequence.to(tl.int64) * KV_HEADS + head) * GROUP + row
            query = tl.load(
                queries + query_at[:, None] * HEAD_DIM + lane[None, :],
                mask=in_group[:, None] & in_head[None, :],
                other=0.0,
            )  # [ROWS, DIM]
            summed = tl.zeros((ROWS, DIM), dtype=tl.float32)
            most, weight = tl.full((ROWS,), -1e30, dtype=tl.float32), tl.zeros((ROWS,), dtype=tl.float32)
            # Pages are read a tile ahead, so that keys and values can be asked for before they are needed.
            page = load_pages(pages, tile + skipped, length, PAGE_TOKENS, TILE)
            for one in tl.range(tile + skipped, end_tile + skipped, num_stages=STAGES):
                token = one * TILE + tl.arange(0, TILE)  # [TILE]
                is_seen = (token < length) & (token >= first_token)
                slot = page.to(tl.int64) * PAGE_TOKENS + token % PAGE_TOKENS
                at = ((slot * KV_HEADS + head) * HEAD_DIM)[:, None] + lane[None, :]  # [TILE, DIM]
                is_read = is_seen[:, None] & in_head[None, :]
                key = tl.load(key_pool + at, mask=is_read, other=0.0).to(query.dtype)
                score = tl.dot(query, tl.trans(key), input_precision="ieee") * (scale * 1.4426950408889634)
                score = tl.where(is_seen[None, :], score, -1e30)  # [ROWS, TILE]
                higher = tl.maximum(most, tl.max(score, 1))
                share = tl.exp2(score - higher[:, None])
                kept = tl.exp2(most - higher)
                value = tl.load(value_pool + at, mask=is_read, other=0.0).to(query.dtype)
                weight = weight * kept + tl.sum(share, 1)
                summed = summed * kept[:, None]
                summed = tl.dot(share.to(query.dtype), value, summed, input_precision="ieee")
                most = higher
                page = load_pages(pages, one + 1, length, PAGE_TOKENS, TILE)
            place = (program + sequence).to(tl.int64) * (KV_HEADS * GROUP) + head * GROUP + row
            is_kept = in_group[:, None] & in_head[None, :]
            tl.store(partials + place[:, None] * HEAD_DIM + lane[None, :], summed / weight[:, None], mask=is_kept)
            tl.store(partial_lses + place, most * 0.6931471805599453 + tl.log(weight), mask=in_group)
            tile = end_tile
        sequence += 1


@triton.jit
def _find_sequence(tile_offsets: tl.tensor, sequences: tl.tensor, tile: tl.tensor) -> tl.tensor:
    """The sequence that a tile belongs to: the last one that does not begin after it."""
    low, high = sequences * 0, sequences
    while low < high:
        middle = (low + high) // 2
        if tl.load(tile_offsets + middle + 1) <= tile:
            low = middle + 1
        else:
            high = middle
    return low


@triton.jit(do_not_specialize=["programs", "sequences", "value_scale"], do_not_specialize_on_alignment=["tile_offsets"])
def decode_merge_kernel(
    partials: tl.tensor,
    partial_lses: tl.tensor,
    tile_offsets: tl.tensor,
    sinks: tl.tensor,
    out: tl.tensor,
    lse: tl.tensor,
    programs: tl.tensor,
    sequences: tl.tensor,
    value_scale: tl.tensor,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    PARTS: tl.constexpr,
    HAS_SINKS: tl.constexpr,
) -> None:
    """Merge the partials of one sequence and query head: those of the programs from its first tile's to its last's."""
    sequence, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first, end = tl.load(tile_offsets + sequence).to(tl.int64), tl.load(tile_offsets + sequence + 1).to(tl.int64)
    total = tl.maximum(tl.load(tile_offsets + sequences).to(tl.int64), 1)
    lane = tl.arange(0, DIM)
    merged = tl.zeros((DIM,), dtype=tl.float32)
    most, weight = tl.full((1,), -1e30, dtype=tl.float32), tl.zeros((1,), dtype=tl.float32)
    if HAS_SINKS:
        most, weight = tl.load(sinks + head + tl.arange(0, 1)), weight + 1.0
    if first < end:
        first_program, last_program = ((first + 1) * programs - 1) // total, (end * programs - 1) // total
        for start in range(first_program, last_program + 1, PARTS):
            part = start + tl.arange(0, PARTS)  # [PARTS]
            # Of more programs than tiles some have none, and leave no partial.
            is_there = (part <= last_program) & (part * total // programs < (part + 1) * total // programs)
            at = (part + sequence) * heads + head
            share = tl.load(partial_lses + at, mask=is_there, other=-1e30)
            is_read = is_there[:, None] & (lane < HEAD_DIM)[None, :]
            value = tl.load(partials + at[:, None] * HEAD_DIM + lane[None, :], mask=is_read, other=0.0)
            higher = tl.maximum(most, tl.max(share, 0))  # [1]
            kept = tl.exp(most - higher)
            share = tl.exp(share - higher)
            weight = weight * kept + tl.sum(share, 0)
            merged = merged * kept + tl.sum(value * share[:, None], 0)
            most = higher
    is_any = weight != 0.0  # so of no number too, which has to show
    weight = tl.where(is_any, weight, 1.0)
    at = sequence.to(tl.int64) * heads + head
    merged = merged / weight * value_scale
    tl.store(out + at * HEAD_DIM + lane, merged.to(out.dtype.element_ty), mask=lane < HEAD_DIM)
    tl.store(lse + at + tl.arange(0, 1), tl.where(is_any, most + tl.log(weight), float("-inf")))


def paged_decode_attention(call: DecodeCall, out: Tensor, lse: Tensor) -> None:
    """See `kernels.paged_decode_attention.paged_decode_attention_with_lse`; the arguments are checked there."""
    sequences, heads, head_dim = call.queries.shape
    kv_heads, page_tokens = call.key_pool.shape[2], call.key_pool.shape[1]
    if not call.queries.numel():
        return
    dim = max(16, triton.next_power_of_2(head_dim))
    row_bytes = dim * call.key_pool.element_size()
    programs = count_programs(call.queries.device, kv_heads, row_bytes)
    partials = torch.empty((programs + sequences, heads, head_dim), dtype=torch.float32, device=out.device)
    partial_lses = torch.empty((programs + sequences, heads), dtype=torch.float32, device=out.device)
    is_list = call.page_offsets is not None
    decode_kernel[(programs, kv_heads)](
        call.queries,
        call.key_pool,
        call.value_pool,
        call.page_ids,
        call.page_offsets if is_list else call.page_ids,
        call.seq_lens,
        call.tile_offsets,
        partials,
        partial_lses,
        sequences,
        0 if is_list else call.page_ids.stride(0),
        _UNBOUNDED if call.window_tokens is None else call.window_tokens,
        float(call.scale),
        KV_HEADS=kv_heads,
        GROUP=heads // kv_heads,
        ROWS=max(_LEAST_ROWS, triton.next_power_of_2(heads // kv_heads)),
        HEAD_DIM=head_dim,
        DIM=dim,
        PAGE_TOKENS=page_tokens,
        TILE=TILE_TOKENS,
        IS_LIST=is_list,
        STAGES=choose_stages(row_bytes),
        num_warps=4,
    )
    decode_merge_kernel[(sequences, heads)](
        partials,
        partial_lses,
        call.tile_offsets,
        call.sinks if call.sinks is not None else partial_lses,
        out,
        lse,
        programs,
        sequences,
        float(call.value_scale),
        HEAD_DIM=head_dim,
        DIM=dim,
        PARTS=MERGED_PARTS,
        HAS_SINKS=call.sinks is not None,
        num_warps=4,
    )


def count_programs(device: torch.device, kv_heads: int, row_bytes: int) -> int:
    """Programs a key head, so that all of them fill the device once."""
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return max(1, count_processors(device) * _count_resident(row_bytes) // kv_heads)


def _count_resident(row_bytes: int) -> int:
    return PROGRAMS if row_bytes <= _NARROW_ROW_BYTES else WIDE_PROGRAMS


def choose_stages(row_bytes: int) -> int:
    """Stages of the loop, one more than tiles are in flight: as many as leave room for the programs beside."""
    free_bytes = SHARED_BYTES // _count_resident(row_bytes) - _KEPT_BYTES
    return 1 + max(1, min(3, free_bytes // (2 * TILE_TOKENS * row_bytes)))
