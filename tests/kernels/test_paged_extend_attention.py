"""Extend attention equals attention written as loops over tokens and heads."""

from dataclasses import replace

import pytest
import torch
from attention import attend_all, make_contexts, make_pools

from kernels.errors import DtypeMismatch, PageOutOfRange, ShapeMismatch
from kernels.paged_extend_attention import paged_extend_attention, paged_extend_attention_with_lse
from kernels.paged_rows import PagedRows
from kernels.testing import assert_close

SCALE = 0.3


def build(starts, counts, *, page_tokens=4, query_heads=4, kv_heads=2, head_dim=16, dtype=torch.float32, device="cpu"):
    """Random sequences in shuffled pages; everything the rows do not own is NaN."""
    lengths = [start + count for start, count in zip(starts, counts, strict=True)]
    contexts = make_contexts(lengths, kv_heads, head_dim, dtype)
    key_pool, value_pool, pages = make_pools(contexts, page_tokens, device=device)
    chance = torch.Generator().manual_seed(3)
    queries = torch.randn(sum(counts), query_heads, head_dim, generator=chance).to(dtype).to(device)
    rows = PagedRows.of(pages, starts, counts, page_tokens=page_tokens, device=device)
    return (queries, key_pool, value_pool, rows), contexts


def expect(call, contexts, sees, sinks=None):
    """`sees[row][token]` are the positions that a token of a row sees."""
    queries, rows = call[0].cpu(), call[3]
    offsets = rows.row_offsets.tolist()
    outs, lses = [torch.zeros(0, *queries.shape[1:])], [torch.zeros(0, queries.shape[1])]
    for row, (keys, values) in enumerate(contexts):
        out, lse = attend_all(queries[offsets[row] : offsets[row + 1]], keys, values, sees[row], SCALE, sinks)
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs).to(queries.dtype), torch.cat(lses).float()


def see_causally(starts, counts, window=None):
    return [
        [
            range(max(0, position + 1 - window) if window else 0, position + 1)
            for position in range(start, start + count)
        ]
        for start, count in zip(starts, counts, strict=True)
    ]


def check(got, expected):
    assert_close("out", got[0].cpu(), expected[0])
    assert_close("lse", got[1].cpu(), expected[1])


SHAPES = {
    "one token": ([0], [1]),
    "whole prompt": ([0], [67]),
    "chunk behind a context": ([70], [9]),
    "decode": ([129], [1]),
    "last page full": ([4], [4]),
    "mixed batch": ([0, 9, 3, 65], [5, 1, 40, 1]),
    "several decodes": ([3, 8, 0, 21], [1, 1, 1, 1]),
    "empty rows": ([2, 6, 0, 5], [3, 0, 2, 0]),
}


@pytest.mark.parametrize("page_tokens", [1, 5, 64])
@pytest.mark.parametrize(("starts", "counts"), SHAPES.values(), ids=SHAPES)
def test_it_equals_attention_written_as_loops(device, starts, counts, page_tokens):
    call, contexts = build(starts, counts, page_tokens=page_tokens, device=device)
    got = paged_extend_attention_with_lse(*call, scale=SCALE)
    check(got, expect(call, contexts, see_causally(starts, counts)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("query_heads", "kv_heads", "head_dim"), [(1, 1, 3), (6, 2, 24), (3, 3, 96), (20, 1, 16)])
def test_query_heads_share_key_heads_in_groups(device, query_heads, kv_heads, head_dim, dtype):
    sizes = {"query_heads": query_heads, "kv_heads": kv_heads, "head_dim": head_dim}
    call, contexts = build([5, 66], [4, 11], **sizes, dtype=dtype, device=device)
    got = paged_extend_attention_with_lse(*call, scale=SCALE)
    check(got, expect(call, contexts, see_causally([5, 66], [4, 11])))


@pytest.mark.parametrize("window", [1, 3, 64, 70, 1000])
def test_a_window_sees_the_last_tokens_and_reads_no_others(device, window):
    starts, counts = [0, 130, 3], [70, 66, 1]
    call, contexts = build(starts, counts, page_tokens=64, device=device)
    table = call[3].page_table
    for row, start in enumerate(starts):
        for position in range(max(0, start + 1 - window)):
            for pool in call[1:3]:
                pool[table[row, position // 64], position % 64] = torch.nan
    got = paged_extend_attention_with_lse(*call, scale=SCALE, window_tokens=window)
    check(got, expect(call, contexts, see_causally(starts, counts, window)))


#: Parents of drafted tokens, -1 for the context: a tree of branches, a chain, and a token alone.
TREES = [[-1, 0, 0, 1, 2, 2, -1], [-1, 0, 1, 2], [-1]]


def path_of(tree, node):
    return [] if node < 0 else [*path_of(tree, tree[node]), node]


@pytest.mark.parametrize("window", [None, 2, 5, 66])
def test_drafted_branches_see_their_own_path_and_the_context(device, window):
    starts, counts = [66, 1, 7], [len(tree) for tree in TREES]
    call, contexts = build(starts, counts, device=device)
    # Columns past a row's own tokens are not looked at.
    mask = torch.ones(sum(counts), 9, dtype=torch.bool)
    sees, token = [], 0
    for start, tree in zip(starts, TREES, strict=True):
        seen_by = []
        for node in range(len(tree)):
            path = path_of(tree, node)
            mask[token, : len(tree)] = False
            mask[token, path] = True
            line = [*range(start), *(start + one for one in path)]
            seen_by.append(line[-window:] if window else line)
            token += 1
        sees.append(seen_by)
    got = paged_extend_attention_with_lse(*call, scale=SCALE, mask=mask.to(device), window_tokens=window)
    check(got, expect(call, contexts, sees))


def test_a_causal_mask_is_no_mask(device):
    call, _ = build([5, 0], [70, 3], device=device)
    mask = torch.ones(70, 70, dtype=torch.bool).tril()
    both = torch.cat((mask, mask[:3])).to(device)
    got = paged_extend_attention_with_lse(*call, scale=SCALE, mask=both)
    plain = paged_extend_attention_with_lse(*call, scale=SCALE)
    check(got, (plain[0].cpu(), plain[1].cpu()))


def test_sinks_take_part_without_a_value(device):
    sinks = torch.tensor([0.3, -2.0, 5.0, -1e4])
    call, contexts = build([0, 7], [5, 2], device=device)
    got = paged_extend_attention_with_lse(*call, scale=SCALE, sinks=sinks.to(device))
    check(got, expect(call, contexts, see_causally([0, 7], [5, 2]), sinks))


def test_a_float8_pool_is_read_with_its_scales(device):
    (queries, key_pool, value_pool, rows), contexts = build([9], [5], device=device)
    key_pool, value_pool = (pool.nan_to_num().to(torch.float8_e4m3fn) for pool in (key_pool, value_pool))
    call = queries, key_pool, value_pool, rows
    rounded = [tuple(part.to(torch.float8_e4m3fn).float() for part in one) for one in contexts]
    got = paged_extend_attention_with_lse(*call, scale=SCALE, key_scale=0.5, value_scale=3.0)
    scaled = [(keys * 0.5, values * 3.0) for keys, values in rounded]
    check(got, expect(call, scaled, see_causally([9], [5])))


def test_a_context_that_holds_no_number_is_not_an_empty_one(device):
    (queries, key_pool, value_pool, rows), _ = build([9, 3], [2, 1], device=device)
    key_pool[rows.page_table[1, 0], 1] = torch.nan
    out, lse = paged_extend_attention_with_lse(queries, key_pool, value_pool, rows, scale=SCALE)
    assert out[2].isnan().all()
    assert lse[2].isnan().all()
    assert out[:2].isfinite().all()
    assert lse[:2].isfinite().all()


def test_no_rows_give_no_output(device):
    call, _ = build([], [], device=device)
    queries = torch.zeros(0, 4, 8, device=device)
    assert paged_extend_attention(queries, *call[1:], scale=SCALE).shape == (0, 4, 8)


def test_rows_may_read_the_same_pages(device):
    (queries, key_pool, value_pool, rows), _ = build([6], [2], device=device)
    one = paged_extend_attention(queries, key_pool, value_pool, rows, scale=SCALE)
    pages = rows.page_table[0].tolist()
    twice = PagedRows.of([pages, pages], [6, 6], [2, 2], page_tokens=4, device=device)
    both = paged_extend_attention(torch.cat((queries, queries)), key_pool, value_pool, twice, scale=SCALE)
    assert_close("both", both, torch.cat((one, one)))


def test_a_wider_table_of_pages_changes_nothing(device):
    (queries, key_pool, value_pool, rows), _ = build([6, 66], [2, 9], device=device)
    narrow = paged_extend_attention_with_lse(queries, key_pool, value_pool, rows, scale=SCALE)
    padded = torch.nn.functional.pad(rows.page_table, (0, 5), value=10**6)
    wide = paged_extend_attention_with_lse(queries, key_pool, value_pool, replace(rows, page_table=padded), scale=SCALE)
    assert torch.equal(wide[0], narrow[0])
    assert torch.equal(wide[1], narrow[1])


def test_queries_may_lie_apart(device):
    (queries, key_pool, value_pool, rows), _ = build([6], [2], device=device)
    apart = torch.cat((queries, queries), dim=1)[:, :4]
    got = paged_extend_attention(apart, key_pool, value_pool, rows, scale=SCALE)
    assert_close("out", got, paged_extend_attention(queries, key_pool, value_pool, rows, scale=SCALE))


def bad_calls():
    (queries, key_pool, value_pool, _), _ = build([3], [5])
    yield "heads that do not divide", ShapeMismatch, {"queries": queries[:, :3]}
    yield "other head_dim", ShapeMismatch, {"queries": queries[..., :4]}
    yield "fewer tokens", ShapeMismatch, {"queries": queries[:4]}
    yield "half queries", DtypeMismatch, {"queries": queries.half()}
    yield (
        "double",
        DtypeMismatch,
        {
            "queries": queries.double(),
            "key_pool": key_pool.double(),
            "value_pool": value_pool.double(),
        },
    )
    yield "small pool", PageOutOfRange, {"key_pool": key_pool[:1], "value_pool": value_pool[:1]}
    yield "no window", ShapeMismatch, {"window_tokens": 0}
    yield "sinks of two heads", ShapeMismatch, {"sinks": torch.zeros(2)}
    yield "mask of numbers", DtypeMismatch, {"mask": torch.ones(5, 5)}
    yield "narrow mask", ShapeMismatch, {"mask": torch.ones(5, 4, dtype=torch.bool)}
    yield "short mask", ShapeMismatch, {"mask": torch.ones(4, 5, dtype=torch.bool)}
    yield "a scale without float8", DtypeMismatch, {"value_scale": 2.0}


@pytest.mark.parametrize(("error", "change"), [case[1:] for case in bad_calls()], ids=[case[0] for case in bad_calls()])
def test_what_does_not_fit_is_refused(error, change):
    call, _ = build([3], [5])
    names = ("queries", "key_pool", "value_pool", "rows")
    with pytest.raises(error):
        paged_extend_attention(**{**dict(zip(names, call, strict=True)), "scale": SCALE, **change})
