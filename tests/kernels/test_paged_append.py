"""paged_append writes every token to its slot, nothing else, and refuses before it writes."""

import pytest
import torch

from kernels.errors import DtypeMismatch, KernelError, PageOutOfRange, ShapeMismatch
from kernels.paged_append import paged_append
from kernels.paged_rows import PagedRows

HEADS, DIM = 3, 5


def make_pools(pages=9, page_tokens=4, dtype=torch.float32):
    shape = (pages, page_tokens, HEADS, DIM)
    return torch.full(shape, -1.0, dtype=dtype), torch.full(shape, -2.0, dtype=dtype)


def make_rows(tokens, dtype=torch.float32):
    """Every row filled with its own number, so that a shifted slot is visible."""
    keys = torch.arange(1, tokens + 1, dtype=dtype)[:, None, None].expand(tokens, HEADS, DIM).contiguous()
    return keys, keys + 0.5


@pytest.mark.parametrize("page_tokens", [1, 3, 4, 7])
@pytest.mark.parametrize(("starts", "counts"), [([0], [1]), ([5], [6]), ([0, 3, 2], [4, 1, 7]), ([2, 0], [0, 3])])
def test_every_token_lands_in_its_slot_and_no_other_slot_changes(page_tokens, starts, counts):
    needed = [-(-(start + count) // page_tokens) for start, count in zip(starts, counts, strict=True)]
    numbers = iter(torch.randperm(sum(needed) + 2, generator=torch.Generator().manual_seed(1)).tolist())
    pages = [[next(numbers) for _ in range(count)] for count in needed]
    key_pool, value_pool = make_pools(sum(needed) + 2, page_tokens)
    expected_keys, expected_values = key_pool.clone(), value_pool.clone()
    keys, values = make_rows(sum(counts))
    token = 0
    for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
        for position in range(start, start + count):
            place = pages[row][position // page_tokens], position % page_tokens
            expected_keys[place], expected_values[place] = keys[token], values[token]
            token += 1
    paged_append(keys, values, key_pool, value_pool, PagedRows.of(pages, starts, counts, page_tokens=page_tokens))
    assert torch.equal(key_pool, expected_keys)
    assert torch.equal(value_pool, expected_values)


def test_no_rows_and_empty_rows_write_nothing():
    key_pool, value_pool = make_pools()
    for rows in (PagedRows.of([], [], [], page_tokens=4), PagedRows.of([[1]], [2], [0], page_tokens=4)):
        paged_append(*make_rows(0), key_pool, value_pool, rows)
    assert torch.equal(key_pool, make_pools()[0])


def good_call():
    return {
        "keys": make_rows(3)[0],
        "values": make_rows(3)[1],
        "pools": make_pools(),
        "rows": PagedRows.of([[2, 3]], [3], [3], page_tokens=4),
    }


def replaced(rows, **fields):
    values = {name: getattr(rows, name) for name in ("page_table", "start_tokens", "row_offsets", "page_tokens")}
    return PagedRows(**{**values, **fields})


def bad_calls():
    good = good_call()
    rows, (key_pool, value_pool) = good["rows"], good["pools"]
    yield "fewer values", ShapeMismatch, {"values": good["values"][:2]}
    yield "other heads", ShapeMismatch, {"keys": good["keys"][:, :2], "values": good["values"][:, :2]}
    yield "other head_dim", ShapeMismatch, {"keys": good["keys"][..., :4], "values": good["values"][..., :4]}
    yield "flat keys", ShapeMismatch, {"keys": good["keys"][0], "values": good["values"][0]}
    yield "more tokens than rows say", ShapeMismatch, dict(zip(("keys", "values"), make_rows(4), strict=True))
    yield "pools of two sizes", ShapeMismatch, {"pools": (key_pool, value_pool[:5])}
    yield "flat pools", ShapeMismatch, {"pools": (key_pool[0], value_pool[0])}
    yield "pools of another page", ShapeMismatch, {"pools": make_pools(page_tokens=5)}
    strided = torch.zeros(9, 4, DIM, HEADS).transpose(2, 3)
    yield "strided pools", ShapeMismatch, {"pools": (strided, strided.clone(memory_format=torch.preserve_format))}
    yield "half keys", DtypeMismatch, {"keys": good["keys"].half()}
    yield "half values", DtypeMismatch, {"values": good["values"].half()}
    yield "pools of two dtypes", DtypeMismatch, {"pools": (key_pool, value_pool.half())}
    yield "page past the pool", PageOutOfRange, {"rows": PagedRows.of([[2, 9]], [3], [3], page_tokens=4)}
    yield "negative page", PageOutOfRange, {"rows": PagedRows.of([[-1, 3]], [3], [3], page_tokens=4)}
    yield "int32 table", DtypeMismatch, {"rows": replaced(rows, page_table=rows.page_table.int())}
    yield "table too narrow", ShapeMismatch, {"rows": replaced(rows, page_table=rows.page_table[:, :1])}
    yield "flat table", ShapeMismatch, {"rows": replaced(rows, page_table=rows.page_table[0])}
    yield "too few offsets", ShapeMismatch, {"rows": replaced(rows, row_offsets=rows.row_offsets[:1])}
    yield "offsets not from 0", ShapeMismatch, {"rows": replaced(rows, row_offsets=rows.row_offsets + 1)}
    yield "negative start", ShapeMismatch, {"rows": replaced(rows, start_tokens=rows.start_tokens - 9)}
    two = PagedRows.of([[0], [1]], [0, 0], [2, 1], page_tokens=4)
    yield "falling offsets", ShapeMismatch, {"rows": replaced(two, row_offsets=torch.tensor([0, 4, 3]))}


@pytest.mark.parametrize(("error", "change"), [case[1:] for case in bad_calls()], ids=[case[0] for case in bad_calls()])
def test_what_does_not_fit_is_refused_before_anything_is_written(error, change):
    call = {**good_call(), **change}
    key_pool, value_pool = call["pools"]
    before = key_pool.clone(), value_pool.clone()
    with pytest.raises(error) as caught:
        paged_append(call["keys"], call["values"], key_pool, value_pool, call["rows"])
    assert isinstance(caught.value, KernelError)
    assert torch.equal(key_pool, before[0])
    assert torch.equal(value_pool, before[1])


@pytest.mark.parametrize(
    ("pages", "starts", "counts"), [([[1]], [0], [5]), ([[1]], [-1], [2]), ([[1]], [2], [-1]), ([[1]], [0, 0], [1])]
)
def test_rows_that_do_not_lie_in_their_pages_cannot_be_made(pages, starts, counts):
    with pytest.raises(ShapeMismatch):
        PagedRows.of(pages, starts, counts, page_tokens=4)


def test_pages_behind_the_last_used_one_are_not_looked_at():
    key_pool, value_pool = make_pools(pages=2)
    rows = PagedRows.of([[1, 77]], [0], [4], page_tokens=4)
    paged_append(*make_rows(4), key_pool, value_pool, rows)
    assert torch.equal(key_pool[1], make_rows(4)[0])
