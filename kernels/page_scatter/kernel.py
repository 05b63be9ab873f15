"""A row copy whose target is indexed, of the pages that the tail touches."""

from math import prod

from torch import Tensor

from kernels.layer_table import Layers
from kernels.row_copy.kernel import launch_row_copy
from kernels.row_copy.plan import RowCopy, Side


def page_scatter(staging: Tensor, page_ids: Tensor, pool: Layers, start_token: int) -> None:
    """See `kernels.page_scatter.page_scatter`; the arguments are checked there."""
    layers, pages, page_tokens = pool.shape[:3]
    row, tail_tokens = prod(pool.shape[3:]), staging.shape[1]
    first_page, first_row = divmod(start_token, page_tokens)
    end_page = -(-(start_token + tail_tokens) // page_tokens)
    launch_row_copy(
        RowCopy(
            source=Side(
                staging,
                layer_stride=tail_tokens * row,
                page_stride=page_tokens * row,
                row_stride=row,
                start=-first_row * row,
            ),
            target=Side(
                pool,
                layer_stride=pages * page_tokens * row,
                page_stride=page_tokens * row,
                row_stride=row,
                index=page_ids[first_page:end_page],
            ),
            layers=layers,
            pages=end_page - first_page,
            page_rows=page_tokens,
            row_elements=row,
            first_row=first_row,
            end_row=first_row + tail_tokens,
        )
    )
