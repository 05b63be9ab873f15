"""The strided copy in Triton, and how a plan becomes its arguments.

Without a conversion elements are moved as the widest integers that divide every stride, row and address; where 16
bytes do, strides are handed over in units of 16 bytes, so that the compiler knows of it and moves 16 at a time. A tile
is a few segments of rows: the index is read once a segment.
"""

from dataclasses import dataclass
from math import gcd

import torch
import triton
import triton.language as tl

from kernels.layer_table import Layers, LayerTable, any_tensor
from kernels.row_copy.plan import RowCopy, Side

#: Bytes that one program moves at once, and the warps that do.
TILE_BYTES, TILE_WARPS = 8192, 4
#: The same where few programs have to keep a bus busy.
WIDE_TILE_BYTES, WIDE_TILE_WARPS = 65536, 16
#: How much of a segment may stick out of its row, of the row.
_WASTE = 1 / 8
_INTEGERS = {8: tl.int64, 4: tl.int32, 2: tl.int16, 1: tl.int8}
_FLOATS = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}

_RUNTIME = [
    *(f"{side}_{stride}" for side in ("source", "target") for stride in ("layer", "group", "page", "row", "start")),
    *("groups", "page_rows", "index_step", "index_group", "ring_entries", "entries", "row_units", "first_unit"),
    *("end_unit", "row_segments", "segments", "tiles_a_plane", "tiles"),
]


@triton.jit(do_not_specialize=_RUNTIME, do_not_specialize_on_alignment=["source_index", "target_index"])
def row_copy_kernel(
    source: tl.tensor,
    target: tl.tensor,
    source_index: tl.tensor,
    target_index: tl.tensor,
    source_layer: tl.tensor,
    source_group: tl.tensor,
    source_page: tl.tensor,
    source_row: tl.tensor,
    source_start: tl.tensor,
    target_layer: tl.tensor,
    target_group: tl.tensor,
    target_page: tl.tensor,
    target_row: tl.tensor,
    target_start: tl.tensor,
    groups: tl.tensor,
    page_rows: tl.tensor,
    index_step: tl.tensor,
    index_group: tl.tensor,
    ring_entries: tl.tensor,
    entries: tl.tensor,
    row_units: tl.tensor,
    first_unit: tl.tensor,
    end_unit: tl.tensor,
    row_segments: tl.tensor,
    segments: tl.tensor,
    tiles_a_plane: tl.tensor,
    tiles: tl.tensor,
    SOURCE_TABLE: tl.constexpr,
    TARGET_TABLE: tl.constexpr,
    SOURCE_INDEXED: tl.constexpr,
    TARGET_INDEXED: tl.constexpr,
    SOURCE_DTYPE: tl.constexpr,
    TARGET_DTYPE: tl.constexpr,
    SOURCE_ALIGNMENT: tl.constexpr,
    TARGET_ALIGNMENT: tl.constexpr,
    UNIT: tl.constexpr,
    SEGMENT: tl.constexpr,
    SEGMENTS: tl.constexpr,
) -> None:
    """Copy tiles `program_id, program_id + programs, ...`; a plane is one group of one layer."""
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        plane = tile // tiles_a_plane
        layer, group = (plane // groups).to(tl.int64), plane % groups
        segment = (tile % tiles_a_plane) * SEGMENTS + tl.arange(0, SEGMENTS)  # [SEGMENTS]
        row = segment // row_segments
        column = (segment % row_segments) * SEGMENT  # [SEGMENTS]
        page, place = row // page_rows, (row % page_rows).to(tl.int64)
        entry = page * index_step + group * index_group
        is_there = (segment < segments) & (entry < entries)
        from_page, to_page = page.to(tl.int64), page.to(tl.int64)
        if SOURCE_INDEXED:
            from_page = tl.load(source_index + entry % ring_entries, mask=is_there, other=0).to(tl.int64)
        if TARGET_INDEXED:
            to_page = tl.load(target_index + entry % ring_entries, mask=is_there, other=0).to(tl.int64)
        read_at = group.to(tl.int64) * source_group + from_page * source_page + place * source_row + source_start
        write_at = group.to(tl.int64) * target_group + to_page * target_page + place * target_row + target_start
        if SOURCE_TABLE:
            read = tl.load(source + layer).to(tl.pointer_type(SOURCE_DTYPE))
            read = tl.multiple_of(read, SOURCE_ALIGNMENT)
        else:
            read = source.to(tl.pointer_type(SOURCE_DTYPE))
            read_at += layer * source_layer
        if TARGET_TABLE:
            write = tl.load(target + layer).to(tl.pointer_type(TARGET_DTYPE))
            write = tl.multiple_of(write, TARGET_ALIGNMENT)
        else:
            write = target.to(tl.pointer_type(TARGET_DTYPE))
            write_at += layer * target_layer
        within = column[:, None] + tl.arange(0, SEGMENT)[None, :]  # [SEGMENTS, SEGMENT]
        flat = row.to(tl.int64)[:, None] * (row_units * UNIT) + within
        is_copied = is_there[:, None] & (within < row_units * UNIT)
        is_copied &= (flat >= first_unit.to(tl.int64) * UNIT) & (flat < end_unit.to(tl.int64) * UNIT)
        moved = tl.load(read + (read_at * UNIT)[:, None] + within, mask=is_copied, eviction_policy="evict_first")
        tl.store(write + (write_at * UNIT)[:, None] + within, moved.to(TARGET_DTYPE), mask=is_copied)


@dataclass(frozen=True, slots=True)
class Grain:
    """What a copy moves at once."""

    #: Type that a side's memory is read or written as.
    source_dtype: tl.dtype
    target_dtype: tl.dtype
    #: How many of the plan's elements are how many of these: elements * times / per.
    times: int
    per: int
    #: Of these, what every stride is a multiple of.
    unit: int
    #: Bytes of the smaller of both types.
    size_bytes: int


def choose_grain(copy: RowCopy, *ends: int) -> Grain:
    """The widest type and unit that divide all strides and rows, and `ends`, which are in elements."""
    source, target = any_tensor(copy.source.base), any_tensor(copy.target.base)
    alignment = gcd(copy.source.alignment_bytes, copy.target.alignment_bytes)
    if copy.dtypes_differ:
        unit = 8 if alignment == 16 and copy.common_elements(*ends) % 8 == 0 else 1
        size_bytes = min(source.element_size(), target.element_size())
        return Grain(_FLOATS[source.dtype], _FLOATS[target.dtype], 1, 1, unit, size_bytes)
    element_bytes = source.element_size()
    common_bytes = gcd(alignment, copy.common_elements(*ends) * element_bytes)
    size_bytes = min(common_bytes, 8)
    integer = _INTEGERS[size_bytes]
    return Grain(integer, integer, element_bytes, size_bytes, common_bytes // size_bytes, size_bytes)


def launch_row_copy(copy: RowCopy, *, programs: int | None = None) -> None:
    """Carry out a plan in one launch, by at most so many programs."""
    first, end = copy.span_elements
    if not copy.layers or not copy.groups or not copy.row_elements or first >= end:
        return
    copy = copy.merged()
    grain = choose_grain(copy, first, end)
    tile_bytes, warps = (TILE_BYTES, TILE_WARPS) if programs is None else (WIDE_TILE_BYTES, WIDE_TILE_WARPS)
    row = copy.row_elements * grain.times // grain.per
    segment = choose_segment(row, tile_bytes // grain.size_bytes)
    in_tile = tile_bytes // grain.size_bytes // segment
    row_segments = -(-row // segment)
    segments = row_segments * copy.pages * copy.page_rows
    tiles_a_plane = -(-segments // in_tile)
    tiles = tiles_a_plane * copy.layers * copy.groups

    def in_units(elements: int) -> int:
        return elements * grain.times // (grain.per * grain.unit)

    row_copy_kernel[(min(tiles, programs or tiles),)](
        _base(copy.source.base),
        _base(copy.target.base),
        _index(copy.source),
        _index(copy.target),
        *map(in_units, copy.source.strides),
        *map(in_units, copy.target.strides),
        copy.groups,
        copy.page_rows,
        copy.index_step,
        copy.index_group,
        copy.ring_entries or copy.entries,
        copy.entries,
        in_units(copy.row_elements),
        in_units(first),
        in_units(end),
        row_segments,
        segments,
        tiles_a_plane,
        tiles,
        SOURCE_TABLE=isinstance(copy.source.base, LayerTable),
        TARGET_TABLE=isinstance(copy.target.base, LayerTable),
        SOURCE_INDEXED=copy.source.index is not None,
        TARGET_INDEXED=copy.target.index is not None,
        SOURCE_DTYPE=grain.source_dtype,
        TARGET_DTYPE=grain.target_dtype,
        SOURCE_ALIGNMENT=copy.source.alignment_bytes,
        TARGET_ALIGNMENT=copy.target.alignment_bytes,
        UNIT=grain.unit,
        SEGMENT=segment,
        SEGMENTS=in_tile,
        num_warps=warps,
    )


def choose_segment(row: int, tile: int) -> int:
    """The longest power of two, up to a tile, of which few elements stick out of a row."""
    segment = tile
    while segment > 1 and -(-row // segment) * segment > row * (1 + _WASTE):
        segment //= 2
    return segment


def _base(layers: Layers) -> torch.Tensor:
    return layers.pointers if isinstance(layers, LayerTable) else layers


def _index(side: Side) -> torch.Tensor:
    return _base(side.base) if side.index is None else side.index
