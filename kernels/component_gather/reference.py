"""Plain torch: one indexed read or write a component and layer, on bytes."""

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels.component_gather.plan import ComponentPlan


def component_gather(plan: ComponentPlan, indices: Tensor, out: Tensor) -> None:
    """See `kernels.component_gather.component_gather`; the arguments are checked there."""
    for layer, picked, place in _walk(plan, indices, out):
        place.copy_(layer[picked])


def component_scatter(staging: Tensor, plan: ComponentPlan, indices: Tensor) -> None:
    """See `kernels.component_gather.component_scatter`; the arguments are checked there."""
    for layer, picked, place in _walk(plan, indices, staging):
        layer[picked] = place


def _walk(plan: ComponentPlan, indices: Tensor, buffer: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Each layer of each component as bytes [rows, row_bytes], its picked rows, and their bytes in the buffer."""
    for one, start, picked in zip(plan.components, plan.offsets_bytes, plan.split(indices), strict=True):
        place = buffer[start : start + one.size_bytes].view(one.pool.shape[0], one.rows, one.row_bytes)
        for number in range(len(one.pool)):
            flat = one.pool[number].reshape(one.pool.shape[1], -1)
            yield flat.view(torch.uint8), picked.long(), place[number]
