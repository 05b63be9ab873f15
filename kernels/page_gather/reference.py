"""Plain torch: one indexed read a layer."""

from torch import Tensor

from kernels.layer_table import Layers


def page_gather(pool: Layers, page_ids: Tensor, out: Tensor) -> None:
    """See `kernels.page_gather.page_gather`; the arguments are checked there."""
    for layer in range(len(pool)):
        out[layer] = pool[layer][page_ids.long()]
