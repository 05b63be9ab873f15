"""What a row copy does, as a nest of loops over layers, groups, pages and rows of a page.

    for layer, group, page, row, element:
        if first_row <= page * page_rows + row < end_row and entry(page, group) < entries:
            target[layer, group, target_page, row, element] = source[layer, group, source_page, row, element]

A side's page is the index's value at `entry(page, group) = page * index_step + group * index_group`, modulo the ring,
or `page` itself where the side has no index. Strides are in elements, and an element's place on a side is
`start + layer * layer_stride + group * group_stride + page * page_stride + row * row_stride + element`.
"""

from dataclasses import dataclass, replace
from math import gcd

from torch import Tensor

from kernels.layer_table import Layers, LayerTable, any_tensor


@dataclass(frozen=True, slots=True)
class Side:
    """Where rows lie on one side."""

    base: Layers
    #: Between layers; of no meaning where `base` is a table.
    layer_stride: int
    page_stride: int
    row_stride: int
    group_stride: int = 0
    start: int = 0
    #: Pages by entry, [entries], int32 or int64; without it pages lie in order.
    index: Tensor | None = None

    @property
    def strides(self) -> tuple[int, ...]:
        """All that an address is made of."""
        layer_stride = 0 if isinstance(self.base, LayerTable) else self.layer_stride
        return layer_stride, self.group_stride, self.page_stride, self.row_stride, self.start

    @property
    def alignment_bytes(self) -> int:
        """What all first addresses are multiples of, at most 16."""
        starts = [span[0] for span in self.base.spans] if isinstance(self.base, LayerTable) else [self.base.data_ptr()]
        return gcd(16, *starts)


@dataclass(frozen=True, slots=True)
class RowCopy:
    """One copy. Counts may be 0."""

    source: Side
    target: Side
    layers: int
    pages: int
    page_rows: int
    row_elements: int
    groups: int = 1
    #: Rows before this, counted over pages, are left out.
    first_row: int = 0
    #: And those from here on; all are copied without it.
    end_row: int | None = None
    index_step: int = 1
    index_group: int = 0
    #: Length of the index after which it begins anew; without it the index is as long as it is.
    ring_entries: int | None = None

    @property
    def entries(self) -> int:
        """How many entries count; more than there are places in a ring."""
        index = self.target.index if self.source.index is None else self.source.index
        return self.pages if index is None or self.ring_entries is not None else len(index)

    def merged(self) -> "RowCopy":
        """The same copy with a page for a row, where rows of a page touch on both sides; its span is that of this."""
        if self.source.row_stride != self.row_elements or self.target.row_stride != self.row_elements:
            return self
        return replace(self, page_rows=1, row_elements=self.row_elements * self.page_rows)

    @property
    def span_elements(self) -> tuple[int, int]:
        """First element copied and the one after the last, counted over rows and pages."""
        end_row = self.pages * self.page_rows if self.end_row is None else self.end_row
        return self.first_row * self.row_elements, end_row * self.row_elements

    @property
    def dtypes_differ(self) -> bool:
        """Whether values are converted."""
        return any_tensor(self.source.base).dtype != any_tensor(self.target.base).dtype

    def common_elements(self, *ends: int) -> int:
        """The largest count of elements that all strides and rows on both sides, and `ends`, are multiples of."""
        return gcd(*self.source.strides, *self.target.strides, self.row_elements, *ends)
