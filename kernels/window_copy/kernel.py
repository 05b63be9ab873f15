"""Row copies whose index is a ring, of the pages that the window touches."""

from math import prod

from torch import Tensor

from kernels.layer_table import Layers
from kernels.row_copy.kernel import launch_row_copy
from kernels.row_copy.plan import RowCopy, Side


def window_gather(pool: Layers, ring_pages: Tensor, end_token: int, out: Tensor) -> None:
    """See `kernels.window_copy.window_gather`; the arguments are checked there."""
    _copy(pool, ring_pages, end_token, out, is_gather=True)


def window_scatter(tail: Tensor, ring_pages: Tensor, pool: Layers, end_token: int) -> None:
    """See `kernels.window_copy.window_scatter`; the arguments are checked there."""
    _copy(pool, ring_pages, end_token, tail, is_gather=False)


def _copy(pool: Layers, ring_pages: Tensor, end_token: int, tail: Tensor, *, is_gather: bool) -> None:
    layers, pages, page_tokens = pool.shape[:3]
    row, tokens = prod(pool.shape[3:]), tail.shape[1]
    if not tokens:
        return
    first_page, first_row = divmod(end_token - tokens, page_tokens)
    turned = first_page % len(ring_pages)
    pooled = Side(
        pool,
        layer_stride=pages * page_tokens * row,
        page_stride=page_tokens * row,
        row_stride=row,
        index=ring_pages,
    )
    # Entries count from the ring's first page, so those before the window are left out as rows are.
    packed = Side(
        tail,
        layer_stride=tokens * row,
        page_stride=page_tokens * row,
        row_stride=row,
        start=-(turned * page_tokens + first_row) * row,
    )
    first_row += turned * page_tokens
    copy = RowCopy(
        source=pooled if is_gather else packed,
        target=packed if is_gather else pooled,
        layers=layers,
        pages=-(-(first_row + tokens) // page_tokens),
        page_rows=page_tokens,
        row_elements=row,
        first_row=first_row,
        end_row=first_row + tokens,
        ring_entries=len(ring_pages),
    )
    launch_row_copy(copy)
