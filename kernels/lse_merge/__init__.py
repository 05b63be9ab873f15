"""Merge partial attentions over parts of a context into attention over all of it.

The parts may be splits of one kernel, a shared prefix and the rest, or shards of a sequence on several ranks.
"""

import torch
from torch import Tensor

from kernels.checks import check_like
from kernels.dispatch import check_devices, implementation
from kernels.errors import DtypeMismatch, ShapeMismatch

__all__ = ["lse_merge"]


def lse_merge(partials: Tensor, lses: Tensor, *, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Weigh each part by its share of the softmax's sum.

    Args:
        partials: Attention over each part, [parts, tokens, heads, head_dim], contiguous, floating point.
        lses: Natural logarithm of each part's sum, [parts, tokens, heads], float32; -inf where a part was empty, and
            what its partial then holds is not looked at.
        dtype: Of the result, else that of `partials`.

    Returns:
        [tokens, heads, head_dim], and its logarithms [tokens, heads], float32: zero and -inf where all were empty.

    Raises:
        ShapeMismatch: Dimensions do not fit.
        DtypeMismatch: A dtype that the op does not take, or devices that differ.

    Cost: partials.nbytes read, a part's written; one launch; no sync.
    Reference: kernels/lse_merge/reference.py.
    """
    if partials.dim() != 4 or not len(partials):
        raise ShapeMismatch(f"partials are {tuple(partials.shape)}, not [parts, tokens, heads, head_dim]")
    for one in (partials.dtype, dtype or partials.dtype):
        if one not in (torch.float32, torch.bfloat16, torch.float16):
            raise DtypeMismatch(f"{one} is not a dtype of attention")
    check_like("partials", partials, tuple(partials.shape), partials.dtype)
    check_like("lses", lses, tuple(partials.shape[:3]), torch.float32)
    check_devices(partials=partials, lses=lses)
    out = torch.empty(partials.shape[1:], dtype=dtype or partials.dtype, device=partials.device)
    lse = torch.empty(lses.shape[1:], dtype=torch.float32, device=partials.device)
    implementation("lse_merge", partials).lse_merge(partials, lses, out, lse)
    return out, lse
