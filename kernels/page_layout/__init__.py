"""Turn pages between layer-first, as a pool holds them, and page-first, as a host tier or another rank takes them.

Page-first, [n, layers, *page]: all of a page lies together, so that one DMA or one file holds it.
Unified, [n, head_groups, layers, page_tokens, heads / head_groups, head_dim]: all that one rank of `head_groups` needs
of a page lies together. A pool given as K0, V0, K1, V1, ... makes that [n, groups, L, 2, page_tokens, heads, dim].
"""

from torch import Tensor

from kernels.checks import check_apart, check_distinct, check_index, check_layers, check_like
from kernels.dispatch import check_devices, implementation
from kernels.errors import ShapeMismatch
from kernels.layer_table import Layers, any_tensor

__all__ = ["from_page_first", "from_unified", "to_page_first", "to_unified"]


def to_page_first(pool: Layers, page_ids: Tensor, *, out: Tensor | None = None, programs: int | None = None) -> Tensor:
    """Pack pages, all layers of a page together.

    Args:
        pool: [layers, pages, *page], contiguous, or a table of layers; any dtype.
        page_ids: [n], int32 or int64.
        out: Written when given: [n, layers, *page]; pinned memory of the host will do.
        programs: At most so many programs of the GPU are taken: a few saturate a bus to the host, and leave the others
            to what computes meanwhile. Without it as many as there is work for.

    Returns:
        `out`, or a new tensor of that shape.

    Raises:
        ShapeMismatch: Dimensions do not fit, or `out` overlaps the pool.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A page is not one of the pool's.

    Cost: 2 * out.nbytes of memory traffic; one launch; no sync.
    Reference: kernels/page_layout/reference.py.
    """
    check_layers("pool", pool, dims=3)
    layers, _, *page = pool.shape
    if out is None:
        out = any_tensor(pool).new_empty((len(page_ids), layers, *page))
    _check(pool, page_ids, out, (len(page_ids), layers, *page), programs, written="pages")
    implementation("page_layout", any_tensor(pool), out).to_page_first(pool, page_ids, out, programs)
    return out


def from_page_first(pages: Tensor, page_ids: Tensor, pool: Layers, *, programs: int | None = None) -> None:
    """Write pages [n, layers, *page] to `page_ids` of the pool, none twice; all else stays bit-identical.

    Arguments, errors and cost as `to_page_first`, the other way round.
    """
    check_layers("pool", pool, dims=3)
    layers, _, *page = pool.shape
    _check(pool, page_ids, pages, (len(page_ids), layers, *page), programs, written="pool")
    check_distinct("page_ids", page_ids)
    implementation("page_layout", any_tensor(pool), pages).from_page_first(pages, page_ids, pool, programs)


def to_unified(
    pool: Layers, page_ids: Tensor, *, head_groups: int, out: Tensor | None = None, programs: int | None = None
) -> Tensor:
    """Pack pages, all that one group of heads needs of a page together.

    Args:
        pool: [layers, pages, page_tokens, heads, head_dim], contiguous, or a table of layers; any dtype.
        page_ids: [n], int32 or int64.
        head_groups: Divides heads; group g has heads `[g * heads / head_groups, (g + 1) * heads / head_groups)`.
        out: Written when given: [n, head_groups, layers, page_tokens, heads / head_groups, head_dim].
        programs: As of `to_page_first`.

    Returns:
        `out`, or a new tensor of that shape.

    Errors and cost as `to_page_first`.
    """
    shape = _unified_shape(pool, page_ids, head_groups)
    if out is None:
        out = any_tensor(pool).new_empty(shape)
    _check(pool, page_ids, out, shape, programs, written="pages")
    implementation("page_layout", any_tensor(pool), out).to_unified(pool, page_ids, out, programs)
    return out


def from_unified(pages: Tensor, page_ids: Tensor, pool: Layers, *, programs: int | None = None) -> None:
    """Write pages [n, head_groups, layers, page_tokens, heads / head_groups, head_dim] to `page_ids`, none twice.

    Arguments, errors and cost as `to_unified`, the other way round; all else stays bit-identical.
    """
    if pages.dim() != 6:
        raise ShapeMismatch(f"unified pages have 6 dimensions, these are {tuple(pages.shape)}")
    _check(pool, page_ids, pages, _unified_shape(pool, page_ids, pages.shape[1]), programs, written="pool")
    check_distinct("page_ids", page_ids)
    implementation("page_layout", any_tensor(pool), pages).from_unified(pages, page_ids, pool, programs)


def _unified_shape(pool: Layers, page_ids: Tensor, head_groups: int) -> tuple[int, ...]:
    check_layers("pool", pool, dims=5)
    if len(pool.shape) != 5:
        raise ShapeMismatch(f"pool is {tuple(pool.shape)}, not [layers, pages, page_tokens, heads, head_dim]")
    layers, _, page_tokens, heads, head_dim = pool.shape
    if head_groups < 1 or heads % head_groups:
        raise ShapeMismatch(f"{heads} heads do not make {head_groups} groups")
    return len(page_ids), head_groups, layers, page_tokens, heads // head_groups, head_dim


def _check(
    pool: Layers, page_ids: Tensor, pages: Tensor, shape: tuple[int, ...], programs: int | None, *, written: str
) -> None:
    check_index("page_ids", page_ids, limit=pool.shape[1])
    check_like("pages", pages, shape, pool.dtype)
    if programs is not None and programs < 1:
        raise ShapeMismatch(f"{programs} programs copy nothing")
    check_devices(pool=any_tensor(pool), page_ids=page_ids, pages=pages)
    check_apart((written,), pool=pool, pages=pages)
