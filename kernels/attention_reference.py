"""Attention of one sequence in plain torch, unpaged: what the references of the paged ops are built of."""

import torch
from torch import Tensor

#: Queries whose scores are held at once.
_QUERIES_AT_ONCE = 256


def read_pages(pool: Tensor, pages: Tensor, tokens: int, dtype: torch.dtype, scale: float) -> Tensor:
    """The first `tokens` tokens of `pages`, [tokens, kv_heads, head_dim], in the dtype of the computation."""
    rows = pool[pages.long()].flatten(0, 1)[:tokens]
    return rows if rows.dtype == dtype else (rows.float() * scale).to(dtype)


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scale: float, sinks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention and the logarithm of its softmax's sum, computed in float32.

    Args:
        queries: [new, query_heads, head_dim].
        keys: [context, kv_heads, head_dim]; what no query sees may be anything.
        values: Same shape.
        visible: Which key each query sees, [new, context]; one that sees none gets zeros, and -inf.
        scale: Factor on the scores.
        sinks: A score of each query head that counts in the sum and has no value, [query_heads].

    Returns:
        [new, query_heads, head_dim] in the queries' dtype, and [new, query_heads] in float32.
    """
    is_seen = visible.any(0)[:, None, None]
    keys, values = (torch.where(is_seen, rows.float(), 0.0) for rows in (keys, values))
    parts = [
        _attend(*part, keys, values, scale, sinks)
        for part in zip(torch.split(queries, _QUERIES_AT_ONCE), torch.split(visible, _QUERIES_AT_ONCE), strict=True)
    ]
    out, lse = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
    return out.to(queries.dtype), lse


def _attend(
    queries: Tensor, visible: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None
) -> tuple[Tensor, Tensor]:
    new, _, head_dim = queries.shape
    grouped = queries.float().reshape(new, keys.shape[1], -1, head_dim)  # [new, kv_heads, group, head_dim]
    scores = torch.einsum("nkgd,ckd->nkgc", grouped, keys) * scale
    scores = scores.masked_fill(~visible[:, None, None, :], -torch.inf).flatten(1, 2)
    terms = scores if sinks is None else torch.cat((scores, sinks.float()[None, :, None].expand(len(scores), -1, 1)), 2)
    lse = torch.logsumexp(terms, dim=-1)
    weights = torch.exp(scores - torch.where(lse == -torch.inf, 0.0, lse)[..., None])
    out = torch.einsum("nkgc,ckd->nkgd", weights.reshape(*grouped.shape[:3], len(keys)), values)
    return out.flatten(1, 2), lse
