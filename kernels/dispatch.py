"""The one rule by which an op is computed: Triton on CUDA or under the interpreter, the reference otherwise.

Triton is imported only where it runs, so that the references work without it. `DOVECOTE_KERNEL_CHECKS=1` is the debug
switch: numbers that lie on a GPU are then read and checked as those on the CPU always are, at the cost of a sync.
"""

import os
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from kernels.errors import DeviceMismatch, DtypeMismatch


def implementation(op: str, *tensors: Tensor) -> ModuleType:
    """The module that computes `op` for these tensors: `kernels.<op>.kernel` or `kernels.<op>.reference`.

    Raises:
        DeviceMismatch: They lie on a GPU that is not the current one, where Triton would launch.
    """
    for tensor in tensors:
        if tensor.is_cuda and tensor.get_device() != torch.cuda.current_device():
            current = torch.cuda.current_device()
            raise DeviceMismatch(f"tensors on {tensor.device}, the current device is {current}: torch.cuda.set_device")
    return import_module(f"kernels.{op}.{'kernel' if runs_triton(*tensors) else 'reference'}")


def runs_triton(*tensors: Tensor) -> bool:
    """Whether Triton computes on these tensors."""
    return any(tensor.is_cuda for tensor in tensors) or os.environ.get("TRITON_INTERPRET") == "1"


def check_multiplies(tensor: Tensor) -> None:
    """Raise where Triton would be interpreted and these multiplied as matrices: of bfloat16 that gives other numbers.

    Raises:
        DtypeMismatch: They would.
    """
    if tensor.dtype == torch.bfloat16 and not tensor.is_cuda and os.environ.get("TRITON_INTERPRET") == "1":
        raise DtypeMismatch("Triton's interpreter does not multiply bfloat16: float32, float16 or no interpreter")


def can_read(tensor: Tensor) -> bool:
    """Whether looking at the values of `tensor` is free, or asked for."""
    return not tensor.is_cuda or os.environ.get("DOVECOTE_KERNEL_CHECKS") == "1"


def check_devices(**tensors: Tensor | None) -> None:
    """Raise unless all lie on one device; pinned memory of the host lies on every GPU.

    Raises:
        DeviceMismatch: Two of them do not.
    """
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    devices = {tensor.device for tensor in given.values()}
    if len(devices) > 1:
        unpinned = {tensor.device for tensor in given.values() if tensor.is_cuda or not tensor.is_pinned()}
        if len(unpinned) > 1:
            raise DeviceMismatch(", ".join(f"{name} on {tensor.device}" for name, tensor in given.items()))
