"""Plain torch: each position's page and place in it, then one indexed write a layer."""

import torch
from torch import Tensor

from kernels.layer_table import Layers


def page_scatter(staging: Tensor, page_ids: Tensor, pool: Layers, start_token: int) -> None:
    """See `kernels.page_scatter.page_scatter`; the arguments are checked there."""
    page_tokens = pool.shape[2]
    positions = torch.arange(start_token, start_token + staging.shape[1], device=staging.device)
    pages = page_ids.long()[positions // page_tokens]
    for layer in range(len(pool)):
        pool[layer][pages, positions % page_tokens] = staging[layer]
