"""Plain torch: row by row, its pages read and attended to whole under a mask."""

import torch
from torch import Tensor

from kernels.attention_reference import attend, read_pages
from kernels.paged_extend_attention.call import ExtendCall


def paged_extend_attention(call: ExtendCall, out: Tensor, lse: Tensor) -> None:
    """See `kernels.paged_extend_attention.paged_extend_attention_with_lse`; the arguments are checked there."""
    rows = call.rows
    offsets, ends = rows.row_offsets.tolist(), rows.end_tokens.tolist()
    for row, end_token in enumerate(ends):
        span = slice(offsets[row], offsets[row + 1])
        if span.start == span.stop:
            continue
        pages = rows.page_table[row, : -(-end_token // rows.page_tokens)]
        queries = call.queries[span]
        keys = read_pages(call.key_pool, pages, end_token, queries.dtype, 1.0)
        values = read_pages(call.value_pool, pages, end_token, queries.dtype, call.value_scale)
        mask = None if call.mask is None else call.mask[span]
        visible = find_visible(len(queries), end_token, call.window_tokens, mask, queries.device)
        out[span], lse[span] = attend(queries, keys, values, visible, call.scale, call.sinks)


def find_visible(
    new_tokens: int, end_token: int, window_tokens: int | None, mask: Tensor | None, device: torch.device
) -> Tensor:
    """Which position each of the last `new_tokens` before `end_token` sees, [new_tokens, end_token]."""
    start_token = end_token - new_tokens
    positions = torch.arange(end_token, device=device)
    if mask is None:
        stands_at = torch.arange(start_token, end_token, device=device)
        visible = positions <= stands_at[:, None]
    else:
        stands_at = start_token - 1 + mask[:, :new_tokens].sum(1)
        visible = torch.cat((mask.new_ones(new_tokens, start_token), mask[:, :new_tokens]), dim=1)
        if window_tokens is not None:
            # Drafted tokens that are seen are a path of the tree; the window counts along it.
            depth = torch.cat((torch.zeros(start_token, dtype=torch.long, device=device), mask[:, :new_tokens].sum(1)))
            positions = torch.where(positions < start_token, positions, start_token - 1 + depth)
    return visible if window_tokens is None else visible & (positions > stands_at[:, None] - window_tokens)
