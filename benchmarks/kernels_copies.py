"""Cases of the row-copy family, of the append, the checksums and the indices, and what they are to reach."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.kernels_meter import Call, Case, Meter
from benchmarks.kernels_sizes import Sizes
from kernels.canary import page_checksums, verify_checksums
from kernels.component_gather import Component, ComponentPlan, component_gather
from kernels.head_reshard import gather_heads, scatter_heads
from kernels.index_build import DecodeIndices, build_decode_indices
from kernels.latent_slice import latent_slice
from kernels.layer_table import LayerTable
from kernels.page_gather import page_gather
from kernels.page_layout import from_page_first, to_page_first, to_unified
from kernels.page_scatter import page_scatter
from kernels.paged_append import paged_append
from kernels.state_copy import state_restore, state_save
from kernels.window_copy import window_gather

#: Programs of the copies to and from the host.
HOST_PROGRAMS = 4
#: Pages that go to the host in one row, of those that are moved.
HOST_SHARE = 8


def copy_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    """All of them. Pools of one group are gone before those of the next are made."""
    for group in (_page_cases, _reshard_cases, _state_cases, _component_cases, _append_cases, _index_cases):
        yield from group(meter, sizes)


def _make_pool(meter: Meter, sizes: Sizes) -> Tensor:
    shape = (2 * sizes.layers, sizes.pool_pages, sizes.page_tokens, sizes.kv_heads, sizes.head_dim)
    return torch.zeros(shape, dtype=torch.bfloat16, device=meter.device)


def _draw_ids(meter: Meter, count: int, limit: int) -> Tensor:
    chance = torch.Generator().manual_seed(7)
    return torch.randperm(limit, generator=chance)[:count].to(torch.int32).to(meter.device)


def _page_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    pool, ids = _make_pool(meter, sizes), _draw_ids(meter, sizes.moved_pages, sizes.pool_pages)
    table = LayerTable.of([*pool])
    staging = torch.empty((len(pool), len(ids), *pool.shape[2:]), dtype=pool.dtype, device=meter.device)
    moved = 2 * staging.nbytes
    flat, tail = ids.long(), staging.flatten(1, 2)

    def select() -> None:
        for layer in range(len(pool)):
            torch.index_select(pool[layer], 0, flat, out=staging[layer])

    def put() -> None:
        for layer in range(len(pool)):
            pool[layer].index_copy_(0, flat, staging[layer])

    yield Case(
        "gather of pages, all layers", lambda: page_gather(pool, ids, out=staging), moved, ceiling="copy",
        at_least=0.95, others={"torch index_select": select},
    )  # fmt: skip
    yield Case(
        "the same through a table of layers", lambda: page_gather(table, ids, out=staging), moved, ceiling="copy",
        at_least=0.95,
    )  # fmt: skip
    slots = _draw_ids(meter, tail.shape[1], pool.shape[1] * pool.shape[2])
    rows = pool.flatten(1, 2)
    yield Case(
        "gather of single tokens", lambda: page_gather(rows, slots, out=tail), moved, ceiling="copy", at_least=0.88
    )
    yield Case(
        "scatter of pages, all layers", lambda: page_scatter(tail, ids, pool, start_token=0), moved, ceiling="copy",
        at_least=0.94, others={"torch index_copy_": put},
    )  # fmt: skip
    behind = tail[:, : tail.shape[1] - sizes.page_tokens].contiguous()
    yield Case(
        "scatter that begins within a page",
        lambda: page_scatter(behind, ids, pool, start_token=sizes.page_tokens // 2 + 1),
        2 * behind.nbytes,
        ceiling="copy",
        at_least=0.94,
    )
    yield from _layout_cases(meter, pool, ids, staging)
    yield Case("checksums of whole pages", lambda: page_checksums(pool, ids), moved // 2, ceiling="copy", at_least=1.08)
    some = ids[: sizes.sampled_pages].contiguous()
    sums = page_checksums(pool, some, sample_every=sizes.page_tokens)
    yield Case(
        f"verification of {len(some)} pages by samples",
        lambda: verify_checksums(pool, some, sums, sample_every=sizes.page_tokens),
        at_most_us=20.0,
        is_short=True,
    )


def _layout_cases(meter: Meter, pool: Tensor, ids: Tensor, staging: Tensor) -> Iterator[Case]:
    moved = 2 * staging.nbytes
    pages = staging.view(len(ids), len(pool), *pool.shape[2:])
    yield Case(
        "layer-first to page-first", lambda: to_page_first(pool, ids, out=pages), moved, ceiling="copy", at_least=0.92
    )
    yield Case(
        "page-first to layer-first", lambda: from_page_first(pages, ids, pool), moved, ceiling="copy", at_least=0.92
    )
    groups = pool.shape[3]
    unified = staging.view(len(ids), groups, len(pool), pool.shape[2], 1, pool.shape[4])
    yield Case(
        "layer-first to unified, a head a group",
        lambda: to_unified(pool, ids, head_groups=groups, out=unified),
        moved,
        ceiling="copy",
        at_least=0.70,
    )
    half = staging[:, : (len(ids) + 1) // 2].contiguous()
    yield Case(
        "slice of every second page",
        lambda: latent_slice(pool, ids, rank=0, ranks=2, out=half),
        2 * half.nbytes,
        ceiling="copy",
        at_least=0.95,
    )
    some = ids[: max(1, len(ids) // HOST_SHARE)].contiguous()
    host = _make_host_pages(meter, pool, len(some))
    yield Case(
        "pages to the host, few programs",
        lambda: to_page_first(pool, some, out=host, programs=HOST_PROGRAMS),
        host.nbytes,
        ceiling="pinned out",
        at_least=0.93,
    )
    yield Case(
        "pages from the host, few programs",
        lambda: from_page_first(host, some, pool, programs=HOST_PROGRAMS),
        host.nbytes,
        ceiling="pinned in",
        at_least=0.93,
    )


def _make_host_pages(meter: Meter, pool: Tensor, count: int) -> Tensor:
    return torch.zeros((count, len(pool), *pool.shape[2:]), dtype=pool.dtype, pin_memory=meter.has_gpu)


def make_host_copy(meter: Meter, sizes: Sizes) -> Call:
    """The copy of pages to the host, to be run beside something."""
    pool, ids = _make_pool(meter, sizes), _draw_ids(meter, sizes.moved_pages // HOST_SHARE, sizes.pool_pages)
    host = _make_host_pages(meter, pool, len(ids))
    return lambda: to_page_first(pool, ids, out=host, programs=HOST_PROGRAMS)


def _reshard_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    tokens, page_tokens, dim = sizes.reshard_tokens, sizes.page_tokens, sizes.head_dim
    pages = tokens // page_tokens
    layers = 2 * sizes.layers

    def make(pool_heads: int, *shape: int) -> tuple[Tensor, Tensor]:
        pool = torch.zeros(layers, pages, page_tokens, pool_heads, dim, dtype=torch.bfloat16, device=meter.device)
        return pool, torch.zeros(*shape, dim, dtype=torch.bfloat16, device=meter.device)

    ids = _draw_ids(meter, pages, pages)
    quarter = max(1, sizes.kv_heads // 4)
    for what, heads, aim in (("", quarter, 0.93), (", rows of one head", 1, 0.70)):
        pool, staging = make(2 * heads, 2, layers, tokens, heads)
        yield Case(
            f"head slices of two writers into pages{what}",
            partial(scatter_heads, staging, ids, pool, first_head=0, start_token=0),
            2 * staging.nbytes,
            ceiling="copy",
            at_least=aim,
        )
        packed = staging[0]
        yield Case(
            f"head slice out of pages for one reader{what}",
            partial(
                gather_heads, pool, ids, first_head=heads, heads=heads, start_token=0, end_token=tokens, out=packed
            ),
            2 * packed.nbytes,
            ceiling="copy",
            at_least=aim,
        )
        del pool, staging, packed


def _state_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    state = (sizes.delta_heads[1], sizes.delta_dim, sizes.delta_dim)
    states = torch.zeros(sizes.state_layers, sizes.state_slots, *state, device=meter.device)
    slots = _draw_ids(meter, sizes.moved_states, sizes.state_slots)
    places = torch.arange(sizes.moved_states, dtype=torch.int32, device=meter.device)
    for what, dtype, aims in (
        ("", torch.float32, (0.95, 0.93)),
        (", rounded to bfloat16", torch.bfloat16, (0.85, None)),
    ):
        kept = torch.zeros(sizes.state_layers, sizes.moved_states, *state, dtype=dtype, device=meter.device)
        moved = kept.nbytes + kept.numel() * 4
        yield Case(
            f"states saved{what}",
            partial(state_save, states, slots, kept, places),
            moved,
            ceiling="copy",
            at_least=aims[0],
        )
        yield Case(
            f"states restored{what}",
            partial(state_restore, kept, places, states, slots),
            moved,
            ceiling="copy",
            at_least=aims[1],
        )
        del kept


def _component_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    pool = _make_pool(meter, sizes)
    layers = sizes.layers
    window = pool[: max(1, layers // 2)].flatten(1, 2)
    state = (sizes.delta_heads[1], sizes.delta_dim, sizes.delta_dim)
    states = torch.zeros(sizes.state_layers, 2, *state, device=meter.device)
    sums = torch.zeros(1, sizes.pool_pages, dtype=torch.int64, device=meter.device)
    pages = max(1, sizes.moved_pages // 4)
    counts = [pages, pages, min(sizes.window_tokens, window.shape[1]), min(64, window.shape[1]), 1, pages]
    parts: list[Tensor | LayerTable] = [
        LayerTable.of([*pool[:layers]]),
        pool[layers:],
        window,
        pool[-2:].flatten(1, 2),
        states,
        sums,
    ]
    plan = ComponentPlan.of([Component(part, count) for part, count in zip(parts, counts, strict=True)])
    limits = [part.shape[1] for part in parts]
    indices = torch.cat([_draw_ids(meter, count, limit) for count, limit in zip(counts, limits, strict=True)])
    buffer = torch.empty(plan.size_bytes, dtype=torch.uint8, device=meter.device)
    yield Case(
        "a request's components from one table",
        lambda: component_gather(plan, indices, buffer),
        2 * plan.size_bytes,
        ceiling="copy",
        at_least=0.85,
    )
    span = min(sizes.window_tokens, sizes.pool_pages * sizes.page_tokens - sizes.page_tokens)
    ring = _draw_ids(meter, -(-span // sizes.page_tokens) + 1, sizes.pool_pages)
    end = 5 * span + 1
    tail = window_gather(pool, ring, end_token=end, window_tokens=span)
    yield Case(
        "a window out of its ring",
        lambda: window_gather(pool, ring, end_token=end, window_tokens=span, out=tail),
        2 * tail.nbytes,
        ceiling="copy",
        at_least=0.85,
    )


def _append_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    most = max(sizes.append_tokens)
    pages = -(-most // sizes.page_tokens)
    shape = (pages, sizes.page_tokens, sizes.kv_heads, sizes.head_dim)
    keys, values = (torch.zeros(shape, dtype=torch.bfloat16, device=meter.device) for _ in range(2))
    for tokens in sizes.append_tokens:
        rows = torch.zeros(tokens, *shape[2:], dtype=torch.bfloat16, device=meter.device)
        slots = _draw_ids(meter, tokens, pages * sizes.page_tokens)
        is_short = tokens <= 256
        yield Case(
            f"append of {tokens:,} tokens",
            partial(paged_append, rows, rows, keys, values, slots),
            4 * rows.nbytes,
            ceiling="copy",
            at_least=0.85 if tokens == most else None,
            at_most_us=4.0 if is_short else None,
            is_short=tokens < most,
        )
    narrow_keys, narrow_values = (pool.to(torch.float8_e4m3fn) for pool in (keys, values))
    yield Case(
        f"append of {most:,} tokens as float8",
        lambda: paged_append(rows, rows, narrow_keys, narrow_values, slots, key_scale=0.5, value_scale=0.5),
        3 * rows.nbytes,
        ceiling="copy",
    )


def _index_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    sequences = sizes.index_sequences
    width = max(length for _, length in sizes.decode) // sizes.page_tokens + 1
    table = torch.zeros(sequences, width, dtype=torch.int32, device=meter.device)
    ids = torch.arange(sequences, dtype=torch.int32, device=meter.device)
    chance = torch.Generator().manual_seed(7)
    lens = torch.randint(1, width * sizes.page_tokens, (sequences,), generator=chance).to(torch.int32).to(meter.device)
    out = DecodeIndices.empty(sequences, table)
    yield Case(
        f"indices of a step of {sequences} sequences",
        lambda: build_decode_indices(table, ids, lens, page_tokens=sizes.page_tokens, out=out),
        at_most_us=10.0,
        is_short=True,
    )
