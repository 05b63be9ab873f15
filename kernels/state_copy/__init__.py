"""Save recurrent states to checkpoints and restore them, all layers in one launch, converting on the way if asked."""

import torch
from torch import Tensor

from kernels.checks import check_apart, check_distinct, check_index, check_layers
from kernels.dispatch import check_devices, implementation
from kernels.errors import DtypeMismatch, ShapeMismatch
from kernels.layer_table import Layers, any_tensor

__all__ = ["state_restore", "state_save"]

#: Between these a copy converts: by rounding to the nearest, ties to even.
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def state_save(states: Layers, slots: Tensor, checkpoints: Layers, checkpoint_slots: Tensor) -> None:
    """Copy `states[:, slots[i]]` to `checkpoints[:, checkpoint_slots[i]]`; all other checkpoints stay bit-identical.

    Args:
        states: [layers, slots, *state], contiguous, or a table of layers.
        slots: [n], int32 or int64.
        checkpoints: [layers, checkpoints, *state], contiguous, or a table of layers; the same dtype, or both one of
            float32, bfloat16 and float16: the values are then rounded as they are copied.
        checkpoint_slots: [n], same dtype as `slots`, none twice.

    Raises:
        ShapeMismatch: Dimensions do not fit, a checkpoint is named twice, or the two overlap.
        DtypeMismatch: Dtypes that do not convert; indices or devices that differ.
        PageOutOfRange: A slot is not one of its pool's.

    Cost: bytes of n states read and written; one launch; no sync.
    Reference: kernels/state_copy/reference.py.
    """
    _check(states, slots, checkpoints, checkpoint_slots)
    implementation("state_copy", any_tensor(states)).state_copy(states, slots, checkpoints, checkpoint_slots)


def state_restore(checkpoints: Layers, checkpoint_slots: Tensor, states: Layers, slots: Tensor) -> None:
    """Copy `checkpoints[:, checkpoint_slots[i]]` to `states[:, slots[i]]`, none of `slots` twice.

    Arguments, errors and cost as `state_save`, the other way round.
    """
    _check(checkpoints, checkpoint_slots, states, slots)
    implementation("state_copy", any_tensor(states)).state_copy(checkpoints, checkpoint_slots, states, slots)


def _check(source: Layers, source_slots: Tensor, target: Layers, target_slots: Tensor) -> None:
    check_layers("source", source, dims=3)
    check_layers("target", target, dims=3)
    if (source.shape[0], *source.shape[2:]) != (target.shape[0], *target.shape[2:]):
        raise ShapeMismatch(f"states {tuple(source.shape)} and {tuple(target.shape)} differ in more than their slots")
    if source.dtype != target.dtype and not {source.dtype, target.dtype} <= set(_FLOATS):
        raise DtypeMismatch(f"{source.dtype} does not convert to {target.dtype}")
    check_index("source slots", source_slots, limit=source.shape[1])
    check_index("target slots", target_slots, limit=target.shape[1])
    if source_slots.shape != target_slots.shape:
        raise ShapeMismatch(f"{len(source_slots)} source slots, {len(target_slots)} target slots")
    if source_slots.dtype != target_slots.dtype:
        raise DtypeMismatch(f"source slots are {source_slots.dtype}, target slots {target_slots.dtype}")
    check_distinct("target slots", target_slots)
    tensors = {"source": any_tensor(source), "target": any_tensor(target)}
    check_devices(**tensors, source_slots=source_slots, target_slots=target_slots)
    check_apart(("target",), source=source, target=target)
