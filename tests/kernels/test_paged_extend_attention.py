"""paged_extend_attention equals attention written as a loop over tokens and heads."""

import math

import pytest
import torch

from kernels.errors import DtypeMismatch, PageOutOfRange, ShapeMismatch
from kernels.paged_extend_attention import paged_extend_attention
from kernels.paged_rows import PagedRows


def naive(queries, keys, values, start, scale):
    """One sequence, unpaged: token by token and head by head, in double."""
    out = torch.empty_like(queries)
    group = queries.shape[1] // keys.shape[1]
    for token in range(queries.shape[0]):
        for head in range(queries.shape[1]):
            seen = slice(0, start + token + 1)
            scores = keys[seen, head // group].double() @ queries[token, head].double() * scale
            out[token, head] = (torch.softmax(scores, 0) @ values[seen, head // group].double()).to(out.dtype)
    return out


def build(starts, counts, *, page_tokens=4, query_heads=4, kv_heads=2, head_dim=8, dtype=torch.float32):
    """Random sequences in shuffled pages; everything the rows do not own is NaN."""
    chance = torch.Generator().manual_seed(7)
    lengths = [start + count for start, count in zip(starts, counts, strict=True)]
    needed = [-(-length // page_tokens) for length in lengths]
    numbers = torch.randperm(sum(needed) + 3, generator=chance).tolist()
    pages = [[numbers.pop() for _ in range(count)] for count in needed]
    shape = (sum(needed) + 3, page_tokens, kv_heads, head_dim)
    key_pool = torch.full(shape, math.nan, dtype=dtype)
    value_pool = torch.full(shape, math.nan, dtype=dtype)
    contexts = []
    for row, length in zip(pages, lengths, strict=True):
        keys, values = torch.randn(2, length, kv_heads, head_dim, generator=chance).to(dtype)
        contexts.append((keys, values))
        for position in range(length):
            place = row[position // page_tokens], position % page_tokens
            key_pool[place], value_pool[place] = keys[position], values[position]
    queries = torch.randn(sum(counts), query_heads, head_dim, generator=chance).to(dtype)
    return queries, key_pool, value_pool, PagedRows.of(pages, starts, counts, page_tokens=page_tokens), contexts


SHAPES = {
    "one token": ([0], [1]),
    "whole prompt": ([0], [11]),
    "chunk behind a context": ([7], [6]),
    "decode": ([12], [1]),
    "last page full": ([4], [4]),
    "mixed batch": ([0, 9, 3, 15], [5, 1, 4, 1]),
    "several decodes": ([3, 8, 0, 21], [1, 1, 1, 1]),
    "an empty row between": ([2, 6, 0], [3, 0, 2]),
}


@pytest.mark.parametrize("page_tokens", [1, 3, 4])
@pytest.mark.parametrize(("starts", "counts"), SHAPES.values(), ids=SHAPES)
def test_it_equals_attention_written_as_a_loop(starts, counts, page_tokens):
    queries, key_pool, value_pool, rows, contexts = build(starts, counts, page_tokens=page_tokens)
    out = paged_extend_attention(queries, key_pool, value_pool, rows, scale=0.3)
    offsets = rows.row_offsets.tolist()
    for row, (keys, values) in enumerate(contexts):
        span = slice(offsets[row], offsets[row + 1])
        expected = naive(queries[span], keys, values, starts[row], 0.3)
        torch.testing.assert_close(out[span], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("query_heads", "kv_heads", "head_dim"), [(1, 1, 3), (6, 2, 5), (3, 3, 16), (8, 1, 32)])
def test_query_heads_share_key_heads_in_groups(query_heads, kv_heads, head_dim):
    sizes = {"query_heads": query_heads, "kv_heads": kv_heads, "head_dim": head_dim}
    queries, key_pool, value_pool, rows, ((keys, values),) = build([5], [4], **sizes)
    out = paged_extend_attention(queries, key_pool, value_pool, rows, scale=1.0)
    torch.testing.assert_close(out, naive(queries, keys, values, 5, 1.0), rtol=1e-5, atol=1e-6)


def test_no_rows_give_no_output():
    queries, key_pool, value_pool, rows, _ = build([], [])
    assert paged_extend_attention(queries, key_pool, value_pool, rows, scale=1.0).shape == (0, 4, 8)


def test_rows_may_read_the_same_pages():
    queries, key_pool, value_pool, rows, _ = build([6], [2])
    one = paged_extend_attention(queries, key_pool, value_pool, rows, scale=1.0)
    pages = rows.page_table[0].tolist()
    twice = PagedRows.of([pages, pages], [6, 6], [2, 2], page_tokens=4)
    both = paged_extend_attention(torch.cat((queries, queries)), key_pool, value_pool, twice, scale=1.0)
    torch.testing.assert_close(both, torch.cat((one, one)))


def test_what_does_not_fit_is_refused():
    queries, key_pool, value_pool, rows, _ = build([3], [5])
    with pytest.raises(ShapeMismatch, match="multiple"):
        paged_extend_attention(queries[:, :3], key_pool, value_pool, rows, scale=1.0)
    with pytest.raises(ShapeMismatch, match="head_dim"):
        paged_extend_attention(queries[..., :4], key_pool, value_pool, rows, scale=1.0)
    with pytest.raises(ShapeMismatch, match="for 4 tokens"):
        paged_extend_attention(queries[:4], key_pool, value_pool, rows, scale=1.0)
    with pytest.raises(DtypeMismatch, match="float16"):
        paged_extend_attention(queries.half(), key_pool, value_pool, rows, scale=1.0)
    with pytest.raises(PageOutOfRange):
        paged_extend_attention(queries, key_pool[:1], value_pool[:1], rows, scale=1.0)
