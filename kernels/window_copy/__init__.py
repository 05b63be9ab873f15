"""The last window of a sequence, out of and into the ring of pages that a sliding-window layer keeps.

Position p lies in page `ring_pages[(p // page_tokens) % len(ring_pages)]`, at place `p % page_tokens`.
"""

from torch import Tensor

from kernels.checks import check_apart, check_distinct, check_index, check_layers, check_like
from kernels.dispatch import check_devices, implementation
from kernels.errors import ShapeMismatch
from kernels.layer_table import Layers, any_tensor

__all__ = ["window_gather", "window_scatter"]


def window_gather(
    pool: Layers, ring_pages: Tensor, *, end_token: int, window_tokens: int, out: Tensor | None = None
) -> Tensor:
    """Pack the last `min(window_tokens, end_token)` tokens before `end_token`, oldest first.

    Args:
        pool: [layers, pages, page_tokens, *row], contiguous, or a table of layers; any dtype.
        ring_pages: The sequence's ring, [ring], int32 or int64.
        end_token: Length of the sequence.
        window_tokens: How far back.
        out: Written when given: [layers, min(window_tokens, end_token), *row].

    Returns:
        `out`, or a new tensor of that shape.

    Raises:
        ShapeMismatch: The ring is shorter than the pages that the window touches, or dimensions do not fit.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A page is not one of the pool's.

    Cost: 2 * out.nbytes of memory traffic; one launch; no sync.
    Reference: kernels/window_copy/reference.py.
    """
    if window_tokens < 0:
        raise ShapeMismatch(f"a window of {window_tokens} tokens")
    tail_tokens = max(0, min(window_tokens, end_token))
    _check(pool, ring_pages, end_token, tail_tokens)
    shape = (pool.shape[0], tail_tokens, *pool.shape[3:])
    if out is None:
        out = any_tensor(pool).new_empty(shape)
    check_like("out", out, shape, pool.dtype)
    check_devices(pool=any_tensor(pool), ring_pages=ring_pages, out=out)
    check_apart(("out",), pool=pool, out=out)
    implementation("window_copy", any_tensor(pool)).window_gather(pool, ring_pages, end_token, out)
    return out


def window_scatter(tail: Tensor, ring_pages: Tensor, pool: Layers, *, end_token: int) -> None:
    """Write the last tokens before `end_token` into the ring; all else in the pool stays bit-identical.

    Args:
        tail: [layers, tail_tokens, *row], contiguous, oldest first.
        ring_pages: The sequence's ring, [ring], int32 or int64, no page twice.
        pool: [layers, pages, page_tokens, *row], contiguous, or a table of layers; written in place.
        end_token: Length of the sequence.

    Errors and cost as `window_gather`.
    """
    if tail.dim() < 3:
        raise ShapeMismatch(f"tail is {tuple(tail.shape)}, not [layers, tail_tokens, *row]")
    _check(pool, ring_pages, end_token, tail.shape[1])
    check_like("tail", tail, (pool.shape[0], tail.shape[1], *pool.shape[3:]), pool.dtype)
    check_distinct("ring_pages", ring_pages)
    check_devices(tail=tail, ring_pages=ring_pages, pool=any_tensor(pool))
    check_apart(("pool",), tail=tail, pool=pool)
    implementation("window_copy", any_tensor(pool)).window_scatter(tail, ring_pages, pool, end_token)


def _check(pool: Layers, ring_pages: Tensor, end_token: int, tail_tokens: int) -> None:
    check_layers("pool", pool, dims=4)
    page_tokens = pool.shape[2]
    check_index("ring_pages", ring_pages, limit=pool.shape[1])
    start_token = end_token - tail_tokens
    if start_token < 0:
        raise ShapeMismatch(f"{tail_tokens} tokens do not end at {end_token}")
    touched = -(-end_token // page_tokens) - start_token // page_tokens if tail_tokens else 0
    if touched > len(ring_pages):
        raise ShapeMismatch(f"tokens {start_token}..{end_token} touch {touched} pages, the ring has {len(ring_pages)}")
