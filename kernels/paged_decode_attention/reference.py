"""Plain torch: sequence by sequence, its pages read and attended to whole."""

import torch
from torch import Tensor

from kernels.attention_reference import attend, read_pages
from kernels.paged_decode_attention.call import DecodeCall


def paged_decode_attention(call: DecodeCall, out: Tensor, lse: Tensor) -> None:
    """See `kernels.paged_decode_attention.paged_decode_attention_with_lse`; the arguments are checked there."""
    page_tokens = call.key_pool.shape[1]
    for number, tokens in enumerate(call.seq_lens.tolist()):
        pages = -(-tokens // page_tokens)
        if call.page_offsets is None:
            picked = call.page_ids[number, :pages]
        else:
            start = int(call.page_offsets[number])
            picked = call.page_ids[start : start + pages]
        query = call.queries[number : number + 1]
        keys = read_pages(call.key_pool, picked, tokens, query.dtype, 1.0)
        values = read_pages(call.value_pool, picked, tokens, query.dtype, call.value_scale)
        positions = torch.arange(tokens, device=query.device)
        visible = positions >= tokens - (call.window_tokens or tokens)
        out[number : number + 1], lse[number : number + 1] = attend(
            query, keys, values, visible[None], call.scale, call.sinks
        )
