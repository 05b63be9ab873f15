"""Move KV between ranks of two tensor-parallel sizes: a slice of heads out of pages, and slices of heads into pages.

From p to d ranks: where p > d, each decode rank takes whole staging of p / d writers and lays their heads side by side
(`scatter_heads`); where p < d, each prefill rank packs for every reader the d-th part of its heads (`gather_heads`).
"""

from torch import Tensor

from kernels.checks import check_apart, check_distinct, check_index, check_layers, check_like
from kernels.dispatch import check_devices, implementation
from kernels.errors import ShapeMismatch
from kernels.layer_table import Layers, any_tensor

__all__ = ["gather_heads", "scatter_heads"]


def gather_heads(
    pool: Layers,
    page_ids: Tensor,
    *,
    first_head: int,
    heads: int,
    start_token: int,
    end_token: int,
    out: Tensor | None = None,
) -> Tensor:
    """Pack heads `[first_head, first_head + heads)` of tokens `[start_token, end_token)` of a sequence.

    Args:
        pool: [layers, pages, page_tokens, kv_heads, head_dim], contiguous, or a table of layers; any dtype.
        page_ids: Pages of the whole sequence in order, [n], int32 or int64.
        first_head: First head taken.
        heads: How many.
        start_token: First position taken; need not be the first of a page.
        end_token: Position after the last one.
        out: Written when given: [layers, end_token - start_token, heads, head_dim].

    Returns:
        `out`, or a new tensor of that shape.

    Raises:
        ShapeMismatch: The tokens do not lie in `page_ids`, the heads not in the pool, or `out` overlaps it.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A page is not one of the pool's.

    Cost: 2 * out.nbytes of memory traffic; one launch; no sync.
    Reference: kernels/head_reshard/reference.py.
    """
    _check(pool, page_ids, first_head, heads, start_token, end_token)
    shape = (pool.shape[0], end_token - start_token, heads, pool.shape[4])
    if out is None:
        out = any_tensor(pool).new_empty(shape)
    check_like("out", out, shape, pool.dtype)
    check_devices(pool=any_tensor(pool), page_ids=page_ids, out=out)
    check_apart(("out",), pool=pool, out=out)
    implementation("head_reshard", any_tensor(pool)).gather_heads(pool, page_ids, first_head, start_token, out)
    return out


def scatter_heads(staging: Tensor, page_ids: Tensor, pool: Layers, *, first_head: int, start_token: int) -> None:
    """Write what `writers` ranks packed, writer w's heads to `first_head + w * heads` and those after it.

    Tokens are `[start_token, start_token + tail_tokens)` of the sequence; all else in the pool stays bit-identical.

    Args:
        staging: [writers, layers, tail_tokens, heads, head_dim], contiguous.
        page_ids: Pages of the whole sequence in order, [n], int32 or int64, none twice.
        pool: [layers, pages, page_tokens, kv_heads, head_dim], contiguous, or a table of layers; written in place.
        first_head: Where the first writer's heads go.
        start_token: Position of staging row 0: what the decode rank had of the sequence before.

    Raises:
        ShapeMismatch: The tokens do not lie in `page_ids`, the heads not in the pool, or a page stands there twice.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A page is not one of the pool's.

    Cost: 2 * staging.nbytes of memory traffic; one launch; no sync.
    Reference: kernels/head_reshard/reference.py.
    """
    if staging.dim() != 5:
        raise ShapeMismatch(f"staging is {tuple(staging.shape)}, not [writers, layers, tail_tokens, heads, head_dim]")
    writers, _, tail_tokens, heads, _ = staging.shape
    _check(pool, page_ids, first_head, writers * heads, start_token, start_token + tail_tokens)
    check_like("staging", staging, (writers, pool.shape[0], tail_tokens, heads, pool.shape[4]), pool.dtype)
    check_distinct("page_ids", page_ids)
    check_devices(staging=staging, page_ids=page_ids, pool=any_tensor(pool))
    check_apart(("pool",), staging=staging, pool=pool)
    implementation("head_reshard", any_tensor(pool)).scatter_heads(staging, page_ids, pool, first_head, start_token)


def _check(pool: Layers, page_ids: Tensor, first_head: int, heads: int, start_token: int, end_token: int) -> None:
    check_layers("pool", pool, dims=5)
    if len(pool.shape) != 5:
        raise ShapeMismatch(f"pool is {tuple(pool.shape)}, not [layers, pages, page_tokens, kv_heads, head_dim]")
    _, pages, page_tokens, kv_heads, _ = pool.shape
    if first_head < 0 or heads < 0 or first_head + heads > kv_heads:
        raise ShapeMismatch(f"heads {first_head}..{first_head + heads} of {kv_heads}")
    check_index("page_ids", page_ids, limit=pages)
    if not 0 <= start_token <= end_token <= len(page_ids) * page_tokens:
        held = f"{len(page_ids)} pages of {page_tokens}"
        raise ShapeMismatch(f"tokens {start_token}..{end_token} do not lie in {held}")
