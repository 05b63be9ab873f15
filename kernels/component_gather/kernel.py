"""The multi-component copy in Triton: a program finds its tile's component in the table, then copies rows.

Rows of whole units of 16 bytes are moved 16 bytes at a time; others, which are small, byte by byte.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.component_gather.plan import SEGMENT_BYTES, TILE_BYTES, ComponentPlan

_FIELDS = 8
#: How much of a segment is moved at once where it is moved byte by byte.
_NARROW_BYTES = 128


@triton.jit(do_not_specialize=["components", "tiles"], do_not_specialize_on_alignment=["indices"])
def component_copy_kernel(
    buffer: tl.tensor,
    indices: tl.tensor,
    descriptors: tl.tensor,
    tile_offsets: tl.tensor,
    components: tl.tensor,
    tiles: tl.tensor,
    COMPONENTS: tl.constexpr,
    FIELDS: tl.constexpr,
    SEGMENT: tl.constexpr,
    SEGMENTS: tl.constexpr,
    NARROW: tl.constexpr,
    IS_GATHER: tl.constexpr,
) -> None:
    """Copy tiles `program_id, program_id + programs, ...` of all components."""
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        numbers = tl.arange(0, COMPONENTS)
        ends = tl.load(tile_offsets + 1 + numbers, mask=numbers < components, other=9223372036854775807)
        number = tl.sum((ends <= tile).to(tl.int32), 0)
        line = descriptors + number * FIELDS
        address, is_table, layer_bytes = tl.load(line), tl.load(line + 1), tl.load(line + 2)
        row_bytes, rows, first_index = tl.load(line + 3), tl.load(line + 4), tl.load(line + 5)
        offset_bytes, is_wide = tl.load(line + 6), tl.load(line + 7)

        row_segments = (row_bytes + SEGMENT - 1) // SEGMENT
        layer_tiles = (row_segments * rows + SEGMENTS - 1) // SEGMENTS
        in_component = tile - tl.load(tile_offsets + number)
        layer = in_component // layer_tiles
        segment = (in_component % layer_tiles) * SEGMENTS + tl.arange(0, SEGMENTS)  # [SEGMENTS]
        row, column = segment // row_segments, (segment % row_segments) * SEGMENT
        is_there = row < rows
        picked = tl.load(indices + first_index + row, mask=is_there, other=0).to(tl.int64)
        if is_table != 0:
            base = tl.load(address.to(tl.pointer_type(tl.int64)) + layer)
        else:
            base = address + layer * layer_bytes
        packed_row = layer * rows + row
        pooled_byte, packed_byte = picked * row_bytes, offset_bytes + packed_row * row_bytes
        if is_wide != 0:
            _move(base, buffer, pooled_byte, packed_byte, column, is_there, row_bytes, SEGMENT, True, IS_GATHER)
        else:
            for part in range(0, SEGMENT, NARROW):
                place = column + part
                _move(base, buffer, pooled_byte, packed_byte, place, is_there, row_bytes, NARROW, False, IS_GATHER)


@triton.jit
def _move(
    base: tl.tensor,
    buffer: tl.tensor,
    pooled_byte: tl.tensor,
    packed_byte: tl.tensor,
    column: tl.tensor,
    is_there: tl.tensor,
    row_bytes: tl.tensor,
    SEGMENT: tl.constexpr,
    IS_WIDE: tl.constexpr,
    IS_GATHER: tl.constexpr,
) -> None:
    """Copy segments of `SEGMENT` bytes: in words of 8, all of them in pairs; or in bytes."""
    UNIT: tl.constexpr = 16 if IS_WIDE else 1
    WORDS: tl.constexpr = 2 if IS_WIDE else 1
    DTYPE: tl.constexpr = tl.int64 if IS_WIDE else tl.int8
    lane = tl.arange(0, SEGMENT // UNIT * WORDS)
    within = (column // UNIT * WORDS)[:, None] + lane[None, :]
    is_copied = is_there[:, None] & (within < row_bytes // UNIT * WORDS)
    pooled = tl.multiple_of(base.to(tl.pointer_type(DTYPE)), UNIT) + (pooled_byte // UNIT * WORDS)[:, None] + within
    packed = buffer.to(tl.pointer_type(DTYPE)) + (packed_byte // UNIT * WORDS)[:, None] + within
    if IS_GATHER:
        tl.store(packed, tl.load(pooled, mask=is_copied, eviction_policy="evict_first"), mask=is_copied)
    else:
        tl.store(pooled, tl.load(packed, mask=is_copied, eviction_policy="evict_first"), mask=is_copied)


def component_gather(plan: ComponentPlan, indices: Tensor, out: Tensor) -> None:
    """See `kernels.component_gather.component_gather`; the arguments are checked there."""
    _launch(plan, indices, out, is_gather=True)


def component_scatter(staging: Tensor, plan: ComponentPlan, indices: Tensor) -> None:
    """See `kernels.component_gather.component_scatter`; the arguments are checked there."""
    _launch(plan, indices, staging, is_gather=False)


def _launch(plan: ComponentPlan, indices: torch.Tensor, buffer: torch.Tensor, *, is_gather: bool) -> None:
    if not plan.tiles:
        return
    component_copy_kernel[(plan.tiles,)](
        buffer,
        indices,
        plan.descriptors,
        plan.tile_offsets,
        len(plan.components),
        plan.tiles,
        COMPONENTS=triton.next_power_of_2(len(plan.components)),
        FIELDS=_FIELDS,
        SEGMENT=SEGMENT_BYTES,
        SEGMENTS=TILE_BYTES // SEGMENT_BYTES,
        NARROW=_NARROW_BYTES,
        IS_GATHER=is_gather,
        num_warps=4,
    )
