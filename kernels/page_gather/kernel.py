"""A row copy whose source is indexed."""

from torch import Tensor

from kernels.layer_table import Layers
from kernels.row_copy.kernel import launch_row_copy
from kernels.row_copy.plan import RowCopy, Side


def page_gather(pool: Layers, page_ids: Tensor, out: Tensor) -> None:
    """See `kernels.page_gather.page_gather`; the arguments are checked there."""
    page = out[:1, :1].numel()
    launch_row_copy(
        RowCopy(
            source=Side(pool, layer_stride=pool.shape[1] * page, page_stride=page, row_stride=page, index=page_ids),
            target=Side(out, layer_stride=len(page_ids) * page, page_stride=page, row_stride=page),
            layers=len(pool),
            pages=len(page_ids),
            page_rows=1,
            row_elements=page,
        )
    )
