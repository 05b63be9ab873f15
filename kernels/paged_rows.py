"""Which tokens of which sequences a step computes, and in which pages their KV lies.

Made once a step by the caller, read by every paged op of every layer. Half-open ranges: row s holds tokens
`[start_tokens[s], start_tokens[s] + row_tokens[s])` of its sequence, and they lie at
`[row_offsets[s], row_offsets[s + 1])` of the flat token axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kernels.dispatch import can_read, check_devices
from kernels.errors import DtypeMismatch, PageOutOfRange, ShapeMismatch


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Rows of a step. All tensors are int64 on the pool's device."""

    #: Pages of each sequence in order, [rows, pages_max]; entries past a sequence's last page are not read.
    page_table: Tensor
    #: Position of each row's first token, [rows].
    start_tokens: Tensor
    #: Where each row's tokens begin on the flat axis, and their end, [rows + 1]; from 0, never falling.
    row_offsets: Tensor
    #: Where each token's keys and values lie in a pool, `page * page_tokens + place`, [tokens].
    slots: Tensor
    #: Tokens in a page.
    page_tokens: int

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.page_table.shape[0]

    @property
    def row_tokens(self) -> Tensor:
        """Tokens of each row, [rows]."""
        return self.row_offsets.diff()

    @property
    def end_tokens(self) -> Tensor:
        """Position after each row's last token, [rows]: the length of its context."""
        return self.start_tokens + self.row_tokens

    @staticmethod
    def of(
        pages: Sequence[Sequence[int]],
        start_tokens: Sequence[int],
        row_tokens: Sequence[int],
        *,
        page_tokens: int,
        device: torch.device | str = "cpu",
    ) -> "PagedRows":
        """Build from plain lists, one item a row.

        Raises:
            ShapeMismatch: The lists differ in length, a count is negative, a page holds nothing, or a row does not end
                in its pages.
        """
        if page_tokens < 1:
            raise ShapeMismatch(f"pages of {page_tokens} tokens")
        if not len(pages) == len(start_tokens) == len(row_tokens):
            raise ShapeMismatch(f"{len(pages)} page lists, {len(start_tokens)} starts, {len(row_tokens)} counts")
        used = [-(-(start + count) // page_tokens) for start, count in zip(start_tokens, row_tokens, strict=True)]
        for row, needed in enumerate(used):
            if start_tokens[row] < 0 or row_tokens[row] < 0 or needed > len(pages[row]):
                span = f"{row_tokens[row]} tokens from {start_tokens[row]}"
                raise ShapeMismatch(f"row {row}: {span} do not lie in {len(pages[row])} pages of {page_tokens}")
        width = max(used, default=0)
        table = [[*row[:needed], *[0] * (width - needed)] for row, needed in zip(pages, used, strict=True)]
        page_table = torch.tensor(table, dtype=torch.int64).reshape(len(pages), width)
        starts = torch.tensor(start_tokens, dtype=torch.int64)
        row_offsets = torch.tensor([0, *accumulate(row_tokens)], dtype=torch.int64)
        return PagedRows(
            page_table=page_table.to(device),
            start_tokens=starts.to(device),
            row_offsets=row_offsets.to(device),
            slots=find_slots(page_table, starts, row_offsets, page_tokens).to(device),
            page_tokens=page_tokens,
        )

    def check(self, *, tokens: int, pool_pages: int) -> None:
        """Raise unless the rows cover `tokens` tokens and touch only pages of the pool.

        Values are looked at where that is free: not on a GPU, whose step would wait for it.

        Raises:
            ShapeMismatch: Tensors do not fit each other, or a row does not end in its pages.
            DtypeMismatch: A tensor is not int64, or devices differ.
            PageOutOfRange: A page that a row reads or writes is not in `[0, pool_pages)`.
        """
        tensors = {name: getattr(self, name) for name in ("page_table", "start_tokens", "row_offsets", "slots")}
        for name, tensor in tensors.items():
            if tensor.dtype != torch.int64:
                raise DtypeMismatch(f"{name} is {tensor.dtype}, not torch.int64")
            # Lines of the table may lie apart, as those of a slice of a wider one do.
            if tensor.numel() and not (tensor[0] if name == "page_table" else tensor).is_contiguous():
                raise ShapeMismatch(f"{name} must be contiguous")
        check_devices(**tensors)
        if self.page_table.dim() != 2 or self.start_tokens.shape != (self.rows,):
            raise ShapeMismatch(f"page_table {tuple(self.page_table.shape)}, starts {tuple(self.start_tokens.shape)}")
        if self.row_offsets.shape != (self.rows + 1,):
            raise ShapeMismatch(f"row_offsets {tuple(self.row_offsets.shape)} for {self.rows} rows")
        if self.slots.shape != (tokens,):
            raise ShapeMismatch(f"slots {tuple(self.slots.shape)} for {tokens} tokens")
        if can_read(self.row_offsets):
            if int(self.row_offsets[0]) != 0 or int(self.row_offsets[-1]) != tokens:
                raise ShapeMismatch(f"row_offsets end at {int(self.row_offsets[-1])}, the tokens at {tokens}")
            if self.rows:
                self._check_ranges(pool_pages)

    def _check_ranges(self, pool_pages: int) -> None:
        if int(self.row_tokens.min()) < 0 or int(self.start_tokens.min()) < 0:
            raise ShapeMismatch("a row has a negative start or count")
        used = (self.end_tokens + self.page_tokens - 1) // self.page_tokens
        if int(used.max()) > self.page_table.shape[1]:
            raise ShapeMismatch(f"a row needs {int(used.max())} pages, the table has {self.page_table.shape[1]}")
        columns = torch.arange(self.page_table.shape[1], device=self.page_table.device)
        touched = self.page_table[columns < used[:, None]]
        if touched.numel() and (int(touched.min()) < 0 or int(touched.max()) >= pool_pages):
            raise PageOutOfRange(f"pages {int(touched.min())}..{int(touched.max())}, the pool has {pool_pages}")


def find_slots(page_table: Tensor, start_tokens: Tensor, row_offsets: Tensor, page_tokens: int) -> Tensor:
    """Slot of every token of the rows, [tokens]."""
    rows = torch.arange(len(start_tokens), device=page_table.device)
    row_of_token = torch.repeat_interleave(rows, row_offsets.diff())
    place_in_row = torch.arange(len(row_of_token), device=page_table.device) - row_offsets[row_of_token]
    positions = start_tokens[row_of_token] + place_in_row
    pages = page_table[row_of_token, positions // page_tokens]
    return pages * page_tokens + positions % page_tokens
