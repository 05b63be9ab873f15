"""Plain torch: each position's page of the ring, then one indexed read or write a layer."""

import torch
from torch import Tensor

from kernels.layer_table import Layers


def window_gather(pool: Layers, ring_pages: Tensor, end_token: int, out: Tensor) -> None:
    """See `kernels.window_copy.window_gather`; the arguments are checked there."""
    pages, places = _find_places(pool, ring_pages, end_token, out.shape[1])
    for layer in range(len(pool)):
        out[layer] = pool[layer][pages, places]


def window_scatter(tail: Tensor, ring_pages: Tensor, pool: Layers, end_token: int) -> None:
    """See `kernels.window_copy.window_scatter`; the arguments are checked there."""
    pages, places = _find_places(pool, ring_pages, end_token, tail.shape[1])
    for layer in range(len(pool)):
        pool[layer][pages, places] = tail[layer]


def _find_places(pool: Layers, ring_pages: Tensor, end_token: int, tokens: int) -> tuple[Tensor, Tensor]:
    positions = torch.arange(end_token - tokens, end_token, device=ring_pages.device)
    numbers = positions // pool.shape[2]
    pages = ring_pages.long()[numbers % len(ring_pages)] if tokens else numbers
    return pages, positions % pool.shape[2]
