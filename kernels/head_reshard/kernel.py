"""Row copies of a slice of each token's heads; writers are groups, and each adds its column offset."""

from torch import Tensor

from kernels.layer_table import Layers
from kernels.row_copy.kernel import launch_row_copy
from kernels.row_copy.plan import RowCopy, Side


def gather_heads(pool: Layers, page_ids: Tensor, first_head: int, start_token: int, out: Tensor) -> None:
    """See `kernels.head_reshard.gather_heads`; the arguments are checked there."""
    _copy(pool, page_ids, first_head, start_token, out[None], is_gather=True)


def scatter_heads(staging: Tensor, page_ids: Tensor, pool: Layers, first_head: int, start_token: int) -> None:
    """See `kernels.head_reshard.scatter_heads`; the arguments are checked there."""
    _copy(pool, page_ids, first_head, start_token, staging, is_gather=False)


def _copy(
    pool: Layers, page_ids: Tensor, first_head: int, start_token: int, staging: Tensor, *, is_gather: bool
) -> None:
    _, pages, page_tokens, kv_heads, head_dim = pool.shape
    writers, layers, tokens, heads, _ = staging.shape
    row = heads * head_dim
    first_page, first_row = divmod(start_token, page_tokens)
    end_page = -(-(start_token + tokens) // page_tokens)
    pooled = Side(
        pool,
        layer_stride=pages * page_tokens * kv_heads * head_dim,
        group_stride=row,
        page_stride=page_tokens * kv_heads * head_dim,
        row_stride=kv_heads * head_dim,
        start=first_head * head_dim,
        index=page_ids[first_page:end_page],
    )
    packed = Side(
        staging,
        layer_stride=tokens * row,
        group_stride=layers * tokens * row,
        page_stride=page_tokens * row,
        row_stride=row,
        start=-first_row * row,
    )
    copy = RowCopy(
        source=pooled if is_gather else packed,
        target=packed if is_gather else pooled,
        layers=layers,
        groups=writers,
        pages=end_page - first_page,
        page_rows=page_tokens,
        row_elements=row,
        first_row=first_row,
        end_row=first_row + tokens,
    )
    launch_row_copy(copy)
