"""The same work by others, where they can be imported: FlashInfer, flash-linear-attention and torch itself.

Nothing here is needed. An anchor that does not import, or does not run on this machine, is left out and named in
`MISSING`, which the result keeps.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kernels.gated_delta_rule import RecurrentInputs

#: FlashInfer 0.6.4 on an H200 (2026-11-29), of that run's copy, by sequences and length: what is to be reached even
#: where it is not installed.
PUBLISHED_DECODE = {(64, 8_192): 0.90, (64, 32_768): 1.05, (16, 131_072): 1.04, (1, 131_072): 0.73}
#: Why an anchor is not beside our rows, by its name.
MISSING: dict[str, str] = {}

Others = dict[str, Callable[[], object]]
#: Bytes of keys and values up to which they are also laid out without pages, for torch.
_MOST_CONTIGUOUS_BYTES = 10**10


def _try(name: str, make: Callable[[], Callable[[], object]]) -> Others:
    """The anchor, run once, or the reason why it is missing."""
    try:
        call = make()
        call()
    except Exception as error:  # noqa: BLE001 - whatever keeps another's program from running is said
        MISSING[name] = f"{type(error).__name__}: {error}"[:200]
        return {}
    return {name: call}


def decode_others(
    queries: Tensor, keys: Tensor, values: Tensor, table: Tensor, lens: Tensor, *, with_jit: bool
) -> Others:
    """FlashInfer's paged decode, if it may compile, and torch's attention over contexts without pages."""
    found = _try("flashinfer", lambda: _flashinfer(queries, keys, values, table, lens)) if with_jit else {}
    if table.numel() * keys[:1].nbytes <= _MOST_CONTIGUOUS_BYTES:
        found |= _try("torch, contiguous", lambda: _contiguous(queries, keys, values, table))
    return found


def _flashinfer(queries: Tensor, keys: Tensor, values: Tensor, table: Tensor, lens: Tensor) -> Callable[[], object]:
    import flashinfer  # noqa: PLC0415 - it is seldom there

    sequences, pages = table.shape
    page_tokens = keys.shape[1]
    room = torch.empty(512 * 1024 * 1024, dtype=torch.uint8, device=queries.device)
    wrapper: Any = flashinfer.BatchDecodeWithPagedKVCacheWrapper(room, "NHD", use_tensor_cores=True)
    offsets = torch.arange(0, (sequences + 1) * pages, pages, dtype=torch.int32, device=queries.device)
    last = (lens - 1) % page_tokens + 1
    wrapper.plan(
        offsets, table.reshape(-1), last, queries.shape[1], keys.shape[2], keys.shape[3], page_tokens,
        q_data_type=queries.dtype, kv_data_type=keys.dtype,
    )  # fmt: skip
    return lambda: wrapper.run(queries, (keys, values))


def _contiguous(queries: Tensor, keys: Tensor, values: Tensor, table: Tensor) -> Callable[[], object]:
    laid_keys, laid_values = (pool[table.long()].flatten(1, 2).transpose(1, 2) for pool in (keys, values))
    asked = queries[:, :, None]
    return lambda: scaled_dot_product_attention(asked, laid_keys, laid_values, enable_gqa=True)


def delta_others(inputs: RecurrentInputs, states: Tensor, sequences: int, scale: float) -> Others:
    """flash-linear-attention's chunked prefill."""

    def make() -> Callable[[], object]:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule  # noqa: PLC0415 - it is seldom there

        group = inputs.values.shape[1] // inputs.keys.shape[1]
        rows = [
            tensor.repeat_interleave(group, 1) if tensor.shape[1] != inputs.values.shape[1] else tensor
            for tensor in (inputs.queries, inputs.keys, inputs.values, inputs.log_decays, inputs.betas)
        ]
        query, key, value, decay, beta = (row.reshape(sequences, -1, *row.shape[1:]) for row in rows)
        return lambda: chunk_gated_delta_rule(
            query, key, value, g=decay, beta=beta.to(value.dtype), scale=scale, initial_state=states,
            output_final_state=True,
        )  # fmt: skip

    return _try("flash-linear-attention", make)


def delta_decode_others(inputs: RecurrentInputs, states: Tensor) -> Others:
    """flash-linear-attention's recurrent step."""

    def make() -> Callable[[], object]:
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule  # noqa: PLC0415 - it is seldom there

        group = inputs.values.shape[1] // inputs.keys.shape[1]
        query, key = (one.repeat_interleave(group, 1)[:, None] for one in (inputs.queries, inputs.keys))
        value, decay, beta = (one[:, None] for one in (inputs.values, inputs.log_decays, inputs.betas))
        return lambda: fused_recurrent_gated_delta_rule(
            query, key, value, g=decay, beta=beta.to(value.dtype), initial_state=states, output_final_state=True
        )

    return _try("flash-linear-attention", make)
