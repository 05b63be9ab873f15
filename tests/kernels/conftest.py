"""Where ops are tried: references on the CPU, and kernels on a GPU or, without one, in Triton's interpreter.

A kernel is interpreted or not from its import on, so all are imported here under the interpreter where there is no
GPU; what an op is computed by is still asked for at each call.
"""

import importlib
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import kernels

HAS_GPU = torch.cuda.is_available()
HAS_TRITON = find_spec("triton") is not None


def _import_kernels():
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        for path in sorted(Path(kernels.__file__).parent.glob("*/kernel.py")):
            importlib.import_module(f"kernels.{path.parent.name}.kernel")
    finally:
        del os.environ["TRITON_INTERPRET"]


if HAS_TRITON and not HAS_GPU:
    _import_kernels()


def pytest_collection_modifyitems(items):
    """The interpreter turns arrays of one number into numbers, which numpy 2.3 warns of and 2.4 refuses."""
    old_numpy = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(old_numpy)


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread():
    """These tensors are small, and threads that wait for each other only take the cores from others."""
    torch.set_num_threads(1)


@pytest.fixture(params=["reference", "kernel"])
def device(request, monkeypatch):
    """The device to call an op on, so that it is computed by its reference or by its kernel."""
    if request.param == "reference":
        return torch.device("cpu")
    if not HAS_TRITON:
        pytest.skip("needs triton, which is made for Linux only")
    if HAS_GPU:
        return torch.device("cuda")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return torch.device("cpu")


def _poison(tensor):
    if tensor.dtype.is_floating_point:
        return (
            tensor.view(torch.uint8).fill_(0x7F).view(tensor.dtype)
            if tensor.element_size() == 1
            else tensor.fill_(torch.nan)
        )
    return tensor.fill_(-77 if tensor.dtype.is_signed else 0xA5)


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch):
    """What is allocated and not written is NaN, or a number that no op makes."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        allocate = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, _allocate=allocate, **named: _poison(_allocate(*args, **named)))
