"""On a GPU: bfloat16 at the geometry of a real model, shapes that alternate, no wait for the device, graphs."""

from random import Random

import pytest
import torch

from benchmarks.kernels_checks import check_all
from kernels.head_reshard import gather_heads, scatter_heads
from kernels.index_build import DecodeIndices, build_decode_indices
from kernels.page_scatter import page_scatter
from kernels.paged_append import paged_append
from kernels.paged_decode_attention import paged_decode_attention
from kernels.paged_extend_attention import paged_extend_attention
from kernels.paged_rows import PagedRows
from kernels.testing import assert_close, by_reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and torch finds none"),
]
PAGE_TOKENS, KV_HEADS, HEAD_DIM = 64, 8, 128
#: Rounds of a soak; by then every shape has followed every other.
ROUNDS = 60


@pytest.fixture
def gpu():
    return torch.device("cuda")


def test_all_ops_are_their_references_in_bfloat16(gpu):
    assert check_all(gpu) == []


def make_pools(gpu, pages):
    chance = torch.Generator().manual_seed(1)
    shape = (pages, PAGE_TOKENS, KV_HEADS, HEAD_DIM)
    return [torch.randn(shape, generator=chance).to(torch.bfloat16).to(gpu) for _ in range(2)]


def draw_step(rng, gpu, pages):
    """A batch of contexts of all lengths, from one token to all pages of the pool."""
    sequences = rng.choice([1, 2, 3, 7, 16])
    longest = rng.choice([1, 2, pages // 2, pages])
    lens = [rng.randint(0, longest * PAGE_TOKENS) for _ in range(sequences)]
    table = torch.tensor([[rng.randrange(pages) for _ in range(longest)] for _ in lens], dtype=torch.int32)
    queries = torch.randn(sequences, KV_HEADS * rng.choice([4, 8]), HEAD_DIM)
    return {
        "queries": queries.to(torch.bfloat16).to(gpu),
        "page_ids": table.to(gpu),
        "seq_lens": torch.tensor(lens, dtype=torch.int32, device=gpu),
        "window_tokens": rng.choice([None, 1, 100, 4096]),
    }


def test_a_soak_of_alternating_shapes_stays_right(gpu):
    rng, pages = Random(3), 40
    keys, values = make_pools(gpu, pages)
    for _ in range(ROUNDS):
        step = draw_step(rng, gpu, pages)
        got = paged_decode_attention(key_pool=keys, value_pool=values, scale=0.1, **step)
        with by_reference():
            expected = paged_decode_attention(key_pool=keys, value_pool=values, scale=0.1, **step)
        assert_close("decode", got, expected, times=2)
        counts = [rng.randint(0, 90) for _ in range(rng.randint(1, 4))]
        starts = [rng.randint(0, pages * PAGE_TOKENS - count) for count in counts]
        listed = [[rng.randrange(pages) for _ in range(pages)] for _ in counts]
        rows = PagedRows.of(listed, starts, counts, page_tokens=PAGE_TOKENS, device=gpu)
        queries = torch.randn(sum(counts), KV_HEADS * 4, HEAD_DIM).to(torch.bfloat16).to(gpu)
        named = {"scale": 0.1, "window_tokens": rng.choice([None, 30, 1000])}
        got = paged_extend_attention(queries, keys, values, rows, **named)
        with by_reference():
            expected = paged_extend_attention(queries, keys, values, rows, **named)
        assert_close("extend", got, expected, times=2)


def test_a_prefix_of_127_500_tokens_arrives_page_by_page_whatever_was_there_before(gpu):
    """Every token holds its own number, so that a shifted page shows anywhere."""
    tokens, start, heads = 127_500, 1_003, 2
    pages = -(-tokens // PAGE_TOKENS)
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(2))
    ids, back = order.to(torch.int32).to(gpu), order.flip(0).to(torch.int32).to(gpu)
    marks = torch.arange(tokens, dtype=torch.int32, device=gpu)[None, :, None, None].expand(2, -1, 2 * heads, 16)
    sender = torch.zeros(2, pages, PAGE_TOKENS, 2 * heads, 16, dtype=torch.int32, device=gpu)
    page_scatter(marks.contiguous(), ids, sender, start_token=0)
    span = {"heads": heads, "start_token": start, "end_token": tokens}
    parts = [gather_heads(sender, ids, first_head=first, **span) for first in (0, heads)]
    receiver = torch.full_like(sender, -1)
    scatter_heads(torch.stack(parts), back, receiver, first_head=0, start_token=start)
    arrived = receiver[:, back.long()].flatten(1, 2)
    assert (arrived[:, :start] == -1).all()
    assert torch.equal(arrived[:, start:tokens], marks[:, start:])
    assert (arrived[:, tokens:] == -1).all()


def test_a_decode_step_waits_for_nothing_and_can_be_recorded(gpu):
    """Lengths grow between replays of one graph, and each replay is right for its own."""
    pages, sequences = 32, 5
    keys, values = make_pools(gpu, pages * sequences)
    table = torch.randperm(pages * sequences).view(sequences, pages).to(torch.int32).to(gpu)
    ids = torch.arange(sequences, dtype=torch.int32, device=gpu)
    lens = torch.tensor([1, 63, 64, 500, 1900], dtype=torch.int32, device=gpu)
    queries = torch.randn(sequences, KV_HEADS * 8, HEAD_DIM).to(torch.bfloat16).to(gpu)
    rows = torch.randn(sequences, KV_HEADS, HEAD_DIM).to(torch.bfloat16).to(gpu)
    room = DecodeIndices.empty(sequences, table)

    def step():
        build_decode_indices(table, ids, lens, page_tokens=PAGE_TOKENS, out=room)
        paged_append(rows, rows, keys, values, room.slots)
        return paged_decode_attention(queries, keys, values, table, lens, scale=0.1, tile_offsets=room.tile_offsets)

    step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for _ in range(3):
        lens += 1
        graph.replay()
        with by_reference():
            expected = step()
        assert_close("out", out, expected, times=2)
