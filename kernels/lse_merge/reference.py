"""Plain torch: a softmax over the parts' logarithms weighs the parts."""

import torch
from torch import Tensor


def lse_merge(partials: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None:
    """See `kernels.lse_merge.lse_merge`; the arguments are checked there."""
    empty = lses == -torch.inf
    total = torch.logsumexp(lses, dim=0)
    weights = torch.where(empty, 0.0, torch.exp(lses - torch.where(total == -torch.inf, 0.0, total)))
    parts = torch.where(empty[..., None], 0.0, partials.float())
    out.copy_((weights[..., None] * parts).sum(0))
    lse.copy_(total)
