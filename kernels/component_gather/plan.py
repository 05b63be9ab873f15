"""What a multi-component copy takes: one descriptor a component, on the device, made once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from kernels.checks import check_layers
from kernels.errors import ShapeMismatch
from kernels.layer_table import Layers, LayerTable, any_tensor

#: Components start at multiples of this in the buffer.
ALIGNMENT_BYTES = 16
#: What one program copies at once.
TILE_BYTES = 8192
#: Of it one piece, which lies within a row.
SEGMENT_BYTES = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """A part of a request's cache."""

    #: Where it is taken from, [layers, rows, *row], contiguous, or a table of layers.
    pool: Layers
    #: How many rows of each layer are taken.
    rows: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of one layer."""
        return prod(self.pool.shape[2:]) * any_tensor(self.pool).element_size()

    @property
    def size_bytes(self) -> int:
        """Bytes of all rows of all layers."""
        return self.pool.shape[0] * self.rows * self.row_bytes


@dataclass(frozen=True, slots=True, eq=False)
class ComponentPlan:
    """Made by `of`. It keeps its pools alive, and is only good while they stay where they are."""

    components: tuple[Component, ...]
    #: Where each component starts in the buffer.
    offsets_bytes: tuple[int, ...]
    #: Bytes of the buffer that the plan fills.
    size_bytes: int
    #: A line a component, [components, 8], int64: see `_describe`.
    descriptors: Tensor
    #: Tiles of all components before each, and of all, [components + 1], int64.
    tile_offsets: Tensor
    #: Tiles of all components.
    tiles: int

    @staticmethod
    def of(components: Sequence[Component]) -> "ComponentPlan":
        """Lay the components out one behind the other.

        Raises:
            ShapeMismatch: There is no component, one takes fewer than no rows, or its pool has no rows.
        """
        if not components:
            raise ShapeMismatch("a plan needs a component at least")
        for number, one in enumerate(components):
            check_layers(f"component {number}", one.pool, dims=2)
            if one.rows < 0:
                raise ShapeMismatch(f"component {number} takes {one.rows} rows")
        sizes = [-(-one.size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for one in components]
        offsets = [0, *accumulate(sizes)]
        firsts = [0, *accumulate(one.rows for one in components)]
        tiles = [0, *accumulate(_count_tiles(one) for one in components)]
        lines = [_describe(*item) for item in zip(components, offsets, firsts, strict=False)]
        device = any_tensor(components[0].pool).device
        return ComponentPlan(
            components=tuple(components),
            offsets_bytes=tuple(offsets[:-1]),
            size_bytes=offsets[-1],
            descriptors=torch.tensor(lines, dtype=torch.int64).to(device),
            tile_offsets=torch.tensor(tiles, dtype=torch.int64).to(device),
            tiles=tiles[-1],
        )

    @property
    def rows(self) -> int:
        """Indices that a call takes."""
        return sum(one.rows for one in self.components)

    def split(self, indices: Tensor) -> Sequence[Tensor]:
        """Indices of each component."""
        return torch.split(indices, [one.rows for one in self.components])


def _count_tiles(component: Component) -> int:
    segments = -(-component.row_bytes // SEGMENT_BYTES) * component.rows
    return -(-segments // (TILE_BYTES // SEGMENT_BYTES)) * component.pool.shape[0]


def _describe(component: Component, offset_bytes: int, first_index: int) -> list[int]:
    """Address, whether it is that of a table, bytes of a layer and of a row, rows, first index, place, whether wide."""
    pool = component.pool
    is_table = isinstance(pool, LayerTable)
    base = pool.pointers if isinstance(pool, LayerTable) else pool
    layer_bytes = pool.shape[1] * component.row_bytes
    tensors = pool.tensors if isinstance(pool, LayerTable) else (pool,)
    starts = [tensor.data_ptr() for tensor in tensors]
    is_wide = not any(size % ALIGNMENT_BYTES for size in (component.row_bytes, layer_bytes, *starts))
    line = [base.data_ptr(), int(is_table), layer_bytes, component.row_bytes, component.rows]
    return [*line, first_index, offset_bytes, int(is_wide)]
