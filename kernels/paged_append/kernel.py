"""The append in Triton: a program moves a few tokens' rows, of the keys or of the values."""

from dataclasses import dataclass
from math import gcd

import triton
import triton.language as tl
from torch import Tensor

from kernels.row_copy.kernel import choose_segment

#: Bytes that one program moves: few where there are few tokens, so that many programs share them.
FEW_TOKENS, FEW_TILE_BYTES, TILE_BYTES = 256, 2048, 8192
_INTEGERS = {8: tl.int64, 4: tl.int32, 2: tl.int16, 1: tl.int8}
#: Largest float8_e4m3fn.
_MOST = 448.0

_RUNTIME = ["key_units", "value_units", "row_units", "row_segments", "segments", "key_scale", "value_scale"]


@triton.jit(do_not_specialize=_RUNTIME, do_not_specialize_on_alignment=["slots"])
def paged_append_kernel(
    keys: tl.tensor,
    values: tl.tensor,
    key_pool: tl.tensor,
    value_pool: tl.tensor,
    slots: tl.tensor,
    key_units: tl.tensor,
    value_units: tl.tensor,
    row_units: tl.tensor,
    row_segments: tl.tensor,
    segments: tl.tensor,
    key_scale: tl.tensor,
    value_scale: tl.tensor,
    INTEGER: tl.constexpr,
    MOST: tl.constexpr,
    UNIT: tl.constexpr,
    SEGMENT: tl.constexpr,
    SEGMENTS: tl.constexpr,
) -> None:
    """Copy segments of rows to their slots; the second axis of programs is that of keys and values."""
    segment = tl.program_id(0) * SEGMENTS + tl.arange(0, SEGMENTS)  # [SEGMENTS]
    token = segment // row_segments
    within = ((segment % row_segments) * SEGMENT)[:, None] + tl.arange(0, SEGMENT)[None, :]  # [SEGMENTS, SEGMENT]
    slot = tl.load(slots + token, mask=segment < segments, other=-1).to(tl.int64)
    is_written = (slot >= 0)[:, None] & (within < row_units * UNIT)
    write_at = (slot * row_units * UNIT)[:, None] + within
    if tl.program_id(1) == 0:
        read_at = (token.to(tl.int64) * key_units * UNIT)[:, None] + within
        _append(keys, key_pool, read_at, write_at, is_written, key_scale, INTEGER, MOST)
    else:
        read_at = (token.to(tl.int64) * value_units * UNIT)[:, None] + within
        _append(values, value_pool, read_at, write_at, is_written, value_scale, INTEGER, MOST)


@triton.jit
def _append(
    rows: tl.tensor,
    pool: tl.tensor,
    read_at: tl.tensor,
    write_at: tl.tensor,
    is_written: tl.tensor,
    scale: tl.tensor,
    INTEGER: tl.constexpr,
    MOST: tl.constexpr,
) -> None:
    if INTEGER is not None:
        moved = tl.load(rows.to(tl.pointer_type(INTEGER)) + read_at, mask=is_written)
        tl.store(pool.to(tl.pointer_type(INTEGER)) + write_at, moved, mask=is_written)
    else:
        scaled = tl.div_rn(tl.load(rows + read_at, mask=is_written, other=0.0).to(tl.float32), scale)
        held = tl.minimum(tl.maximum(scaled, -MOST), MOST)
        # A comparison may drop what is no number, which has to show: its bits are put back.
        bits = tl.where(scaled == scaled, held.to(pool.dtype.element_ty).to(tl.uint8, bitcast=True), 0x7F)  # noqa: PLR0124
        tl.store(pool.to(tl.pointer_type(tl.uint8)) + write_at, bits.to(tl.uint8), mask=is_written)


@dataclass(frozen=True, slots=True)
class _Grain:
    """What is moved at once: integers of this type, or converted elements; and what strides are multiples of."""

    integer: tl.dtype | None
    element_bytes: int
    unit: int


def paged_append(
    keys: Tensor,
    values: Tensor,
    key_pool: Tensor,
    value_pool: Tensor,
    slots: Tensor,
    key_scale: float,
    value_scale: float,
) -> None:
    """See `kernels.paged_append.paged_append`; the arguments are checked there."""
    row = keys.shape[1] * keys.shape[2]
    if not keys.numel():
        return
    grain = _choose_grain(keys, values, key_pool, value_pool)
    row_units = row * keys.element_size() // grain.element_bytes // grain.unit
    tile = (FEW_TILE_BYTES if len(keys) <= FEW_TOKENS else TILE_BYTES) // grain.element_bytes
    segment = choose_segment(row_units * grain.unit, tile)
    row_segments = -(-row_units * grain.unit // segment)
    segments = row_segments * len(keys)

    def in_units(elements: int) -> int:
        return elements * keys.element_size() // grain.element_bytes // grain.unit

    paged_append_kernel[(-(-segments // (tile // segment)), 2)](
        keys,
        values,
        key_pool,
        value_pool,
        slots,
        in_units(keys.stride(0)),
        in_units(values.stride(0)),
        row_units,
        row_segments,
        segments,
        float(key_scale),
        float(value_scale),
        INTEGER=grain.integer,
        MOST=_MOST,
        UNIT=grain.unit,
        SEGMENT=segment,
        SEGMENTS=tile // segment,
        num_warps=4,
    )


def _choose_grain(keys: Tensor, values: Tensor, key_pool: Tensor, value_pool: Tensor) -> _Grain:
    row = keys.shape[1] * keys.shape[2]
    common = gcd(row, keys.stride(0), values.stride(0))
    alignment = gcd(16, *(tensor.data_ptr() for tensor in (keys, values, key_pool, value_pool)))
    if keys.dtype != key_pool.dtype:
        return _Grain(None, keys.element_size(), 16 if alignment == 16 and common % 16 == 0 else 1)
    common_bytes = gcd(alignment, common * keys.element_size())
    size_bytes = min(common_bytes, 8)
    return _Grain(_INTEGERS[size_bytes], size_bytes, common_bytes // size_bytes)
