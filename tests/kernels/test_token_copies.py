"""Tokens of a sequence: every byte lands at its position's place, whatever was sent and whatever lay there before."""

import pytest
import torch
from copies import as_layers, few, fill, picks, pools, same_bytes
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import OverlappingRanges, PageOutOfRange, ShapeMismatch
from kernels.head_reshard import gather_heads, scatter_heads
from kernels.page_scatter import page_scatter
from kernels.window_copy import window_gather, window_scatter


def draw_span(data, limit):
    start = data.draw(st.integers(0, limit), label="start_token")
    return start, data.draw(st.integers(start, limit), label="end_token")


@few
@given(st.data())
def test_a_scattered_tail_begins_at_its_token_and_leaves_all_else(device, data):
    pool, is_table = data.draw(pools(device))
    page_ids = data.draw(picks(pool.shape[1], device, distinct=True))
    page_tokens = pool.shape[2]
    start, end = draw_span(data, len(page_ids) * page_tokens)
    staging = fill((len(pool), end - start, *pool.shape[3:]), pool.dtype, device).flip(0).contiguous()
    expected = pool.clone()
    for position in range(start, end):
        expected[:, page_ids[position // page_tokens], position % page_tokens] = staging[:, position - start]
    page_scatter(staging, page_ids, as_layers(pool, is_table), start_token=start)
    assert same_bytes(pool, expected)


@few
@given(st.data())
def test_a_slice_of_heads_is_packed_and_lands_in_its_columns(device, data):
    pool, is_table = data.draw(pools(device))
    page_ids = data.draw(picks(pool.shape[1], device, distinct=True))
    page_tokens, kv_heads = pool.shape[2:4]
    start, end = draw_span(data, len(page_ids) * page_tokens)
    first_head = data.draw(st.integers(0, kv_heads - 1))
    heads = data.draw(st.integers(1, kv_heads - first_head))
    layers = as_layers(pool, is_table)
    packed = gather_heads(layers, page_ids, first_head=first_head, heads=heads, start_token=start, end_token=end)
    columns = slice(first_head, first_head + heads)
    for position in range(start, end):
        row = pool[:, page_ids[position // page_tokens], position % page_tokens, columns]
        assert same_bytes(packed[:, position - start], row)
    writers = data.draw(st.sampled_from([one for one in range(1, heads + 1) if heads % one == 0]))
    part = heads // writers
    staging = torch.stack([packed[:, :, one * part : (one + 1) * part] for one in range(writers)]).contiguous()
    other = fill(pool.shape, pool.dtype, device).flip(0).contiguous()
    expected = other.clone()
    for position in range(start, end):
        place = page_ids[position // page_tokens], position % page_tokens
        expected[(slice(None), *place, columns)] = packed[:, position - start]
    scatter_heads(staging, page_ids, as_layers(other, is_table), first_head=first_head, start_token=start)
    assert same_bytes(other, expected)


@pytest.mark.parametrize(("writers", "readers"), [(4, 2), (2, 4), (1, 2), (2, 1), (4, 1)])
@pytest.mark.parametrize("start", [0, 3, 4, 9])
def test_kv_of_p_ranks_arrives_at_d_ranks_head_by_head(device, writers, readers, start):
    """Each element is its own position and head, so that a shift shows."""
    layers, page_tokens, heads, dim, tokens = 2, 4, 4, 8, 13
    marks = torch.arange(layers * tokens * heads, dtype=torch.int32).view(layers, tokens, heads, 1)
    marks = marks.expand(layers, tokens, heads, dim).to(device)
    page_ids = torch.tensor([5, 0, 3, 1], device=device)
    sent = []
    for writer in range(writers):
        own = slice(writer * heads // writers, (writer + 1) * heads // writers)
        pool = torch.zeros((layers, 6, page_tokens, heads // writers, dim), dtype=torch.int32, device=device)
        page_scatter(marks[:, :, own].contiguous(), page_ids, pool, start_token=0)
        sent.append(pool)
    for reader in range(readers):
        own = slice(reader * heads // readers, (reader + 1) * heads // readers)
        pool = torch.full((layers, 6, page_tokens, heads // readers, dim), -1, dtype=torch.int32, device=device)
        each = min(heads // writers, heads // readers)
        first_writer = own.start * writers // heads
        parts = [
            gather_heads(
                sent[writer],
                page_ids,
                first_head=max(0, own.start - writer * heads // writers),
                heads=each,
                start_token=start,
                end_token=tokens,
            )
            for writer in range(first_writer, max(first_writer + 1, own.stop * writers // heads))
        ]
        scatter_heads(torch.stack(parts), page_ids, pool, first_head=0, start_token=start)
        for position in range(tokens):
            row = pool[:, page_ids[position // page_tokens], position % page_tokens]
            assert torch.equal(row, marks[:, position, own] if position >= start else torch.full_like(row, -1))


@few
@given(st.data())
def test_a_window_comes_out_of_its_ring_oldest_first_and_goes_back_to_the_same_places(device, data):
    pool, is_table = data.draw(pools(device))
    page_tokens = pool.shape[2]
    count = data.draw(st.integers(1, pool.shape[1]))
    ring = data.draw(picks(pool.shape[1], device, distinct=True, count=count))
    end = data.draw(st.integers(0, 40), label="end_token")
    window = data.draw(st.integers(0, (count - 1) * page_tokens + 1), label="window_tokens")
    tail = window_gather(as_layers(pool, is_table), ring, end_token=end, window_tokens=window)
    positions = range(max(0, end - window), end)
    places = [(ring[position // page_tokens % count], position % page_tokens) for position in positions]
    assert tail.shape[1] == len(places)
    for number, place in enumerate(places):
        assert same_bytes(tail[:, number], pool[(slice(None), *place)])
    other = fill(pool.shape, pool.dtype, device).flip(0).contiguous()
    expected = other.clone()
    for number, place in enumerate(places):
        expected[(slice(None), *place)] = tail[:, number]
    window_scatter(tail, ring, as_layers(other, is_table), end_token=end)
    assert same_bytes(other, expected)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_window_below_a_page_is_found_wherever_it_lies(device, window):
    pool = fill((1, 3, 4, 1, 4), torch.float32, device)
    ring = torch.tensor([2, 0], device=device)
    for end in range(1, 20):
        tail = window_gather(pool, ring, end_token=end, window_tokens=window)
        for number, position in enumerate(range(max(0, end - window), end)):
            assert same_bytes(tail[0, number], pool[0, ring[position // 4 % 2], position % 4])


POOL = torch.zeros(2, 4, 3, 2, 8)
IDS = torch.tensor([1, 3])
TAIL = torch.ones(2, 4, 2, 8)
SPAN = {"start_token": 0, "end_token": 2}


def bad_calls():
    yield "tail past its pages", ShapeMismatch, lambda: page_scatter(TAIL, IDS, POOL, start_token=3)
    yield "negative start", ShapeMismatch, lambda: page_scatter(TAIL, IDS, POOL, start_token=-1)
    yield "other heads", ShapeMismatch, lambda: page_scatter(TAIL[:, :, :1].contiguous(), IDS, POOL, start_token=0)
    yield "flat staging", ShapeMismatch, lambda: page_scatter(TAIL[0, 0], IDS, POOL, start_token=0)
    nothing, none = torch.zeros(2, 4, 0, 2, 8), torch.zeros(2, 0, 2, 8)
    yield "pages of no token", ShapeMismatch, lambda: page_scatter(none, IDS, nothing, start_token=0)
    yield "a page twice", OverlappingRanges, lambda: page_scatter(TAIL, IDS * 0, POOL, start_token=0)
    yield "page past the pool", PageOutOfRange, lambda: page_scatter(TAIL, IDS + 1, POOL, start_token=0)
    staging = torch.ones(3, 2, 4, 1, 8)
    yield (
        "heads of too many writers",
        ShapeMismatch,
        lambda: scatter_heads(staging, IDS, POOL, first_head=0, start_token=0),
    )
    yield "flat heads", ShapeMismatch, lambda: scatter_heads(TAIL, IDS, POOL, first_head=0, start_token=0)
    yield "negative head", ShapeMismatch, lambda: gather_heads(POOL, IDS, first_head=-1, heads=1, **SPAN)
    yield "pool without heads", ShapeMismatch, lambda: gather_heads(POOL[0], IDS, first_head=0, heads=1, **SPAN)
    yield (
        "a span that falls",
        ShapeMismatch,
        lambda: gather_heads(POOL, IDS, first_head=0, heads=1, start_token=2, end_token=1),
    )
    yield "a ring too short", ShapeMismatch, lambda: window_gather(POOL, IDS, end_token=7, window_tokens=5)
    yield "negative window", ShapeMismatch, lambda: window_gather(POOL, IDS, end_token=7, window_tokens=-1)
    yield "tail before the sequence", ShapeMismatch, lambda: window_scatter(TAIL, IDS, POOL, end_token=3)
    yield "flat tail", ShapeMismatch, lambda: window_scatter(TAIL[0, 0], IDS, POOL, end_token=4)
    yield "a ring with a page twice", OverlappingRanges, lambda: window_scatter(TAIL, IDS * 0, POOL, end_token=4)


@pytest.mark.parametrize(("error", "call"), [case[1:] for case in bad_calls()], ids=[case[0] for case in bad_calls()])
def test_what_does_not_fit_is_refused_before_anything_is_written(error, call):
    with pytest.raises(error):
        call()
    assert not POOL.any()
