"""Write the received tail of a sequence into the pages that its decode rank allocated."""

from torch import Tensor

from kernels.checks import check_apart, check_distinct, check_index, check_layers, check_like
from kernels.dispatch import check_devices, implementation
from kernels.errors import ShapeMismatch
from kernels.layer_table import Layers, any_tensor

__all__ = ["page_scatter"]


def page_scatter(staging: Tensor, page_ids: Tensor, pool: Layers, *, start_token: int) -> None:
    """Write tokens `[start_token, start_token + tail_tokens)` of a sequence, all layers in one launch.

    The sender ships only tokens that the receiver lacks, so row 0 of `staging` is token `start_token` of the
    sequence, not token 0. All other rows of `pool` stay bit-identical.

    Args:
        staging: Tail as received, [layers, tail_tokens, *row], contiguous.
        page_ids: Pages of the whole sequence in order, [n], int32 or int64, none twice.
        pool: [layers, pages, page_tokens, *row], contiguous, or a table of layers; same dtype; written in place.
        start_token: Position of staging row 0; need not be the first of a page.

    Raises:
        ShapeMismatch: The tail does not end inside `page_ids`, a page stands there twice, or dimensions differ.
        DtypeMismatch: Dtypes or devices differ; nothing is converted silently.
        PageOutOfRange: A page is not one of the pool's.

    Cost: 2 * staging.nbytes of memory traffic; one launch; no sync.
    Reference: kernels/page_scatter/reference.py.
    """
    check_layers("pool", pool, dims=4)
    layers, pages, page_tokens, *row = pool.shape
    if staging.dim() < 3:
        raise ShapeMismatch(f"staging is {tuple(staging.shape)}, not [layers, tail_tokens, *row]")
    check_like("staging", staging, (layers, staging.shape[1], *row), pool.dtype)
    check_index("page_ids", page_ids, limit=pages)
    end_token = start_token + staging.shape[1]
    if start_token < 0 or end_token > len(page_ids) * page_tokens:
        held = f"{len(page_ids)} pages of {page_tokens}"
        raise ShapeMismatch(f"tokens {start_token}..{end_token} do not lie in {held}")
    check_distinct("page_ids", page_ids)
    check_devices(staging=staging, page_ids=page_ids, pool=any_tensor(pool))
    check_apart(("pool",), staging=staging, pool=pool)
    implementation("page_scatter", any_tensor(pool)).page_scatter(staging, page_ids, pool, start_token)
