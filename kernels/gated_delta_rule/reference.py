"""Plain torch: token by token, as the rule is defined.

With gate a = exp(log_decay), S' = a S + beta k (v - (a S)^T k)^T and o = scale * S'^T q, in float32.
"""

import torch
from torch import Tensor

from kernels.gated_delta_rule.call import DeltaRows, Prefilled, RecurrentInputs


def gated_delta_prefill(
    inputs: RecurrentInputs,
    initial_states: Tensor,
    rows: DeltaRows,
    scale: float,
    checkpoint_tokens: int | None,
    done: Prefilled,
) -> None:
    """See `kernels.gated_delta_rule.gated_delta_prefill`; the arguments are checked there."""
    offsets, starts = rows.row_offsets.tolist(), rows.start_tokens.tolist()
    kept = 0
    for row, start_token in enumerate(starts):
        state = initial_states[row].clone()
        for token in range(offsets[row], offsets[row + 1]):
            state, done.out[token] = _step(inputs, token, state, scale)
            position_after = start_token + token - offsets[row] + 1
            if checkpoint_tokens is not None and position_after % checkpoint_tokens == 0:
                done.checkpoints[kept] = state
                kept += 1
        done.final_states[row] = state


def gated_delta_decode(inputs: RecurrentInputs, states: Tensor, slots: Tensor, scale: float, out: Tensor) -> None:
    """See `kernels.gated_delta_rule.gated_delta_decode`; the arguments are checked there."""
    for sequence, slot in enumerate(slots.tolist()):
        if slot < 0:
            out[sequence] = 0
        else:
            state, out[sequence] = _step(inputs, sequence, states[slot].float(), scale)
            states[slot] = state


def _step(inputs: RecurrentInputs, token: int, state: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    group = inputs.values.shape[1] // inputs.keys.shape[1]
    query, key = (heads[token].float().repeat_interleave(group, 0) for heads in (inputs.queries, inputs.keys))
    state = state * torch.exp(inputs.log_decays[token])[:, None, None]
    held = torch.einsum("hkv,hk->hv", state, key)
    change = inputs.betas[token][:, None] * (inputs.values[token].float() - held)
    state = state + key[:, :, None] * change[:, None, :]
    return state, torch.einsum("hkv,hk->hv", state, query * scale)
