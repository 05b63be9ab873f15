"""Plain torch: running sums, and a list of pages a sequence."""

import torch
from torch import Tensor

from kernels.index_build.indices import TILE_TOKENS, DecodeIndices


def build_decode_indices(
    page_table: Tensor,
    request_ids: Tensor,
    seq_lens: Tensor,
    page_tokens: int,
    window_tokens: int | None,
    out: DecodeIndices,
) -> None:
    """See `kernels.index_build.build_decode_indices`; the arguments are checked there."""
    pages = (seq_lens + page_tokens - 1) // page_tokens
    _sum_before(pages, out.page_offsets)
    build_split_plan(seq_lens, window_tokens, out.tile_offsets)
    for number, count in enumerate(pages.tolist()):
        start, request = int(out.page_offsets[number]), int(request_ids[number])
        out.page_ids[start : start + count] = page_table[request, :count]
        last = int(seq_lens[number]) - 1
        is_empty = last < 0
        out.slots[number] = (
            -1 if is_empty else page_table[request, last // page_tokens] * page_tokens + last % page_tokens
        )


def build_split_plan(seq_lens: Tensor, window_tokens: int | None, out: Tensor) -> None:
    """See `kernels.index_build.build_split_plan`; the arguments are checked there."""
    starts = torch.zeros_like(seq_lens) if window_tokens is None else (seq_lens - window_tokens).clamp(min=0)
    _sum_before((seq_lens + TILE_TOKENS - 1) // TILE_TOKENS - starts // TILE_TOKENS, out)


def _sum_before(counts: Tensor, out: Tensor) -> None:
    out[0] = 0
    out[1:] = counts.cumsum(0)
