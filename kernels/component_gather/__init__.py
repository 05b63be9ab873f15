"""Pack all parts of a request's cache in one launch: K, V, window tail, draft window, state, checksums.

A plan says what is taken of which pool and where it lies in the buffer. It is made when counts change; while they do
not, a call copies nothing to the device.
"""

import torch
from torch import Tensor

from kernels.checks import check_apart, check_distinct, check_integers, check_range
from kernels.component_gather.plan import Component, ComponentPlan
from kernels.dispatch import check_devices, implementation
from kernels.errors import DtypeMismatch, ShapeMismatch
from kernels.layer_table import Layers, any_tensor, find_spans

__all__ = ["Component", "ComponentPlan", "component_gather", "component_scatter"]

#: Bytes of a row, and where a pool's memory lies.
_Place = tuple[int, tuple[tuple[int, int], ...]]


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
    _check(plan, indices, out, written=("buffer",))
    implementation("component_gather", indices).component_gather(plan, indices, out)


def component_scatter(staging: Tensor, plan: ComponentPlan, indices: Tensor) -> None:
    """Write what `component_gather` packed to rows of the pools; all else in them stays bit-identical.

    Arguments, errors and cost as `component_gather`; no row of a pool may be named twice, be it by two components.
    """
    _check(plan, indices, staging, written=("pool",))
    _check_written_once(plan, indices)
    implementation("component_gather", indices).component_scatter(staging, plan, indices)


def _check(plan: ComponentPlan, indices: Tensor, buffer: Tensor, *, written: tuple[str, ...]) -> None:
    check_integers("indices", indices)
    if indices.shape != (plan.rows,):
        raise ShapeMismatch(f"{tuple(indices.shape)} indices, the plan takes {plan.rows} rows")
    if buffer.dtype != torch.uint8:
        raise DtypeMismatch(f"the buffer is {buffer.dtype}, not torch.uint8")
    if buffer.dim() != 1 or not buffer.is_contiguous() or len(buffer) < plan.size_bytes:
        raise ShapeMismatch(f"the buffer is {tuple(buffer.shape)}, the plan fills {plan.size_bytes} bytes")
    if buffer.data_ptr() % 16:
        raise ShapeMismatch("the buffer does not start at a multiple of 16 bytes")
    pools = {f"component_{number}": one.pool for number, one in enumerate(plan.components)}
    check_devices(indices=indices, buffer=buffer, **{name: any_tensor(pool) for name, pool in pools.items()})
    for number, (one, part) in enumerate(zip(plan.components, plan.split(indices), strict=True)):
        check_range(f"indices of component {number}", part, limit=one.pool.shape[1])
        check_apart(written, buffer=buffer, pool=one.pool)


def _check_written_once(plan: ComponentPlan, indices: Tensor) -> None:
    """Components may share a pool where their rows are others; pools that overlap otherwise may not be written."""
    parts: dict[_Place, list[Tensor]] = {}
    pools: dict[_Place, tuple[str, Layers]] = {}
    for number, (one, part) in enumerate(zip(plan.components, plan.split(indices), strict=True)):
        place = one.row_bytes, find_spans(one.pool)
        parts.setdefault(place, []).append(part)
        pools[place] = f"component_{number}", one.pool
    for place, (name, _) in pools.items():
        check_distinct(f"indices of {name}", torch.cat(parts[place]) if len(parts[place]) > 1 else parts[place][0])
    check_apart(tuple(name for name, _ in pools.values()), **dict(pools.values()))
