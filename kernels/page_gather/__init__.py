"""Pack pages of all layers into one buffer, in one launch."""

from torch import Tensor

from kernels.checks import check_apart, check_index, check_layers, check_like
from kernels.dispatch import check_devices, implementation
from kernels.layer_table import Layers, any_tensor

__all__ = ["page_gather"]


def page_gather(pool: Layers, page_ids: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Copy `page_ids` of every layer, in their order.

    A page is whatever one index counts: with a pool seen as [layers, slots, kv_heads, head_dim], `page_ids` are slots.

    Args:
        pool: [layers, pages, *page], contiguous, or a table of layers; any dtype, copied bit by bit.
        page_ids: [n], int32 or int64, on the pool's device; one may stand there twice.
        out: Written when given: [layers, n, *page], contiguous, same dtype; pinned memory of the host will do.

    Returns:
        `out`, or a new tensor of that shape.

    Raises:
        ShapeMismatch: Dimensions do not fit, or `out` overlaps the pool.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A page is not one of the pool's.

    Cost: 2 * out.nbytes of memory traffic; one launch; no sync.
    Reference: kernels/page_gather/reference.py.
    """
    check_layers("pool", pool, dims=3)
    layers, pages, *page = pool.shape
    check_index("page_ids", page_ids, limit=pages)
    if out is None:
        out = any_tensor(pool).new_empty((layers, len(page_ids), *page))
    check_like("out", out, (layers, len(page_ids), *page), pool.dtype)
    check_devices(pool=any_tensor(pool), page_ids=page_ids, out=out)
    check_apart(("out",), pool=pool, out=out)
    implementation("page_gather", any_tensor(pool)).page_gather(pool, page_ids, out)
    return out
