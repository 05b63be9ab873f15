"""What `sm90` compiles: each function calls ops as they are called on a device, small where size compiles nothing else.

Head geometry is that of a 70B model on one GPU: 64 query heads, 8 key heads of 128, pages of 64 tokens, bfloat16.
"""

import torch

from kernels.canary import page_checksums, verify_checksums
from kernels.component_gather import Component, ComponentPlan, component_gather, component_scatter
from kernels.gated_delta_rule import DeltaRows, RecurrentInputs, gated_delta_decode, gated_delta_prefill
from kernels.head_reshard import gather_heads, scatter_heads
from kernels.index_build import build_decode_indices
from kernels.index_build.reference import build_split_plan as build_plainly
from kernels.latent_slice import latent_interleave, latent_slice
from kernels.layer_table import LayerTable
from kernels.lse_merge import lse_merge
from kernels.page_gather import page_gather
from kernels.page_layout import from_page_first, from_unified, to_page_first, to_unified
from kernels.page_scatter import page_scatter
from kernels.paged_append import paged_append
from kernels.paged_decode_attention import paged_decode_attention
from kernels.paged_extend_attention import paged_extend_attention
from kernels.paged_rows import PagedRows
from kernels.state_copy import state_restore, state_save
from kernels.window_copy import window_gather, window_scatter

QUERY_HEADS, KV_HEADS, HEAD_DIM, PAGE_TOKENS = 64, 8, 128, 64
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
IDS = torch.tensor([2, 0], dtype=torch.int32)


def make_pool(layers=2, pages=3, heads=KV_HEADS):
    return torch.zeros(layers, pages, PAGE_TOKENS, heads, HEAD_DIM, dtype=BF16)


def make_table(pool):
    return LayerTable.of([*pool])


def pages():
    pool = make_pool()
    for layers in (pool, make_table(pool)):
        page_gather(layers, IDS)
        from_page_first(to_page_first(layers, IDS), IDS, layers)
        latent_interleave(
            torch.stack([latent_slice(layers, IDS, rank=rank, ranks=2) for rank in range(2)]), IDS, layers
        )


def token_rows():
    pool = make_pool()
    page_gather(pool.flatten(1, 2), IDS)


def few_programs():
    pool = make_pool()
    from_page_first(to_page_first(pool, IDS, programs=4), IDS, pool, programs=4)


def heads():
    pool = make_pool()
    for layers in (pool, make_table(pool)):
        span = {"first_head": 2, "heads": 2, "start_token": 5, "end_token": 100}
        packed = gather_heads(layers, IDS, **span)
        scatter_heads(torch.stack((packed, packed)), IDS, layers, first_head=2, start_token=5)
        from_unified(to_unified(layers, IDS, head_groups=4), IDS, layers)


def tails():
    pool = make_pool()
    for layers in (pool, make_table(pool)):
        tail = window_gather(layers, IDS, end_token=100, window_tokens=70)
        window_scatter(tail, IDS, layers, end_token=100)
        page_scatter(tail, IDS, layers, start_token=30)


def states():
    pool, kept = torch.zeros(2, 3, 32, 128, 128), torch.zeros(2, 4, 32, 128, 128)
    state_save(pool, IDS, kept, IDS)
    state_restore(kept, IDS, pool, IDS)


def rounded_states():
    pool, kept = torch.zeros(2, 3, 32, 128, 128), torch.zeros(2, 4, 32, 128, 128, dtype=BF16)
    state_save(pool, IDS, kept, IDS)
    state_restore(kept, IDS, pool, IDS)


def components():
    pool = make_pool()
    parts = [pool, make_table(make_pool()), torch.zeros(2, 3, 32, 128, 128), torch.zeros(1, 3, dtype=torch.int64)]
    plan = ComponentPlan.of([Component(part, 2) for part in parts])
    buffer, indices = torch.zeros(plan.size_bytes, dtype=torch.uint8), torch.cat([IDS] * len(parts))
    component_gather(plan, indices, buffer)
    component_scatter(buffer, plan, indices)


def checksums():
    pool = make_pool()
    for layers in (pool, make_table(pool)):
        sums = page_checksums(layers, IDS)
        verify_checksums(layers, IDS, sums)
        verify_checksums(layers, IDS, sums, sample_every=64)


def append(tokens=(64, 300), dtype=BF16):
    keys, values = (pool.to(dtype) for pool in make_pool(pages=8))
    for count in tokens:
        rows = torch.zeros(count, KV_HEADS, HEAD_DIM, dtype=BF16)
        paged_append(rows, rows, keys, values, torch.arange(count))


def append_float8():
    append(tokens=(64,), dtype=FP8)


def attend(lens, width, *, dtype=BF16, **named):
    """A decode step and an extend step over contexts of these lengths, in tables of this width."""
    keys, values = (pool.to(dtype) for pool in make_pool())
    table = torch.zeros(4, width, dtype=torch.int32)
    lens = torch.tensor(lens, dtype=torch.int32)
    indices = build_decode_indices(table, torch.zeros_like(lens), lens, page_tokens=PAGE_TOKENS)
    queries = torch.zeros(len(lens), QUERY_HEADS, HEAD_DIM, dtype=BF16)
    # A plan is computed on the device, where nothing runs here.
    plan = indices.tile_offsets
    build_plainly(lens, named.get("window_tokens"), plan)
    paged_decode_attention(queries, keys, values, table[: len(lens)], lens, scale=0.1, tile_offsets=plan, **named)
    counts = [min(9, one) for one in lens.tolist()]
    starts = [one - count for one, count in zip(lens.tolist(), counts, strict=True)]
    rows = PagedRows.of([[0] * width] * len(counts), starts, counts, page_tokens=PAGE_TOKENS)
    new = torch.zeros(sum(counts), QUERY_HEADS, HEAD_DIM, dtype=BF16)
    paged_extend_attention(new, keys, values, rows, scale=0.1, **named)


def attention():
    attend([100, 1], 40)


def attention_over_a_window():
    attend([100, 1], 40, window_tokens=70, sinks=torch.zeros(QUERY_HEADS))


def attention_over_float8():
    attend([100, 1], 40, dtype=FP8)


def verification():
    keys, values = make_pool()
    rows = PagedRows.of([[0, 1]], [70], [9], page_tokens=PAGE_TOKENS)
    new, mask = torch.zeros(9, QUERY_HEADS, HEAD_DIM, dtype=BF16), torch.ones(9, 9, dtype=torch.bool)
    paged_extend_attention(new, keys, values, rows, scale=0.1, mask=mask)


def merging():
    for parts in (2, 5):
        lse_merge(torch.zeros(parts, 3, QUERY_HEADS, HEAD_DIM), torch.zeros(parts, 3, QUERY_HEADS), dtype=BF16)


def delta_rule(lengths=(130,), checkpoint_tokens=None, rows=2):
    for tokens in lengths:
        inputs = RecurrentInputs(
            queries=torch.zeros(tokens, 16, 128, dtype=BF16),
            keys=torch.zeros(tokens, 16, 128, dtype=BF16),
            values=torch.zeros(tokens, 32, 128, dtype=BF16),
            log_decays=torch.zeros(tokens, 32),
            betas=torch.zeros(tokens, 32),
        )
        offsets = [0, tokens] if rows == 1 else [0, 1, tokens]
        cuts = DeltaRows(row_offsets=torch.tensor(offsets), start_tokens=torch.arange(rows))
        states = torch.zeros(rows, 32, 128, 128)
        gated_delta_prefill(inputs, states, cuts, scale=0.1, checkpoint_tokens=checkpoint_tokens)
        gated_delta_decode(inputs, states, torch.full((tokens,), -1), scale=0.1)


def delta_rule_of_one_row():
    delta_rule(rows=1)


def delta_rule_with_checkpoints():
    delta_rule(checkpoint_tokens=1024)


def many_lengths():
    """64 context lengths, two widths of page tables, all kinds of counts and starts, indices that begin anywhere."""
    pool, lots = make_pool(), torch.zeros(200, dtype=torch.int32)
    lengths = [*range(1, 40), *range(60, 70), *range(1000, 1008), 1023, 1024, 1025, 2047, 2048, 2560, 2559]
    for number, length in enumerate(lengths):
        attend([length, 1 + number % 3][: 1 + number % 2], 40 + number % 2)
        page_gather(pool, lots[number : 2 * number + 2])
        tail = torch.zeros(2, 1 + number % 5, KV_HEADS, HEAD_DIM, dtype=BF16)
        page_scatter(tail, torch.arange(3)[number % 2 :], pool, start_token=number % 7)
        page_checksums(pool, lots[number : 2 * number + 2])
        append(tokens=(1 + number % 3,))
    delta_rule(lengths=(1, 2, 63, 64, 65, 127, 130))
