"""Cases of the attentions, of the merge and of the gated delta rule, and the same work by others where they import."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks import kernels_anchors as anchors
from benchmarks.kernels_meter import Case, Meter
from benchmarks.kernels_sizes import Sizes
from kernels.gated_delta_rule import DeltaRows, RecurrentInputs, gated_delta_decode, gated_delta_prefill
from kernels.index_build import build_split_plan
from kernels.lse_merge import lse_merge
from kernels.paged_decode_attention import paged_decode_attention
from kernels.paged_extend_attention import paged_extend_attention
from kernels.paged_rows import PagedRows


def find_half(meter: Meter) -> torch.dtype:
    """What is multiplied: bfloat16, but in the interpreter, which does not multiply it right."""
    return torch.bfloat16 if meter.has_gpu else torch.float16


def attention_cases(meter: Meter, sizes: Sizes, *, with_jit: bool) -> Iterator[Case]:
    """All of them."""
    yield from _decode_cases(meter, sizes, with_jit=with_jit)
    yield from _merge_cases(meter, sizes)
    yield from _extend_cases(meter, sizes)
    yield from _delta_cases(meter, sizes)
    yield from _delta_decode_cases(meter, sizes)


def _make_pools(meter: Meter, sizes: Sizes, pages: int) -> list[Tensor]:
    shape = (pages, sizes.page_tokens, sizes.kv_heads, sizes.head_dim)
    return [torch.randn(shape, device=meter.device, dtype=torch.float32).to(find_half(meter)) for _ in range(2)]


def _decode_cases(meter: Meter, sizes: Sizes, *, with_jit: bool) -> Iterator[Case]:
    most = max(sequences * -(-length // sizes.page_tokens) for sequences, length in sizes.decode)
    keys, values = _make_pools(meter, sizes, most)
    scale = sizes.head_dim**-0.5
    for sequences, length in sizes.decode:
        pages = -(-length // sizes.page_tokens)
        order = torch.randperm(sequences * pages, generator=torch.Generator().manual_seed(7))
        table = order.view(sequences, pages).to(torch.int32).to(meter.device)
        lens = torch.full((sequences,), length, dtype=torch.int32, device=meter.device)
        queries = torch.randn(sequences, sizes.query_heads, sizes.head_dim, device=meter.device).to(find_half(meter))
        plan = build_split_plan(lens)
        read = sequences * length * sizes.kv_heads * sizes.head_dim * 2 * 2

        def attend(
            queries: Tensor = queries, table: Tensor = table, lens: Tensor = lens, plan: Tensor = plan, **named: Any
        ) -> object:
            return paged_decode_attention(queries, keys, values, table, lens, scale=scale, tile_offsets=plan, **named)

        others = anchors.decode_others(queries, keys, values, table, lens, with_jit=with_jit) if meter.has_gpu else {}
        yield Case(
            f"decode of {sequences} x {length:,} tokens", attend, read, ceiling="copy", others=others,
            at_least=anchors.PUBLISHED_DECODE.get((sequences, length)), beside_at_most=1.0,
        )  # fmt: skip
    yield from _window_cases(meter, sizes, keys, values)


def _window_cases(meter: Meter, sizes: Sizes, keys: Tensor, values: Tensor) -> Iterator[Case]:
    """A window of a long context is to take as long as a context that is as short."""
    sequences, length = max(sizes.decode, key=lambda one: one[1])
    pages, window, scale = -(-length // sizes.page_tokens), sizes.window_tokens, sizes.head_dim**-0.5
    table = torch.arange(sequences * pages, dtype=torch.int32, device=meter.device).view(sequences, pages)
    queries = torch.randn(sequences, sizes.query_heads, sizes.head_dim, device=meter.device).to(find_half(meter))
    lens = torch.full((sequences,), length, dtype=torch.int32, device=meter.device)
    short = torch.full_like(lens, window)
    plans = build_split_plan(lens, window_tokens=window), build_split_plan(short)

    def attend(lens: Tensor, plan: Tensor, window_tokens: int | None) -> object:
        return paged_decode_attention(
            queries, keys, values, table, lens, scale=scale, tile_offsets=plan, window_tokens=window_tokens
        )

    yield Case(
        f"decode of {sequences} x {length:,} tokens over a window of {window:,}",
        lambda: attend(lens, plans[0], window),
        sequences * window * sizes.kv_heads * sizes.head_dim * 4,
        ceiling="copy",
        others={f"ours of {window:,} tokens": lambda: attend(short, plans[1], None)},
        beside_at_most=1.1,
        is_short=True,
    )


def _merge_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    parts, tokens = sizes.merge
    partials = torch.randn(parts, tokens, sizes.query_heads, sizes.head_dim, device=meter.device)
    lses = torch.randn(parts, tokens, sizes.query_heads, device=meter.device)
    yield Case(
        f"merge of {parts} parts of {tokens} tokens",
        lambda: lse_merge(partials, lses, dtype=find_half(meter)),
        partials.nbytes + lses.nbytes + partials[0].numel() * 2,
        ceiling="copy",
        at_least=0.6,
        is_short=True,
    )


def _extend_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    cached, new = sizes.extend
    pages = -(-(cached + new) // sizes.page_tokens)
    keys, values = _make_pools(meter, sizes, pages)
    rows = PagedRows.of([range(pages)], [cached], [new], page_tokens=sizes.page_tokens, device=meter.device)
    queries = torch.randn(new, sizes.query_heads, sizes.head_dim, device=meter.device).to(find_half(meter))
    pairs = cached * new + new * (new + 1) // 2
    yield Case(
        f"extend of {new:,} tokens behind {cached:,}",
        lambda: paged_extend_attention(queries, keys, values, rows, scale=sizes.head_dim**-0.5),
        operations=4.0 * pairs * sizes.query_heads * sizes.head_dim,
        ceiling="matmul",
        at_least=0.55,
    )


def make_delta_inputs(meter: Meter, tokens: int, key_heads: int, heads: int, dim: int) -> RecurrentInputs:
    """Random tokens, keys of length 1."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, device=meter.device)

    return RecurrentInputs(
        queries=draw(tokens, key_heads, dim).to(find_half(meter)),
        keys=normalize(draw(tokens, key_heads, dim), dim=-1).to(find_half(meter)),
        values=draw(tokens, heads, dim).to(find_half(meter)),
        log_decays=-draw(tokens, heads).abs() * 0.1,
        betas=torch.sigmoid(draw(tokens, heads)),
    )


def _delta_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    scale = sizes.delta_dim**-0.5
    for sequences, length, key_heads, heads in sizes.delta:
        inputs = make_delta_inputs(meter, sequences * length, key_heads, heads, sizes.delta_dim)
        offsets = torch.arange(0, (sequences + 1) * length, length, device=meter.device)
        rows = DeltaRows(row_offsets=offsets, start_tokens=torch.zeros_like(offsets[:-1]))
        states = torch.zeros(sequences, *inputs.state_shape, device=meter.device)

        def run(
            inputs: RecurrentInputs = inputs, states: Tensor = states, rows: DeltaRows = rows, every: int | None = None
        ) -> object:
            return gated_delta_prefill(inputs, states, rows, scale=scale, checkpoint_tokens=every)

        what = f"gated delta prefill, {sequences} x {length:,} tokens, {key_heads} key and {heads} value heads"
        others = anchors.delta_others(inputs, states, sequences, scale) if meter.has_gpu else {}
        yield Case(what, run, others=others, beside_at_most=0.8)
        yield Case(
            f"{what}, checkpoints",
            _with_checkpoints(run, sizes.checkpoint_tokens),
            others={"without": run},
            beside_at_most=1.1,
        )


def _with_checkpoints(run: Callable[..., object], every: int) -> Callable[[], object]:
    return lambda: run(every=every)


def _delta_decode_cases(meter: Meter, sizes: Sizes) -> Iterator[Case]:
    key_heads, heads = sizes.delta_heads
    for sequences in sizes.delta_decode:
        inputs = make_delta_inputs(meter, sequences, key_heads, heads, sizes.delta_dim)
        states = torch.zeros(sequences, *inputs.state_shape, device=meter.device)
        slots = torch.randperm(sequences, generator=torch.Generator().manual_seed(7)).to(torch.int32).to(meter.device)
        yield Case(
            f"gated delta decode of {sequences} sequences",
            partial(gated_delta_decode, inputs, states, slots, scale=sizes.delta_dim**-0.5),
            2 * states.nbytes,
            ceiling="copy",
            at_least=0.70 if sequences < 256 else 0.80,
            others=anchors.delta_decode_others(inputs, states) if meter.has_gpu else {},
            is_short=True,
        )
