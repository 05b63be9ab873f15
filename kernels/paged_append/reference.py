"""Plain torch: one indexed copy a pool of the tokens that have a slot."""

import torch
from torch import Tensor


def paged_append(
    keys: Tensor,
    values: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    slots: Tensor,
    key_scale: float,
    value_scale: float,
) -> None:
    """See `kernels.paged_append.paged_append`; the arguments are checked there."""
    for rows, pool, scale in ((keys, key_pool, key_scale), (values, value_pool, value_scale)):
        kept = slots >= 0
        flat, targets, taken = pool.flatten(0, 1), slots[kept].long(), rows[kept]
        if pool.dtype == rows.dtype:
            flat.index_copy_(0, targets, taken)
        else:
            most = torch.finfo(pool.dtype).max
            converted = (taken.float() / scale).clamp(-most, most).to(pool.dtype)
            flat.view(torch.uint8).index_copy_(0, targets, converted.view(torch.uint8))
