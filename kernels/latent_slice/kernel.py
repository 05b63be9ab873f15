"""Row copies whose index is taken in steps of so many ranks; ranks are groups where slices are interleaved."""

from math import prod

from torch import Tensor

from kernels.layer_table import Layers
from kernels.row_copy.kernel import launch_row_copy
from kernels.row_copy.plan import RowCopy, Side


def latent_slice(pool: Layers, page_ids: Tensor, rank: int, ranks: int, out: Tensor) -> None:
    """See `kernels.latent_slice.latent_slice`; the arguments are checked there."""
    page = prod(pool.shape[2:])
    launch_row_copy(
        RowCopy(
            source=_pool_side(pool, page_ids[rank:], page),
            target=Side(out, layer_stride=out.shape[1] * page, page_stride=page, row_stride=page),
            layers=len(pool),
            pages=out.shape[1],
            page_rows=1,
            row_elements=page,
            index_step=ranks,
        )
    )


def latent_interleave(slices: Tensor, page_ids: Tensor, pool: Layers) -> None:
    """See `kernels.latent_slice.latent_interleave`; the arguments are checked there."""
    ranks, layers, slice_pages = slices.shape[:3]
    page = prod(pool.shape[2:])
    packed = Side(
        slices,
        layer_stride=slice_pages * page,
        group_stride=layers * slice_pages * page,
        page_stride=page,
        row_stride=page,
    )
    launch_row_copy(
        RowCopy(
            source=packed,
            target=_pool_side(pool, page_ids, page),
            layers=layers,
            groups=ranks,
            pages=slice_pages,
            page_rows=1,
            row_elements=page,
            index_step=ranks,
            index_group=1,
        )
    )


def _pool_side(pool: Layers, page_ids: Tensor, page: int) -> Side:
    return Side(pool, layer_stride=pool.shape[1] * page, page_stride=page, row_stride=page, index=page_ids)
