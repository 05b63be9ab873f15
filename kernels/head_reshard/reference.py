"""Plain torch: each position's page and place in it, then one indexed read or write of a slice of heads a layer."""

import torch
from torch import Tensor

from kernels.layer_table import Layers


def gather_heads(pool: Layers, page_ids: Tensor, first_head: int, start_token: int, out: Tensor) -> None:
    """See `kernels.head_reshard.gather_heads`; the arguments are checked there."""
    pages, places = _find_places(pool, page_ids, start_token, out.shape[1])
    for layer in range(len(pool)):
        out[layer] = pool[layer][pages, places, first_head : first_head + out.shape[2]]


def scatter_heads(staging: Tensor, page_ids: Tensor, pool: Layers, first_head: int, start_token: int) -> None:
    """See `kernels.head_reshard.scatter_heads`; the arguments are checked there."""
    pages, places = _find_places(pool, page_ids, start_token, staging.shape[2])
    heads = staging.shape[3]
    for writer in range(len(staging)):
        head = first_head + writer * heads
        for layer in range(len(pool)):
            pool[layer][pages, places, head : head + heads] = staging[writer, layer]


def _find_places(pool: Layers, page_ids: Tensor, start_token: int, tokens: int) -> tuple[Tensor, Tensor]:
    positions = torch.arange(start_token, start_token + tokens, device=page_ids.device)
    return page_ids.long()[positions // pool.shape[2]], positions % pool.shape[2]
