"""Pack all parts of a request's cache in one launch: K, V, window tail, draft window, state, checksums.

A plan says what is taken of which pool and where it lies in the buffer. It is made when counts change; while they do
not, a call copies nothing to the device.
"""

from torch import Tensor

from kernels._dispatch import check_devices, implementation
from kernels.checks import check_apart, check_distinct, check_integers, check_range
from kernels.component_gather.plan import Component, ComponentPlan
from kernels.errors import DtypeMismatch, ShapeMismatch
from kernels.layer_table import any_tensor

__all__ = ["Component", "ComponentPlan", "component_gather", "component_scatter"]


def component_gather(plan: ComponentPlan, indices: Tensor, out: Tensor) -> None:
    """Copy the planned rows of all components into `out`.

    Args:
        plan: What is taken.
        indices: Rows of the components one after the other, [sum of their rows], int32 or int64.
        out: At least `plan.size_bytes` bytes, uint8, contiguous, its start aligned to 16 bytes. Component i lies at
            `plan.offsets_bytes[i]` as [layers, rows, *row]; the few bytes between components are not written.

    Raises:
        ShapeMismatch: Too few or many indices, `out` too small, not aligned or overlapping a pool.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A row is not one of its pool's.

    Cost: 2 * plan.size_bytes of memory traffic; one launch; no sync.
    Reference: kernels/component_gather/reference.py.
    """
    _check(plan, indices, out)
    implementation("component_gather", indices).component_gather(plan, indices, out)


def component_scatter(staging: Tensor, plan: ComponentPlan, indices: Tensor) -> None:
    """Write what `component_gather` packed to rows of the pools; all else in them stays bit-identical.

    Arguments, errors and cost as `component_gather`; no row of a component may be named twice.
    """
    _check(plan, indices, staging)
    for number, part in enumerate(plan.split(indices)):
        check_distinct(f"indices of component {number}", part)
    implementation("component_gather", indices).component_scatter(staging, plan, indices)


def _check(plan: ComponentPlan, indices: Tensor, buffer: Tensor) -> None:
    check_integers("indices", indices)
    if indices.shape != (plan.rows,):
        raise ShapeMismatch(f"{tuple(indices.shape)} indices, the plan takes {plan.rows} rows")
    if str(buffer.dtype) != "torch.uint8":
        raise DtypeMismatch(f"the buffer is {buffer.dtype}, not torch.uint8")
    if buffer.dim() != 1 or not buffer.is_contiguous() or len(buffer) < plan.size_bytes:
        raise ShapeMismatch(f"the buffer is {tuple(buffer.shape)}, the plan fills {plan.size_bytes} bytes")
    if buffer.data_ptr() % 16:
        raise ShapeMismatch("the buffer does not start at a multiple of 16 bytes")
    pools = {f"component_{number}": one.pool for number, one in enumerate(plan.components)}
    check_devices(indices=indices, buffer=buffer, **{name: any_tensor(pool) for name, pool in pools.items()})
    for number, (one, part) in enumerate(zip(plan.components, plan.split(indices), strict=True)):
        check_range(f"indices of component {number}", part, limit=one.pool.shape[1])
        check_apart(buffer=buffer, pool=one.pool)
