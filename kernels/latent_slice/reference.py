"""Plain torch: every n-th page, one indexed read or write a layer."""

from torch import Tensor

from kernels.layer_table import Layers


def latent_slice(pool: Layers, page_ids: Tensor, rank: int, ranks: int, out: Tensor) -> None:
    """See `kernels.latent_slice.latent_slice`; the arguments are checked there."""
    for layer in range(len(pool)):
        out[layer] = pool[layer][page_ids[rank::ranks].long()]


def latent_interleave(slices: Tensor, page_ids: Tensor, pool: Layers) -> None:
    """See `kernels.latent_slice.latent_interleave`; the arguments are checked there."""
    for rank in range(len(slices)):
        targets = page_ids[rank :: len(slices)].long()
        for layer in range(len(pool)):
            pool[layer][targets] = slices[rank, layer, : len(targets)]
