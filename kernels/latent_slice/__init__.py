"""Share out a KV that every tensor-parallel rank holds whole, such as a latent one, so that it moves only once.

Rank r of n takes the r-th of every n pages; after an all-gather the slices are interleaved again.
"""

from torch import Tensor

from kernels.checks import check_apart, check_distinct, check_index, check_layers, check_like
from kernels.dispatch import check_devices, implementation
from kernels.errors import ShapeMismatch
from kernels.layer_table import Layers, any_tensor

__all__ = ["latent_interleave", "latent_slice"]


def latent_slice(pool: Layers, page_ids: Tensor, *, rank: int, ranks: int, out: Tensor | None = None) -> Tensor:
    """Pack pages `page_ids[rank::ranks]` of every layer.

    Args:
        pool: [layers, pages, *page], contiguous, or a table of layers; any dtype.
        page_ids: Pages of the whole sequence in order, [n], int32 or int64.
        rank: Whose part.
        ranks: Of how many.
        out: Written when given: [layers, ceil((n - rank) / ranks), *page].

    Returns:
        `out`, or a new tensor of that shape.

    Raises:
        ShapeMismatch: No such rank, dimensions do not fit, or `out` overlaps the pool.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A page is not one of the pool's.

    Cost: 2 * out.nbytes of memory traffic; one launch; no sync.
    Reference: kernels/latent_slice/reference.py.
    """
    check_layers("pool", pool, dims=3)
    if not 0 <= rank < ranks:
        raise ShapeMismatch(f"rank {rank} of {ranks}")
    check_index("page_ids", page_ids, limit=pool.shape[1])
    shape = (pool.shape[0], len(range(rank, len(page_ids), ranks)), *pool.shape[2:])
    if out is None:
        out = any_tensor(pool).new_empty(shape)
    check_like("out", out, shape, pool.dtype)
    check_devices(pool=any_tensor(pool), page_ids=page_ids, out=out)
    check_apart(("out",), pool=pool, out=out)
    implementation("latent_slice", any_tensor(pool)).latent_slice(pool, page_ids, rank, ranks, out)
    return out


def latent_interleave(slices: Tensor, page_ids: Tensor, pool: Layers) -> None:
    """Write the gathered slices to the pages of the sequence; all else in the pool stays bit-identical.

    Args:
        slices: What the ranks packed, [ranks, layers, ceil(n / ranks), *page], contiguous; behind the end of a rank
            that had a page less lies whatever the all-gather left there, which is not read.
        page_ids: Pages of the whole sequence in order, [n], int32 or int64, none twice.
        pool: [layers, pages, *page], contiguous, or a table of layers; written in place.

    Errors and cost as `latent_slice`.
    """
    check_layers("pool", pool, dims=3)
    if slices.dim() < 4 or len(slices) < 1:
        raise ShapeMismatch(f"slices are {tuple(slices.shape)}, not [ranks, layers, pages, *page]")
    ranks = len(slices)
    check_index("page_ids", page_ids, limit=pool.shape[1])
    check_like("slices", slices, (ranks, pool.shape[0], -(-len(page_ids) // ranks), *pool.shape[2:]), pool.dtype)
    check_distinct("page_ids", page_ids)
    check_devices(slices=slices, page_ids=page_ids, pool=any_tensor(pool))
    check_apart(("pool",), slices=slices, pool=pool)
    implementation("latent_slice", any_tensor(pool)).latent_interleave(slices, page_ids, pool)
