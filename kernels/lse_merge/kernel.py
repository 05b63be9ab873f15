"""The merge in Triton: rows of heads, part after part, with a running maximum."""

import triton
import triton.language as tl
from torch import Tensor

#: Rows, each of one head of one token, that a program merges.
ROWS = 8
#: Stands for the logarithm of an empty part: below any other, and its difference to itself is 0.
LOWEST = -1e30


@triton.jit(do_not_specialize=["parts", "rows"])
def lse_merge_kernel(
    partials: tl.tensor,
    lses: tl.tensor,
    out: tl.tensor,
    lse: tl.tensor,
    parts: tl.tensor,
    rows: tl.tensor,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    LOWEST: tl.constexpr,
) -> None:
    """Merge `ROWS` rows of all parts."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    lane = tl.arange(0, DIM)  # [DIM]
    is_there = row < rows
    is_read = is_there[:, None] & (lane < HEAD_DIM)[None, :]
    merged = tl.zeros((ROWS, DIM), dtype=tl.float32)
    most, total = tl.full((ROWS,), LOWEST, dtype=tl.float32), tl.zeros((ROWS,), dtype=tl.float32)
    for part in range(parts):
        at = part * rows.to(tl.int64) + row
        weight = tl.load(lses + at, mask=is_there, other=float("-inf"))
        is_full = weight != float("-inf")  # so of no number too, which has to show
        value = tl.load(partials + at[:, None] * HEAD_DIM + lane[None, :], mask=is_read & is_full[:, None], other=0.0)
        weight = tl.where(is_full, weight, LOWEST)
        higher = tl.maximum(most, weight)
        kept = tl.exp(most - higher)
        added = tl.where(is_full, tl.exp(weight - higher), 0.0)
        merged = merged * kept[:, None] + value.to(tl.float32) * added[:, None]
        total = total * kept + added
        most = higher
    is_any = total != 0.0
    total = tl.where(is_any, total, 1.0)
    merged = merged / total[:, None]
    tl.store(out + row[:, None] * HEAD_DIM + lane[None, :], merged.to(out.dtype.element_ty), mask=is_read)
    tl.store(lse + row, tl.where(is_any, most + tl.log(total), float("-inf")), mask=is_there)


def lse_merge(partials: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None:
    """See `kernels.lse_merge.lse_merge`; the arguments are checked there."""
    parts, tokens, heads, head_dim = partials.shape
    rows = tokens * heads
    if not rows:
        return
    lse_merge_kernel[(-(-rows // ROWS),)](
        partials,
        lses,
        out,
        lse,
        parts,
        rows,
        ROWS=ROWS,
        HEAD_DIM=head_dim,
        DIM=triton.next_power_of_2(max(head_dim, 1)),
        LOWEST=LOWEST,
        num_warps=4,
    )
