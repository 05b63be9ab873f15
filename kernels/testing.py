"""How close a kernel's result is to its reference's: one table of tolerances, the same everywhere.

Copies and checksums are compared bit by bit and need none. What is bounded is the largest difference over the root
mean square of the reference, and that of the differences' root mean square.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from kernels import dispatch

#: dtype of the result -> root mean square of the differences, largest difference; both over the reference's.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float32: (2e-5, 2e-4),
    torch.float16: (2e-3, 2e-2),
    torch.bfloat16: (1e-2, 8e-2),
}


def assert_close(name: str, got: Tensor, expected: Tensor, *, times: float = 1.0) -> None:
    """Raise AssertionError unless `got` is as close to `expected` as its dtype allows, `times` over.

    Both must be infinite in the same places, and nothing may be NaN.
    """
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise AssertionError(f"{name}: {got.dtype} {tuple(got.shape)}, not {expected.dtype} {tuple(expected.shape)}")
    allowed = [times * one for one in TOLERANCES[got.dtype]]
    got, expected = got.detach().double().cpu(), expected.detach().double().cpu()
    finite = expected.isfinite()
    if not torch.equal(got[~finite], expected[~finite]) or not bool(got[finite].isfinite().all()):
        raise AssertionError(f"{name}: not finite in {int((~got.isfinite()).sum())} of {got.numel()} places")
    if not bool(finite.any()):
        return
    difference, size = (got - expected)[finite], max(_rms(expected[finite]), 1e-30)
    mean, most = _rms(difference) / size, float(difference.abs().max()) / size
    if mean > allowed[0] or most > allowed[1]:
        raise AssertionError(f"{name}: differs by {mean:.2e}, at most {most:.2e}; allowed {allowed}")


@contextmanager
def by_reference() -> Iterator[None]:
    """Within it every op is computed by its reference, wherever its tensors lie."""
    rule = dispatch.runs_triton
    dispatch.runs_triton = lambda *_: False
    try:
        yield
    finally:
        dispatch.runs_triton = rule


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
