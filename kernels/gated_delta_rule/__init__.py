"""The gated delta rule: a linear attention whose state forgets by a gate and overwrites what a key already holds."""

import torch
from torch import Tensor

from kernels.checks import check_apart, check_distinct, check_index, check_like
from kernels.dispatch import can_read, check_devices, check_multiplies, implementation
from kernels.errors import DtypeMismatch, ShapeMismatch
from kernels.gated_delta_rule.call import CHUNK_TOKENS, DeltaRows, Prefilled, RecurrentInputs

__all__ = ["CHUNK_TOKENS", "DeltaRows", "Prefilled", "RecurrentInputs", "gated_delta_decode", "gated_delta_prefill"]


def gated_delta_prefill(
    inputs: RecurrentInputs,
    initial_states: Tensor,
    rows: DeltaRows,
    *,
    scale: float,
    checkpoint_tokens: int | None = None,
    checkpoint_dtype: torch.dtype = torch.float32,
) -> Prefilled:
    """Run rows of tokens through the rule, each from its own state.

    Chunks begin at multiples of `CHUNK_TOKENS` positions of the sequence, wherever its row begins.

    Args:
        inputs: Tokens of all rows, flat.
        initial_states: State before each row's first token, [rows, value_heads, key_dim, value_dim], float32.
        rows: Where rows begin, on the flat axis and in their sequences.
        scale: Factor on the queries, usually key_dim ** -0.5.
        checkpoint_tokens: Also keep the state after every position that is a multiple of this, and of `CHUNK_TOKENS`.
        checkpoint_dtype: float32, or bfloat16 or float16 to round checkpoints.

    Returns:
        Output, final states and checkpoints.

    Raises:
        ShapeMismatch: Dimensions do not fit, or `checkpoint_tokens` is no multiple of `CHUNK_TOKENS`.
        DtypeMismatch: Dtypes or devices differ.

    Cost: about 2 * value_heads * (2 * CHUNK_TOKENS + 3 * key_dim) * value_dim operations a token;
        two launches; no sync.
    Reference: kernels/gated_delta_rule/reference.py.
    """
    inputs.check()
    check_multiplies(inputs.queries)
    heads, key_dim, value_dim = inputs.state_shape
    rows.check(tokens=len(inputs.queries))
    check_like("initial_states", initial_states, (rows.rows, heads, key_dim, value_dim), torch.float32)
    if checkpoint_tokens is not None and (checkpoint_tokens < 1 or checkpoint_tokens % CHUNK_TOKENS):
        raise ShapeMismatch(f"a checkpoint every {checkpoint_tokens} tokens, chunks are of {CHUNK_TOKENS}")
    if checkpoint_dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise DtypeMismatch(f"checkpoints in {checkpoint_dtype}")
    check_devices(queries=inputs.queries, states=initial_states, rows=rows.row_offsets)
    offsets = None if checkpoint_tokens is None else rows.checkpoint_offsets(checkpoint_tokens)
    kept = 0 if checkpoint_tokens is None else rows.most_checkpoints(len(inputs.queries), checkpoint_tokens)
    done = Prefilled(
        out=torch.empty_like(inputs.values, memory_format=torch.contiguous_format),
        final_states=torch.empty_like(initial_states),
        checkpoints=initial_states.new_empty((kept, heads, key_dim, value_dim), dtype=checkpoint_dtype),
        checkpoint_offsets=offsets,
    )
    module = implementation("gated_delta_rule", inputs.queries)
    module.gated_delta_prefill(inputs, initial_states, rows, scale, checkpoint_tokens, done)
    return done


def gated_delta_decode(inputs: RecurrentInputs, states: Tensor, slots: Tensor, *, scale: float) -> Tensor:
    """Run one token of each sequence through the rule, its state replaced in place.

    Args:
        inputs: One token a sequence.
        states: Pool of states, [slots, value_heads, key_dim, value_dim], contiguous, float32, bfloat16 or float16.
        slots: Which state each sequence has, [sequences], int32 or int64, none twice; -1 for a place that is empty,
            whose output is zeros.
        scale: Factor on the queries, usually key_dim ** -0.5.

    Returns:
        [sequences, value_heads, value_dim] in the dtype of the values; all other states stay bit-identical.

    Raises:
        ShapeMismatch: Dimensions do not fit, a state is named twice, or states overlap the inputs.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A slot is not one of the pool's.

    Cost: each state read and written once; one launch; no sync.
    Reference: kernels/gated_delta_rule/reference.py.
    """
    inputs.check()
    if states.dim() != 4 or tuple(states.shape[1:]) != inputs.state_shape or not states.is_contiguous():
        raise ShapeMismatch(f"states are {tuple(states.shape)}, a state is {inputs.state_shape}")
    if states.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise DtypeMismatch(f"states are {states.dtype}")
    check_index("slots", slots, limit=len(states), lowest=-1)
    if len(slots) != len(inputs.queries):
        raise ShapeMismatch(f"{len(slots)} slots for {len(inputs.queries)} sequences")
    if can_read(slots):
        check_distinct("slots", slots[slots >= 0])
    check_devices(queries=inputs.queries, states=states, slots=slots)
    check_apart(("states",), states=states, queries=inputs.queries, keys=inputs.keys, values=inputs.values)
    out = torch.empty_like(inputs.values, memory_format=torch.contiguous_format)
    implementation("gated_delta_rule", states).gated_delta_decode(inputs, states, slots, scale, out)
    return out
