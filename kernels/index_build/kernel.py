"""Index building in Triton: a program a sequence, which sums what lies before it itself, so that one launch will do."""

import triton
import triton.language as tl
from torch import Tensor

from kernels.index_build.indices import TILE_TOKENS, DecodeIndices

#: Lengths, or pages, that a program looks at once.
BLOCK = 1024
_RUNTIME = ["sequences", "table_stride", "page_tokens", "window_tokens"]
_INDICES = ["page_table", "request_ids", "seq_lens", "page_ids", "page_offsets", "tile_offsets", "slots"]


@triton.jit(do_not_specialize=_RUNTIME, do_not_specialize_on_alignment=_INDICES)
def index_build_kernel(
    page_table: tl.tensor,
    request_ids: tl.tensor,
    seq_lens: tl.tensor,
    page_ids: tl.tensor,
    page_offsets: tl.tensor,
    tile_offsets: tl.tensor,
    slots: tl.tensor,
    sequences: tl.tensor,
    table_stride: tl.tensor,
    page_tokens: tl.tensor,
    window_tokens: tl.tensor,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    WITH_PAGES: tl.constexpr,
) -> None:
    """Write one sequence's offsets, and copy its pages; the last writes the totals."""
    sequence = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    pages_before, tiles_before = tl.zeros((BLOCK,), dtype=tl.int64), tl.zeros((BLOCK,), dtype=tl.int64)
    pages_through, tiles_through = tl.zeros((BLOCK,), dtype=tl.int64), tl.zeros((BLOCK,), dtype=tl.int64)
    for start in range(0, tl.minimum(sequence + 1, sequences), BLOCK):
        other = start + lane
        length = tl.load(seq_lens + other, mask=(other <= sequence) & (other < sequences), other=0).to(tl.int64)
        tiles = (length + TILE - 1) // TILE - tl.maximum(length - window_tokens, 0) // TILE
        pages = (length + page_tokens - 1) // page_tokens
        tiles_through += tiles
        pages_through += pages
        tiles_before += tl.where(other < sequence, tiles, 0)
        pages_before += tl.where(other < sequence, pages, 0)
    first_tile, first_page = tl.sum(tiles_before, 0), tl.sum(pages_before, 0)
    tl.store(tile_offsets + sequence, first_tile.to(tl.int32))
    if sequence + 1 == sequences:
        tl.store(tile_offsets + sequences, tl.sum(tiles_through, 0).to(tl.int32))
    if WITH_PAGES:
        tl.store(page_offsets + sequence, first_page.to(tl.int32))
        if sequence + 1 == sequences:
            tl.store(page_offsets + sequences, tl.sum(pages_through, 0).to(tl.int32))
        if sequence < sequences:
            length = tl.load(seq_lens + sequence).to(tl.int64)
            line = page_table + tl.load(request_ids + sequence).to(tl.int64) * table_stride
            count = (length + page_tokens - 1) // page_tokens
            for first in range(0, count, BLOCK):
                place = first + lane
                page = tl.load(line + place, mask=place < count)
                tl.store(page_ids + first_page + place, page, mask=place < count)
            last = tl.maximum(length - 1, 0)
            page = tl.load(line + last // page_tokens, mask=length > 0, other=0).to(tl.int64)
            tl.store(slots + sequence, tl.where(length > 0, page * page_tokens + last % page_tokens, -1))


def build_decode_indices(
    page_table: Tensor,
    request_ids: Tensor,
    seq_lens: Tensor,
    page_tokens: int,
    window_tokens: int | None,
    out: DecodeIndices,
) -> None:
    """See `kernels.index_build.build_decode_indices`; the arguments are checked there."""
    index_build_kernel[(max(len(seq_lens), 1),)](
        page_table,
        request_ids,
        seq_lens,
        out.page_ids,
        out.page_offsets,
        out.tile_offsets,
        out.slots,
        len(seq_lens),
        page_table.stride(0),
        page_tokens,
        _UNBOUNDED if window_tokens is None else window_tokens,
        TILE=TILE_TOKENS,
        BLOCK=BLOCK,
        WITH_PAGES=True,
        num_warps=4,
    )


def build_split_plan(seq_lens: Tensor, window_tokens: int | None, out: Tensor) -> None:
    """See `kernels.index_build.build_split_plan`; the arguments are checked there."""
    index_build_kernel[(max(len(seq_lens), 1),)](
        seq_lens,
        seq_lens,
        seq_lens,
        out,
        out,
        out,
        out,
        len(seq_lens),
        0,
        1,
        _UNBOUNDED if window_tokens is None else window_tokens,
        TILE=TILE_TOKENS,
        BLOCK=BLOCK,
        WITH_PAGES=False,
        num_warps=4,
    )


#: A window that no sequence fills.
_UNBOUNDED = 2**31 - 1
