"""Row copies between a pool and pages of which the layers lie within; heads are groups where the layout is unified."""

from math import prod

from torch import Tensor

from kernels.layer_table import Layers
from kernels.row_copy.kernel import launch_row_copy
from kernels.row_copy.plan import RowCopy, Side


def to_page_first(pool: Layers, page_ids: Tensor, out: Tensor, programs: int | None) -> None:
    """See `kernels.page_layout.to_page_first`; the arguments are checked there."""
    _copy_page_first(_pool_side(pool, page_ids), out, pool, is_out=True, programs=programs)


def from_page_first(pages: Tensor, page_ids: Tensor, pool: Layers, programs: int | None) -> None:
    """See `kernels.page_layout.from_page_first`; the arguments are checked there."""
    _copy_page_first(_pool_side(pool, page_ids), pages, pool, is_out=False, programs=programs)


def to_unified(pool: Layers, page_ids: Tensor, out: Tensor, programs: int | None) -> None:
    """See `kernels.page_layout.to_unified`; the arguments are checked there."""
    _copy_unified(pool, page_ids, out, is_out=True, programs=programs)


def from_unified(pages: Tensor, page_ids: Tensor, pool: Layers, programs: int | None) -> None:
    """See `kernels.page_layout.from_unified`; the arguments are checked there."""
    _copy_unified(pool, page_ids, pages, is_out=False, programs=programs)


def _pool_side(pool: Layers, page_ids: Tensor) -> Side:
    page = prod(pool.shape[2:])
    return Side(pool, layer_stride=pool.shape[1] * page, page_stride=page, row_stride=page, index=page_ids)


def _copy_page_first(pooled: Side, pages: Tensor, pool: Layers, *, is_out: bool, programs: int | None) -> None:
    page = prod(pool.shape[2:])
    packed = Side(pages, layer_stride=page, page_stride=len(pool) * page, row_stride=page)
    copy = RowCopy(
        source=pooled if is_out else packed,
        target=packed if is_out else pooled,
        layers=len(pool),
        pages=len(pages),
        page_rows=1,
        row_elements=page,
    )
    launch_row_copy(copy, programs=programs)


def _copy_unified(pool: Layers, page_ids: Tensor, pages: Tensor, *, is_out: bool, programs: int | None) -> None:
    groups, layers, page_tokens, heads, head_dim = pages.shape[1:]
    row = heads * head_dim
    part = page_tokens * row
    pooled = Side(
        pool,
        layer_stride=pool.shape[1] * part * groups,
        group_stride=row,
        page_stride=part * groups,
        row_stride=row * groups,
        index=page_ids,
    )
    packed = Side(
        pages,
        layer_stride=part,
        group_stride=layers * part,
        page_stride=groups * layers * part,
        row_stride=row,
    )
    copy = RowCopy(
        source=pooled if is_out else packed,
        target=packed if is_out else pooled,
        layers=layers,
        groups=groups,
        pages=len(pages),
        page_rows=page_tokens,
        row_elements=row,
    )
    launch_row_copy(copy, programs=programs)
