"""Every op beside its reference on the device at hand, before anything is timed: bfloat16 on a GPU, else float16."""

from collections.abc import Callable, Iterator
from dataclasses import astuple, is_dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from kernels.canary import page_checksums, verify_checksums
from kernels.component_gather import Component, ComponentPlan, component_gather, component_scatter
from kernels.gated_delta_rule import DeltaRows, RecurrentInputs, gated_delta_decode, gated_delta_prefill
from kernels.head_reshard import gather_heads, scatter_heads
from kernels.index_build import build_decode_indices
from kernels.latent_slice import latent_interleave, latent_slice
from kernels.layer_table import LayerTable
from kernels.lse_merge import lse_merge
from kernels.page_gather import page_gather
from kernels.page_layout import from_page_first, from_unified, to_page_first, to_unified
from kernels.page_scatter import page_scatter
from kernels.paged_append import paged_append
from kernels.paged_decode_attention import paged_decode_attention_with_lse
from kernels.paged_extend_attention import paged_extend_attention_with_lse
from kernels.paged_rows import PagedRows
from kernels.state_copy import state_restore, state_save
from kernels.testing import assert_close, by_reference
from kernels.window_copy import window_gather, window_scatter

Check = Callable[[], object]
#: Copies are to be alike bit by bit.
_EXACT = "copy"


class _Bench:
    """Tensors that checks share; each check works on copies of its own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_small = device.type == "cpu"
        self.dtype = torch.float16 if self.is_small else torch.bfloat16
        chance = torch.Generator().manual_seed(5)
        heads, dim = (2, 16) if self.is_small else (8, 128)
        self.page_tokens = 4 if self.is_small else 64
        shape = (2, 12, self.page_tokens, heads, dim)
        self.pool = torch.randn(shape, generator=chance).to(self.dtype).to(device)
        self.ids = torch.tensor([7, 0, 3, 11, 5], dtype=torch.int32, device=device)

    def draw(self, *shape: int, seed: int = 6) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(self.dtype).to(self.device)

    @property
    def end_token(self) -> int:
        return 5 * self.page_tokens - 3


def check_all(device: torch.device) -> list[str]:
    """What is wrong, in words; nothing where all is right."""
    wrong = []
    for name, kind, check in _checks(_Bench(device)):
        try:
            got = _flatten(check())
            with by_reference():
                expected = _flatten(check())
            _compare(name, kind, got, expected)
        except AssertionError as error:
            wrong.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the op is not right
            wrong.append(f"{name}: {type(error).__name__}: {error}"[:500])
    return wrong


def _compare(name: str, kind: str, got: list[Tensor], expected: list[Tensor]) -> None:
    if len(got) != len(expected):
        raise AssertionError(f"{name}: {len(got)} results, not {len(expected)}")
    for one, other in zip(got, expected, strict=True):
        if kind == _EXACT or not one.dtype.is_floating_point:
            if not torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)):
                raise AssertionError(f"{name}: not the same bytes")
        else:
            assert_close(name, one, other, times=2.0)


def _flatten(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    parts = astuple(result) if is_dataclass(result) and not isinstance(result, type) else result
    return [tensor for part in parts for tensor in _flatten(part)]


def _checks(bench: _Bench) -> Iterator[tuple[str, str, Check]]:
    for group in (_page_checks, _token_checks, _other_checks):
        for name, check in group(bench):
            yield name, _EXACT, check
    for group in (_attention_checks, _delta_checks):
        for name, check in group(bench):
            yield name, "close", check


def _written(pool: Tensor, write: Callable[[Any], object]) -> Check:
    """A check of an op that writes a pool, as one tensor and as a table of layers."""

    def run() -> list[Tensor]:
        whole, apart = pool.clone(), pool.clone()
        write(whole)
        write(LayerTable.of([*apart]))
        return [whole, apart]

    return run


def _page_checks(bench: _Bench) -> Iterator[tuple[str, Check]]:
    pool, ids = bench.pool, bench.ids
    pages = bench.draw(5, *pool.shape[:1], *pool.shape[2:])
    groups = 2
    unified = bench.draw(5, groups, 2, bench.page_tokens, pool.shape[3] // groups, pool.shape[4])
    slices = bench.draw(2, 2, 3, *pool.shape[2:])
    yield "page_gather", lambda: [page_gather(pool, ids), page_gather(LayerTable.of([*pool]), ids)]
    yield "page_gather of tokens", lambda: page_gather(pool.flatten(1, 2), ids)
    yield "to_page_first", lambda: to_page_first(pool, ids)
    yield "from_page_first", _written(pool, lambda layers: from_page_first(pages, ids, layers, programs=3))
    yield "to_unified", lambda: to_unified(pool, ids, head_groups=groups)
    yield "from_unified", _written(pool, lambda layers: from_unified(unified, ids, layers))
    yield "latent_slice", lambda: latent_slice(pool, ids, rank=1, ranks=2)
    yield "latent_interleave", _written(pool, lambda layers: latent_interleave(slices, ids, layers))


def _token_checks(bench: _Bench) -> Iterator[tuple[str, Check]]:
    pool, ids, end = bench.pool, bench.ids, bench.end_token
    tail = bench.draw(2, end - 7, *pool.shape[3:])
    packed = bench.draw(2, 2, end - 7, pool.shape[3] // 2, pool.shape[4])
    last = bench.page_tokens + 2
    yield "page_scatter", _written(pool, lambda layers: page_scatter(tail, ids, layers, start_token=7))
    yield "gather_heads", lambda: gather_heads(pool, ids, first_head=1, heads=1, start_token=7, end_token=end)
    yield (
        "scatter_heads",
        _written(pool, lambda layers: scatter_heads(packed, ids, layers, first_head=0, start_token=7)),
    )
    yield "window_gather", lambda: window_gather(pool, ids, end_token=end + 99, window_tokens=last)
    yield (
        "window_scatter",
        _written(pool, lambda layers: window_scatter(tail[:, :last].contiguous(), ids, layers, end_token=end + 99)),
    )


def _other_checks(bench: _Bench) -> Iterator[tuple[str, Check]]:
    pool, ids, device = bench.pool, bench.ids, bench.device
    states = bench.draw(2, 6, 4, 16, 16).float()
    slots, places = torch.tensor([4, 1], device=device), torch.tensor([0, 2], device=device)
    for dtype in (torch.float32, bench.dtype):
        kept = torch.zeros(2, 3, 4, 16, 16, dtype=dtype, device=device)
        yield f"state_save as {dtype}", partial(_save, states, slots, kept, places)
        yield f"state_restore of {dtype}", partial(_restore, states, slots, kept, places)
    yield "component_gather", lambda: _pack(pool, states, ids)
    rows = bench.draw(5, *pool.shape[3:])
    own = torch.tensor([3, -1, 9, 0, 40 % (12 * bench.page_tokens)], device=device)
    yield "paged_append", lambda: _append(pool, rows, own)
    yield "page_checksums", lambda: [page_checksums(pool, ids, sample_every=every) for every in (1, 3)]
    sums = page_checksums(pool, ids)
    sums[3] += 1
    yield "verify_checksums", lambda: verify_checksums(pool, ids, sums)
    table = torch.arange(36, dtype=torch.int32, device=device).view(3, 12)
    lens = torch.tensor([1, 0, 12 * bench.page_tokens - 1], dtype=torch.int32, device=device)
    order = torch.tensor([2, 0, 1], dtype=torch.int32, device=device)

    def build() -> list[Tensor]:
        made = build_decode_indices(table, order, lens, page_tokens=bench.page_tokens, window_tokens=9)
        return [made.page_ids[: int(made.page_offsets[-1])], made.page_offsets, made.tile_offsets, made.slots]

    yield "build_decode_indices", build


def _save(states: Tensor, slots: Tensor, kept: Tensor, places: Tensor) -> Tensor:
    state_save(states, slots, kept, places)
    return kept.clone()


def _restore(states: Tensor, slots: Tensor, kept: Tensor, places: Tensor) -> Tensor:
    target = torch.zeros_like(states)
    state_restore(kept, places, target, slots)
    return target


def _pack(pool: Tensor, states: Tensor, ids: Tensor) -> list[Tensor]:
    pool, states = pool.clone(), states.clone()
    sums = torch.arange(12, device=pool.device)[None]
    plan = ComponentPlan.of([Component(LayerTable.of([*pool]), 5), Component(states, 2), Component(sums, 5)])
    indices = torch.cat((ids, ids[:2] % 6, ids)).contiguous()
    buffer = torch.zeros(plan.size_bytes, dtype=torch.uint8, device=pool.device)
    component_gather(plan, indices, buffer)
    component_scatter(buffer.flip(0).contiguous(), plan, indices)
    return [buffer, pool, states, sums]


def _append(pool: Tensor, rows: Tensor, slots: Tensor) -> list[Tensor]:
    keys, values = pool.clone()
    paged_append(rows, rows * 2, keys, values, slots)
    narrow_keys, narrow_values = (torch.zeros_like(one, dtype=torch.float8_e4m3fn) for one in (keys, values))
    exact = (rows * 4).round() / 4
    paged_append(exact, exact, narrow_keys, narrow_values, slots, key_scale=0.5, value_scale=2.0)
    return [keys, values, narrow_keys, narrow_values]


def _attention_checks(bench: _Bench) -> Iterator[tuple[str, Check]]:
    keys, values = bench.pool
    kv_heads, dim = keys.shape[2:]
    page_tokens, device, end = bench.page_tokens, bench.device, bench.end_token
    queries = bench.draw(3, kv_heads * 4, dim)
    table = torch.stack([bench.ids, bench.ids.flip(0), bench.ids])
    lens = torch.tensor([end, 1, 0], dtype=torch.int32, device=device)
    sinks = torch.linspace(-1, 1, kv_heads * 4, device=device)
    for window in (None, page_tokens + 1):
        named: dict[str, Any] = {"scale": dim**-0.5, "window_tokens": window, "sinks": sinks}
        yield (
            f"decode, window {window}",
            partial(paged_decode_attention_with_lse, queries, keys, values, table, lens, **named),
        )
        rows = PagedRows.of(
            [bench.ids.tolist(), [1], [2, 4]],
            [end - 9, 0, 2],
            [9, 1, page_tokens],
            page_tokens=page_tokens,
            device=device,
        )
        new = bench.draw(10 + page_tokens, kv_heads * 4, dim)
        mask = bench.draw(10 + page_tokens, max(9, page_tokens), seed=8) > 0
        for drafted in (None, mask):
            yield (
                f"extend, window {window}, mask {drafted is not None}",
                partial(paged_extend_attention_with_lse, new, keys, values, rows, mask=drafted, **named),
            )
    parts, lses = bench.draw(3, 5, kv_heads, dim), bench.draw(3, 5, kv_heads).float()
    lses[1, 2] = -torch.inf
    yield "lse_merge", lambda: lse_merge(parts, lses)


def _delta_checks(bench: _Bench) -> Iterator[tuple[str, Check]]:
    key_heads, heads, dim = (1, 2, 16) if bench.is_small else (16, 32, 128)
    tokens = 70 if bench.is_small else 300
    inputs = RecurrentInputs(
        queries=bench.draw(tokens, key_heads, dim),
        keys=normalize(bench.draw(tokens, key_heads, dim).float(), dim=-1).to(bench.dtype),
        values=bench.draw(tokens, heads, dim, seed=9),
        log_decays=-bench.draw(tokens, heads).float().abs() * 0.2,
        betas=torch.sigmoid(bench.draw(tokens, heads).float()),
    )
    states = bench.draw(2, heads, dim, dim).float() * 0.1
    offsets = torch.tensor([0, 5, tokens], device=bench.device)
    rows = DeltaRows(row_offsets=offsets, start_tokens=torch.tensor([60, 17], device=bench.device))

    def prefill() -> list[Tensor]:
        done = gated_delta_prefill(inputs, states, rows, scale=dim**-0.5, checkpoint_tokens=64)
        if done.checkpoints is None or done.checkpoint_offsets is None:
            raise AssertionError("checkpoints were asked for")
        # States are kept in float32 and computed of products of 16 bits.
        kept = done.checkpoints[: int(done.checkpoint_offsets[-1])]
        return [done.out, done.final_states.to(bench.dtype), kept.to(bench.dtype)]

    def decode() -> list[Tensor]:
        pool = states.clone()
        names = ("queries", "keys", "values", "log_decays", "betas")
        step = RecurrentInputs(**{name: getattr(inputs, name)[:3].contiguous() for name in names})
        return [gated_delta_decode(step, pool, torch.tensor([1, -1, 0], device=bench.device), scale=dim**-0.5), pool]

    yield "gated_delta_prefill", prefill
    yield "gated_delta_decode", decode
