"""Plain torch: gather a row's pages, then scaled dot-product attention under a causal mask that ends at the corner."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kernels.paged_rows import PagedRows


def paged_extend_attention_reference(
    queries: Tensor, key_pool: Tensor, value_pool: Tensor, rows: PagedRows, *, scale: float
) -> Tensor:
    """See `kernels.paged_extend_attention.paged_extend_attention`; the arguments are checked there."""
    out = torch.empty_like(queries)
    offsets, ends = rows.row_offsets.tolist(), rows.end_tokens.tolist()
    for row, end_token in enumerate(ends):
        span = slice(offsets[row], offsets[row + 1])
        if span.start == span.stop:
            continue
        pages = rows.page_table[row, : -(-end_token // rows.page_tokens)]
        keys, values = (pool[pages].flatten(0, 1)[:end_token] for pool in (key_pool, value_pool))
        out[span] = _attend(queries[span], keys, values, scale)
    return out


def _attend(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """One row: [new, query_heads, head_dim] over [context, kv_heads, head_dim]; the last query sees every key."""
    group = queries.shape[1] // keys.shape[1]
    keys, values = (heads.repeat_interleave(group, dim=1).transpose(0, 1)[None] for heads in (keys, values))
    new_tokens, context_tokens = queries.shape[0], keys.shape[2]
    mask = None
    if new_tokens > 1:
        visible = torch.ones(new_tokens, context_tokens, dtype=torch.bool, device=queries.device)
        mask = visible.tril(context_tokens - new_tokens)
    attended = scaled_dot_product_attention(queries.transpose(0, 1)[None], keys, values, attn_mask=mask, scale=scale)
    return attended[0].transpose(0, 1)
