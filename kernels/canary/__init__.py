"""Checksums of pages: what was sent, kept or restored is what was written, or it is known which page is not."""

import torch
from torch import Tensor

from kernels.checks import check_index, check_layers, check_like
from kernels.dispatch import check_devices, implementation
from kernels.errors import ShapeMismatch
from kernels.layer_table import Layers, any_tensor, find_spans

__all__ = ["page_checksums", "verify_checksums"]


def page_checksums(pool: Layers, page_ids: Tensor, *, sample_every: int = 1) -> Tensor:
    """A 64-bit mixed checksum of each page, all layers of it.

    A word is mixed with its layer and its place in the page, not with the page's number: a page keeps its checksum
    when it is copied. Two checksums differ when a bit does, when words or layers are swapped, and when all are zero
    in one and not in the other; against purpose they protect nothing.

    Args:
        pool: [layers, pages, page_tokens, *row], contiguous, or a table of layers; any dtype; a row's bytes are a
            multiple of 8.
        page_ids: [n], int32 or int64.
        sample_every: Read only one token in so many, another one in each layer: those at
            `layer % min(sample_every, page_tokens)` behind a multiple of `sample_every`.

    Returns:
        [n], int64.

    Raises:
        ShapeMismatch: Dimensions do not fit.
        DtypeMismatch: Devices differ.
        PageOutOfRange: A page is not one of the pool's.

    Cost: the pages read once; two launches; no sync.
    Reference: kernels/canary/reference.py.
    """
    _check(pool, page_ids, sample_every)
    sums = page_ids.new_empty(page_ids.shape, dtype=torch.int64)
    implementation("canary", any_tensor(pool)).page_checksums(pool, page_ids, sample_every, sums)
    return sums


def verify_checksums(pool: Layers, page_ids: Tensor, expected: Tensor, *, sample_every: int = 1) -> Tensor:
    """How many pages do not have the checksum expected, and the first such.

    Args:
        pool: As of `page_checksums`.
        page_ids: As of `page_checksums`.
        expected: [n], int64, taken with the same `sample_every`.
        sample_every: As of `page_checksums`.

    Returns:
        [2], int64, on the pool's device: the count, and the first one's place in `page_ids`, or -1.

    Errors and cost as `page_checksums`.
    """
    _check(pool, page_ids, sample_every)
    check_like("expected", expected, tuple(page_ids.shape), torch.int64)
    check_devices(pool=any_tensor(pool), expected=expected)
    found = torch.empty(2, dtype=torch.int64, device=page_ids.device)
    implementation("canary", any_tensor(pool)).verify_checksums(pool, page_ids, expected, sample_every, found)
    return found


def _check(pool: Layers, page_ids: Tensor, sample_every: int) -> None:
    check_layers("pool", pool, dims=4)
    row_bytes = any_tensor(pool).element_size()
    for size in pool.shape[3:]:
        row_bytes *= size
    if row_bytes == 0 or row_bytes % 8:
        raise ShapeMismatch(f"a row of {row_bytes} bytes; checksums are taken of words of 8")
    if sample_every < 1:
        raise ShapeMismatch(f"one token in {sample_every}")
    if any(start % 8 for start, _ in find_spans(pool)):
        raise ShapeMismatch("a layer does not start at a multiple of 8 bytes; checksums are taken of words of 8")
    check_index("page_ids", page_ids, limit=pool.shape[1])
    check_devices(pool=any_tensor(pool), page_ids=page_ids)
