"""Rows of a step name slots that lie in their pages, or are refused."""

import pytest
import torch

from kernels.errors import DeviceMismatch, DtypeMismatch, PageOutOfRange, ShapeMismatch
from kernels.paged_rows import PagedRows


def replaced(rows, **fields):
    names = ("page_table", "start_tokens", "row_offsets", "slots", "page_tokens")
    return PagedRows(**{**{name: getattr(rows, name) for name in names}, **fields})


def bad_rows():
    rows = PagedRows.of([[2, 3]], [3], [3], page_tokens=4)
    yield "page past the pool", PageOutOfRange, PagedRows.of([[2, 9]], [3], [3], page_tokens=4)
    yield "negative page", PageOutOfRange, PagedRows.of([[-1, 3]], [3], [3], page_tokens=4)
    yield "int32 table", DtypeMismatch, replaced(rows, page_table=rows.page_table.int())
    yield "int32 slots", DtypeMismatch, replaced(rows, slots=rows.slots.int())
    yield "table too narrow", ShapeMismatch, replaced(rows, page_table=rows.page_table[:, :1])
    yield "flat table", ShapeMismatch, replaced(rows, page_table=rows.page_table[0])
    yield "too few offsets", ShapeMismatch, replaced(rows, row_offsets=rows.row_offsets[:1])
    yield "too few slots", ShapeMismatch, replaced(rows, slots=rows.slots[:1])
    yield "offsets not from 0", ShapeMismatch, replaced(rows, row_offsets=rows.row_offsets + 1)
    yield "negative start", ShapeMismatch, replaced(rows, start_tokens=rows.start_tokens - 9)
    yield "starts elsewhere", DeviceMismatch, replaced(rows, start_tokens=rows.start_tokens.to("meta"))
    yield "turned table", ShapeMismatch, replaced(rows, page_table=torch.zeros(2, 2).long().t()[:1])
    yield "strided offsets", ShapeMismatch, replaced(rows, row_offsets=torch.tensor([0, 9, 3])[::2])
    yield "strided slots", ShapeMismatch, replaced(rows, slots=rows.slots.repeat_interleave(2)[::2])
    two = PagedRows.of([[0], [1]], [0, 0], [2, 1], page_tokens=4)
    yield "falling offsets", ShapeMismatch, replaced(two, row_offsets=torch.tensor([0, 4, 3]))


@pytest.mark.parametrize(("error", "rows"), [case[1:] for case in bad_rows()], ids=[case[0] for case in bad_rows()])
def test_rows_that_do_not_fit_a_pool_are_refused(error, rows):
    with pytest.raises(error):
        rows.check(tokens=3, pool_pages=9)


@pytest.mark.parametrize(
    ("pages", "starts", "counts"), [([[1]], [0], [5]), ([[1]], [-1], [2]), ([[1]], [2], [-1]), ([[1]], [0, 0], [1])]
)
def test_rows_that_do_not_lie_in_their_pages_cannot_be_made(pages, starts, counts):
    with pytest.raises(ShapeMismatch):
        PagedRows.of(pages, starts, counts, page_tokens=4)


def test_a_token_lies_at_its_place_in_its_page():
    rows = PagedRows.of([[5, 2], [7]], [3, 0], [3, 2], page_tokens=4)
    assert rows.slots.tolist() == [23, 8, 9, 28, 29]
    rows.check(tokens=5, pool_pages=8)


def test_pages_behind_the_last_used_one_are_not_looked_at():
    rows = PagedRows.of([[1, 77]], [0], [4], page_tokens=4)
    assert rows.page_table.tolist() == [[1]]
    rows.check(tokens=4, pool_pages=2)


def test_pages_hold_a_token_at_least():
    with pytest.raises(ShapeMismatch):
        PagedRows.of([[1]], [0], [0], page_tokens=0)


def test_lines_of_the_table_may_lie_apart():
    rows = PagedRows.of([[0, 1], [2, 3]], [0, 0], [3, 3], page_tokens=4)
    replaced(rows, page_table=rows.page_table[:, :1]).check(tokens=6, pool_pages=4)
