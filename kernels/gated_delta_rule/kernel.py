"""The gated delta rule in Triton: chunks in two launches for a prefill, one launch for a decode step.

Within a chunk, with G the running sum of log decays and i, j tokens (the README derives it):

    A = tril(beta_i exp(G_i - G_j) k_i . k_j, -1)      X = (1 + A)^-1      P = tril(exp(G_i - G_j) q_i . k_j)
    r = beta v - beta exp(G) k S      d = X r      o = scale * (exp(G) q S + P d)
    S' = exp(G_last) S + k^T (exp(G_last - G) d)

X and P know nothing of the state: the first launch computes them for all chunks at once. The second goes through a
row's chunks with the state in registers, a block of value columns a program. A token before the row's first position in
its chunk, or after its last, has no key, no gate and no query.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gated_delta_rule.call import CHUNK_TOKENS, DeltaRows, Prefilled, RecurrentInputs
from kernels.processors import count_processors

#: Tokens whose part of (1 + A) is inverted at once.
BLOCK_TOKENS = 16
#: Value columns of a program that goes through chunks, and stages of its loop: one program a multiprocessor, or, where
#: that leaves some idle, two of half the columns.
SCAN_COLUMNS, SCAN_STAGES = 32, 3
NARROW_SCAN_COLUMNS, NARROW_SCAN_STAGES = 16, 2
#: Value columns of a program of a decode step.
DECODE_COLUMNS = 32
#: A log decay below this keeps nothing that float32 holds, and is taken for it, so that sums of them stay numbers.
LEAST_DECAY = -104.0
_INDICES = ["row_offsets", "start_tokens", "checkpoint_offsets"]


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=_INDICES)
def prepare_kernel(
    queries: tl.tensor,
    keys: tl.tensor,
    log_decays: tl.tensor,
    betas: tl.tensor,
    row_offsets: tl.tensor,
    start_tokens: tl.tensor,
    inverses: tl.tensor,
    products: tl.tensor,
    rows: tl.tensor,
    KEY_HEADS: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    DIM: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
    LEAST: tl.constexpr,
) -> None:
    """X and P of one chunk and value head."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    line = _find_row(row_offsets, rows, chunk, CHUNK)
    offset = tl.load(row_offsets + line).to(tl.int32)
    start = tl.load(start_tokens + line).to(tl.int32) % CHUNK
    tokens = tl.load(row_offsets + line + 1).to(tl.int32) - offset
    # Token i of the chunk is token `first + i` of the row.
    first = (chunk - offset // CHUNK - 2 * line) * CHUNK - start
    if first < tokens:
        place, lane = tl.arange(0, CHUNK), tl.arange(0, DIM)
        token = first + place
        is_there = (token >= 0) & (token < tokens)
        flat = (offset + token).to(tl.int64)
        gate_at = flat * VALUE_HEADS + head
        gate = tl.load(log_decays + gate_at, mask=is_there, other=0.0)
        decay = tl.cumsum(tl.where(gate < LEAST, LEAST, gate), 0)
        beta = tl.load(betas + gate_at, mask=is_there, other=0.0)
        key_head = head // (VALUE_HEADS // KEY_HEADS)
        at = ((flat * KEY_HEADS + key_head) * KEY_DIM)[:, None] + lane[None, :]
        is_read = is_there[:, None] & (lane < KEY_DIM)[None, :]
        key = tl.load(keys + at, mask=is_read, other=0.0)
        query = tl.load(queries + at, mask=is_read, other=0.0)
        # Of a later token j the factor would overflow, and is not needed.
        earlier = place[:, None] >= place[None, :]
        kept = tl.exp(tl.where(earlier, decay[:, None] - decay[None, :], 0.0))
        transposed = tl.trans(key)
        out_at = (gate_at * CHUNK)[:, None] + place[None, :]
        is_written = is_there[:, None] & (place < CHUNK)[None, :]
        product = tl.where(earlier, tl.dot(query, transposed, input_precision="ieee") * kept, 0.0)
        tl.store(products + out_at, product.to(products.dtype.element_ty), mask=is_written)
        alike = tl.dot(key, transposed, input_precision="ieee") * kept * beta[:, None]
        lower = tl.where(place[:, None] > place[None, :], alike, 0.0)
        inverse = _invert(lower, place, CHUNK, BLOCK, PRECISION)
        tl.store(inverses + out_at, inverse.to(inverses.dtype.element_ty), mask=is_written)


@triton.jit
def _invert(
    lower: tl.tensor, place: tl.tensor, CHUNK: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr
) -> tl.tensor:
    """The inverse of 1 + lower: its diagonal blocks row by row, then what lies below them, block sizes doubling."""
    BLOCKS: tl.constexpr = CHUNK // BLOCK
    block, row = tl.arange(0, BLOCKS), tl.arange(0, BLOCK)
    is_diagonal = block[:, None, None, None] == block[None, None, :, None]
    diagonal = tl.sum(tl.where(is_diagonal, tl.reshape(lower, (BLOCKS, BLOCK, BLOCKS, BLOCK)), 0.0), 2)
    solved = tl.where((row[:, None] == row[None, :])[None, :, :], 1.0, tl.zeros_like(diagonal))
    for one in range(1, BLOCK):
        is_row = (row == one)[None, :, None]
        factors = tl.sum(tl.where(is_row, diagonal, 0.0), 1)  # [BLOCKS, BLOCK]
        change = tl.sum(factors[:, :, None] * solved, 1)
        solved = tl.where(is_row, solved - change[:, None, :], solved)
    inverse = tl.reshape(tl.where(is_diagonal, solved[:, :, None, :], 0.0), (CHUNK, CHUNK))
    SIZE: tl.constexpr = BLOCK
    for doubling in tl.static_range(8):
        if (SIZE << doubling) < CHUNK:
            number = place // (SIZE << doubling)
            is_below = (number % 2 == 1)[:, None] & (number[:, None] == number[None, :] + 1)
            below = tl.dot(tl.where(is_below, lower, 0.0), inverse, input_precision=PRECISION)
            inverse -= tl.dot(inverse, below, input_precision=PRECISION)
    return inverse


@triton.jit
def _find_row(row_offsets: tl.tensor, rows: tl.tensor, chunk: tl.tensor, CHUNK: tl.constexpr) -> tl.tensor:
    """The row that a chunk belongs to: row s begins at chunk `row_offsets[s] // CHUNK + 2 * s`, and may leave gaps."""
    low, high = rows * 0, rows - 1
    while low < high:
        middle = (low + high + 1) // 2
        if tl.load(row_offsets + middle).to(tl.int32) // CHUNK + 2 * middle <= chunk:
            low = middle
        else:
            high = middle - 1
    return low


@triton.jit(do_not_specialize=["scale", "checkpoint_tokens"], do_not_specialize_on_alignment=_INDICES)
def scan_kernel(
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    log_decays: tl.tensor,
    betas: tl.tensor,
    inverses: tl.tensor,
    products: tl.tensor,
    row_offsets: tl.tensor,
    start_tokens: tl.tensor,
    checkpoint_offsets: tl.tensor,
    initial_states: tl.tensor,
    final_states: tl.tensor,
    checkpoints: tl.tensor,
    out: tl.tensor,
    scale: tl.tensor,
    checkpoint_tokens: tl.tensor,
    KEY_HEADS: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
    HAS_CHECKPOINTS: tl.constexpr,
    STAGES: tl.constexpr,
    LEAST: tl.constexpr,
) -> None:
    """Go through one row's chunks for one value head and a block of its columns."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)  # [COLUMNS]
    head, line = tl.program_id(1), tl.program_id(2)
    place, lane = tl.arange(0, CHUNK), tl.arange(0, DIM)
    offset = tl.load(row_offsets + line).to(tl.int64)
    tokens = (tl.load(row_offsets + line + 1) - offset).to(tl.int32)
    position = tl.load(start_tokens + line).to(tl.int32)
    start = position % CHUNK
    in_state = (lane < KEY_DIM)[:, None] & (column < VALUE_DIM)[None, :]
    state_at = lane[:, None] * VALUE_DIM + column[None, :]  # [DIM, COLUMNS]
    own_state = (line.to(tl.int64) * VALUE_HEADS + head) * (KEY_DIM * VALUE_DIM)
    state = tl.load(initial_states + own_state + state_at, mask=in_state, other=0.0)
    key_head = head // (VALUE_HEADS // KEY_HEADS)
    kept = 0
    for chunk in tl.range(0, (start + tokens + CHUNK - 1) // CHUNK, num_stages=STAGES):
        token = chunk * CHUNK - start + place
        is_there = (token >= 0) & (token < tokens)
        flat = offset + token
        key_at = ((flat * KEY_HEADS + key_head) * KEY_DIM)[:, None] + lane[None, :]
        is_key = is_there[:, None] & (lane < KEY_DIM)[None, :]
        gate_at = flat * VALUE_HEADS + head
        value_at = (gate_at * VALUE_DIM)[:, None] + column[None, :]
        is_value = is_there[:, None] & (column < VALUE_DIM)[None, :]
        pair_at = (gate_at * CHUNK)[:, None] + place[None, :]
        key = tl.load(keys + key_at, mask=is_key, other=0.0)
        query = tl.load(queries + key_at, mask=is_key, other=0.0)
        value = tl.load(values + value_at, mask=is_value, other=0.0).to(tl.float32)
        inverse = tl.load(inverses + pair_at, mask=is_there[:, None], other=0.0)
        product = tl.load(products + pair_at, mask=is_there[:, None], other=0.0)
        gate = tl.load(log_decays + gate_at, mask=is_there, other=0.0)
        gate = tl.where(gate < LEAST, LEAST, gate)
        beta = tl.load(betas + gate_at, mask=is_there, other=0.0)
        decay, total = tl.cumsum(gate, 0), tl.sum(gate, 0)
        held = state.to(key.dtype)
        recalled = tl.dot(key, held, input_precision="ieee") * tl.exp(decay)[:, None]  # [CHUNK, COLUMNS]
        wanted = (value - recalled) * beta[:, None]
        change = tl.dot(inverse, wanted.to(key.dtype), input_precision="ieee")
        result = tl.dot(query, held, input_precision="ieee") * tl.exp(decay)[:, None]
        result = tl.dot(product, change.to(key.dtype), result, input_precision="ieee") * scale
        tl.store(out + value_at, result.to(out.dtype.element_ty), mask=is_value)
        left = (change * tl.exp(total - decay)[:, None]).to(key.dtype)
        state = tl.dot(tl.trans(key), left, state * tl.exp(total), input_precision="ieee")
        if HAS_CHECKPOINTS:
            after = position - start + (chunk + 1) * CHUNK
            if (after % checkpoint_tokens == 0) & (after <= position + tokens):
                slot = tl.load(checkpoint_offsets + line).to(tl.int64) + kept
                kept_at = (slot * VALUE_HEADS + head) * (KEY_DIM * VALUE_DIM) + state_at
                tl.store(checkpoints + kept_at, state.to(checkpoints.dtype.element_ty), mask=in_state)
                kept += 1
    tl.store(final_states + own_state + state_at, state, mask=in_state)


@triton.jit(do_not_specialize=["scale"], do_not_specialize_on_alignment=["slots"])
def recurrent_kernel(
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    log_decays: tl.tensor,
    betas: tl.tensor,
    states: tl.tensor,
    slots: tl.tensor,
    out: tl.tensor,
    scale: tl.tensor,
    KEY_HEADS: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """One token of one sequence, for one value head and a block of its columns."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)  # [COLUMNS]
    head, sequence = tl.program_id(1), tl.program_id(2).to(tl.int64)
    in_columns, lane = column < VALUE_DIM, tl.arange(0, DIM)
    slot = tl.load(slots + sequence).to(tl.int64)
    gate_at = sequence * VALUE_HEADS + head
    if slot < 0:
        nothing = tl.zeros((COLUMNS,), dtype=out.dtype.element_ty)
        tl.store(out + gate_at * VALUE_DIM + column, nothing, mask=in_columns)
    else:
        key_at = (sequence * KEY_HEADS + head // (VALUE_HEADS // KEY_HEADS)) * KEY_DIM + lane
        in_key = lane < KEY_DIM
        state_at = states + (slot * VALUE_HEADS + head) * (KEY_DIM * VALUE_DIM)
        state_at += lane[:, None] * VALUE_DIM + column[None, :]  # [DIM, COLUMNS]
        in_state = in_key[:, None] & in_columns[None, :]
        state = tl.load(state_at, mask=in_state, other=0.0).to(tl.float32)
        key = tl.load(keys + key_at, mask=in_key, other=0.0).to(tl.float32)[:, None]
        query = tl.load(queries + key_at, mask=in_key, other=0.0).to(tl.float32)[:, None]
        value = tl.load(values + gate_at * VALUE_DIM + column, mask=in_columns, other=0.0).to(tl.float32)
        state *= tl.exp(tl.load(log_decays + gate_at))
        change = (value - tl.sum(state * key, 0)) * tl.load(betas + gate_at)
        state += key * change[None, :]
        result = tl.sum(state * query, 0) * scale
        tl.store(out + gate_at * VALUE_DIM + column, result.to(out.dtype.element_ty), mask=in_columns)
        tl.store(state_at, state.to(states.dtype.element_ty), mask=in_state)


def gated_delta_prefill(
    inputs: RecurrentInputs,
    initial_states: Tensor,
    rows: DeltaRows,
    scale: float,
    checkpoint_tokens: int | None,
    done: Prefilled,
) -> None:
    """See `kernels.gated_delta_rule.gated_delta_prefill`; the arguments are checked there."""
    tokens, key_heads, key_dim = inputs.keys.shape
    heads, _, value_dim = inputs.state_shape
    if not rows.rows:
        return
    pairs = (tokens, heads, CHUNK_TOKENS)
    inverses, products = (torch.empty(pairs, dtype=inputs.keys.dtype, device=inputs.keys.device) for _ in range(2))
    dim = _pad(key_dim)
    programs = heads * rows.rows * -(-value_dim // SCAN_COLUMNS)
    is_wide = programs > count_processors(inputs.keys.device)
    columns = min(SCAN_COLUMNS if is_wide else NARROW_SCAN_COLUMNS, _pad(value_dim))
    prepare_kernel[(tokens // CHUNK_TOKENS + 2 * rows.rows, heads)](
        inputs.queries,
        inputs.keys,
        inputs.log_decays,
        inputs.betas,
        rows.row_offsets,
        rows.start_tokens,
        inverses,
        products,
        rows.rows,
        KEY_HEADS=key_heads,
        VALUE_HEADS=heads,
        KEY_DIM=key_dim,
        DIM=dim,
        CHUNK=CHUNK_TOKENS,
        BLOCK=BLOCK_TOKENS,
        # Blocks below the diagonal are rounded to the inputs' 16 bits when they are done.
        PRECISION="ieee" if inputs.keys.dtype == torch.float32 else "tf32",
        LEAST=LEAST_DECAY,
        num_warps=4,
    )
    scan_kernel[(-(-value_dim // columns), heads, rows.rows)](
        inputs.queries,
        inputs.keys,
        inputs.values,
        inputs.log_decays,
        inputs.betas,
        inverses,
        products,
        rows.row_offsets,
        rows.start_tokens,
        rows.row_offsets if done.checkpoint_offsets is None else done.checkpoint_offsets,
        initial_states,
        done.final_states,
        done.checkpoints,
        done.out,
        float(scale),
        checkpoint_tokens or 0,
        KEY_HEADS=key_heads,
        VALUE_HEADS=heads,
        KEY_DIM=key_dim,
        DIM=dim,
        VALUE_DIM=value_dim,
        COLUMNS=columns,
        CHUNK=CHUNK_TOKENS,
        HAS_CHECKPOINTS=checkpoint_tokens is not None,
        STAGES=SCAN_STAGES if is_wide else NARROW_SCAN_STAGES,
        LEAST=LEAST_DECAY,
        num_warps=4,
    )


def gated_delta_decode(inputs: RecurrentInputs, states: Tensor, slots: Tensor, scale: float, out: Tensor) -> None:
    """See `kernels.gated_delta_rule.gated_delta_decode`; the arguments are checked there."""
    sequences, key_heads, key_dim = inputs.keys.shape
    heads, _, value_dim = inputs.state_shape
    if not sequences:
        return
    columns = min(DECODE_COLUMNS, _pad(value_dim))
    recurrent_kernel[(-(-value_dim // columns), heads, sequences)](
        inputs.queries,
        inputs.keys,
        inputs.values,
        inputs.log_decays,
        inputs.betas,
        states,
        slots,
        out,
        float(scale),
        KEY_HEADS=key_heads,
        VALUE_HEADS=heads,
        KEY_DIM=key_dim,
        DIM=_pad(key_dim),
        VALUE_DIM=value_dim,
        COLUMNS=columns,
        num_warps=4,
    )


def _pad(size: int) -> int:
    """The power of two that a matrix unit takes for a side of this size."""
    return max(16, int(triton.next_power_of_2(size)))
