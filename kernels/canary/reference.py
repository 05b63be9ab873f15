"""Plain torch: every word mixed with its place, then summed; 64-bit integers wrap around."""

import torch
from torch import Tensor

from kernels.layer_table import Layers

#: What places and words are multiplied by: odd, with about as many ones as zeros (the splitmix64 finalizer's).
PLACE_FACTOR = 0x9E3779B97F4A7C15 - 2**64
FIRST_FACTOR = 0xBF58476D1CE4E5B9 - 2**64
SECOND_FACTOR = 0x94D049BB133111EB - 2**64


def page_checksums(pool: Layers, page_ids: Tensor, sample_every: int, sums: Tensor) -> None:
    """See `kernels.canary.page_checksums`; the arguments are checked there."""
    sums.zero_()
    for layer in range(len(pool)):
        pages = pool[layer][page_ids.long()].flatten(2).view(torch.int64)  # [n, page_tokens, words]
        page_words = pages.shape[1] * pages.shape[2]
        places = torch.arange(layer * page_words, (layer + 1) * page_words, device=pages.device).view(pages.shape[1:])
        rows = slice(layer % min(sample_every, pages.shape[1]), None, sample_every)
        sums += mix(pages[:, rows], places[rows]).sum(dim=(1, 2))


def verify_checksums(pool: Layers, page_ids: Tensor, expected: Tensor, sample_every: int, found: Tensor) -> None:
    """See `kernels.canary.verify_checksums`; the arguments are checked there."""
    sums = torch.empty_like(expected)
    page_checksums(pool, page_ids, sample_every, sums)
    wrong = (sums != expected).nonzero().flatten()
    found[0] = len(wrong)
    found[1] = wrong[0] if len(wrong) else -1


def mix(words: Tensor, places: Tensor) -> Tensor:
    """Each word mixed with its place."""
    mixed = (words ^ ((places + 1) * PLACE_FACTOR)) * FIRST_FACTOR
    mixed = (mixed ^ _shift_right(mixed, 32)) * SECOND_FACTOR
    return mixed ^ _shift_right(mixed, 29)


def _shift_right(words: Tensor, bits: int) -> Tensor:
    return (words >> bits) & ((1 << (64 - bits)) - 1)
