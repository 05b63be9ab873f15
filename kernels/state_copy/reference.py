"""Plain torch: one indexed read and write a layer, which converts."""

from torch import Tensor

from kernels.layer_table import Layers


def state_copy(source: Layers, source_slots: Tensor, target: Layers, target_slots: Tensor) -> None:
    """See `kernels.state_copy.state_save`; the arguments are checked there."""
    for layer in range(len(source)):
        target[layer][target_slots.long()] = source[layer][source_slots.long()].to(target.dtype)
