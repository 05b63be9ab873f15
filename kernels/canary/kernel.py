"""Checksums in Triton: programs sum their share of a page's layers, one more program adds up and compares."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.canary.reference import FIRST_FACTOR, PLACE_FACTOR, SECOND_FACTOR
from kernels.layer_table import Layers, LayerTable, any_tensor
from kernels.row_copy.kernel import choose_segment

#: Words of 8 bytes that a program reads at once.
TILE_WORDS = 1024
#: Programs that all pages are shared among, as far as layers allow; of a sample each has more than one layer, else the
#: parts would take longer to add up than to make.
PROGRAMS, SAMPLED_PROGRAMS = 8192, 2048
#: Pages, and parts of each, that are added up at once.
BLOCK_PAGES, BLOCK_PARTS = 64, 32
_WRAP = 2**64

_RUNTIME = ["layers", "page_words", "layer_words", "row_units", "layer_rows", "page_rows", "sample_every"]


@triton.jit(do_not_specialize=_RUNTIME, do_not_specialize_on_alignment=["page_ids"])
def page_checksums_kernel(
    pool: tl.tensor,
    page_ids: tl.tensor,
    partials: tl.tensor,
    layers: tl.tensor,
    page_words: tl.tensor,
    layer_words: tl.tensor,
    row_units: tl.tensor,
    layer_rows: tl.tensor,
    page_rows: tl.tensor,
    sample_every: tl.tensor,
    IS_TABLE: tl.constexpr,
    ALIGNMENT: tl.constexpr,
    UNIT: tl.constexpr,
    SEGMENT: tl.constexpr,
    PLACE: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
) -> None:
    """Sum layers `program_id(1), program_id(1) + programs, ...` of one page."""
    page = tl.load(page_ids + tl.program_id(0)).to(tl.int64)
    lane = tl.arange(0, SEGMENT)
    total = tl.zeros((SEGMENT,), dtype=tl.uint64)
    row_segments = (row_units * UNIT + SEGMENT - 1) // SEGMENT
    for layer in range(tl.program_id(1), layers, tl.num_programs(1)):
        if IS_TABLE:
            base = tl.multiple_of(tl.load(pool + layer).to(tl.pointer_type(tl.int64)), ALIGNMENT)
        else:
            base = pool.to(tl.pointer_type(tl.int64)) + (layer_words.to(tl.int64) * layer) * UNIT
        base += page * page_words * UNIT
        first_row = layer % tl.minimum(sample_every, page_rows)
        for segment in range(layer_rows * row_segments):
            row = first_row + (segment // row_segments) * sample_every
            column = (segment % row_segments) * SEGMENT + lane
            is_read = (column < row_units * UNIT) & (row < page_rows)
            at = row.to(tl.int64) * row_units * UNIT + column
            word = tl.load(base + at, mask=is_read, other=0, eviction_policy="evict_first").to(tl.uint64, bitcast=True)
            place = page_words.to(tl.int64) * UNIT * layer + at + 1
            mixed = (word ^ (place.to(tl.uint64) * PLACE)) * FIRST
            mixed = (mixed ^ (mixed >> 32)) * SECOND
            total += tl.where(is_read, mixed ^ (mixed >> 29), 0)
    at = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    tl.store(partials + at, tl.sum(total, 0).to(tl.int64, bitcast=True))


@triton.jit(do_not_specialize=["pages", "parts"])
def checksum_totals_kernel(
    partials: tl.tensor,
    expected: tl.tensor,
    sums: tl.tensor,
    found: tl.tensor,
    pages: tl.tensor,
    parts: tl.tensor,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    IS_VERIFIED: tl.constexpr,
) -> None:
    """Add up each page's parts; write the sums, or count those that are not as expected and find the first."""
    wrong, first = tl.zeros((BLOCK,), dtype=tl.int64), tl.full((BLOCK,), 9223372036854775807, dtype=tl.int64)
    for start in range(0, pages, BLOCK):
        place = start + tl.arange(0, BLOCK).to(tl.int64)
        summed = tl.zeros((PARTS, BLOCK), dtype=tl.int64)
        for first_part in range(0, parts, PARTS):
            part = first_part + tl.arange(0, PARTS).to(tl.int64)
            is_there = (part < parts)[:, None] & (place < pages)[None, :]
            summed += tl.load(partials + part[:, None] * pages + place[None, :], mask=is_there, other=0)
        total = tl.sum(summed, 0)
        if IS_VERIFIED:
            is_wrong = (place < pages) & (total != tl.load(expected + place, mask=place < pages, other=0))
            wrong += is_wrong.to(tl.int64)
            first = tl.minimum(first, tl.where(is_wrong, place, 9223372036854775807))
        else:
            tl.store(sums + place, total, mask=place < pages)
    if IS_VERIFIED:
        count = tl.sum(wrong, 0)
        tl.store(found, count)
        tl.store(found + 1, tl.where(count > 0, tl.min(first, 0), -1))


def page_checksums(pool: Layers, page_ids: Tensor, sample_every: int, sums: Tensor) -> None:
    """See `kernels.canary.page_checksums`; the arguments are checked there."""
    if len(page_ids):
        _add_up(_sum_parts(pool, page_ids, sample_every), sums, sums, sums, is_verified=False)


def verify_checksums(pool: Layers, page_ids: Tensor, expected: Tensor, sample_every: int, found: Tensor) -> None:
    """See `kernels.canary.verify_checksums`; the arguments are checked there."""
    _add_up(_sum_parts(pool, page_ids, sample_every), expected, expected, found, is_verified=True)


def _sum_parts(pool: Layers, page_ids: Tensor, sample_every: int) -> Tensor:
    layers, _, page_rows = pool.shape[:3]
    one = pool[0]
    page_words = one[:1].numel() * one.element_size() // 8
    programs = PROGRAMS if sample_every == 1 else SAMPLED_PROGRAMS
    parts = max(1, min(layers, programs // max(len(page_ids), 1)))
    partials = torch.empty((parts, len(page_ids)), dtype=torch.int64, device=page_ids.device)
    if not len(page_ids):
        return partials
    if sample_every == 1:
        page_rows = 1  # all rows of a page are one
    row_words = page_words // page_rows
    is_table = isinstance(pool, LayerTable)
    starts = [span[0] for span in pool.spans] if isinstance(pool, LayerTable) else [any_tensor(pool).data_ptr()]
    unit = 2 if row_words % 2 == 0 and not any(start % 16 for start in starts) else 1
    page_checksums_kernel[(len(page_ids), parts)](
        pool.pointers if isinstance(pool, LayerTable) else pool,
        page_ids,
        partials,
        layers,
        page_words // unit,
        pool.shape[1] * page_words // unit,
        row_words // unit,
        -(-page_rows // sample_every),
        page_rows,
        sample_every,
        IS_TABLE=is_table,
        ALIGNMENT=8 * unit,
        UNIT=unit,
        SEGMENT=choose_segment(row_words, TILE_WORDS),
        PLACE=PLACE_FACTOR % _WRAP,
        FIRST=FIRST_FACTOR % _WRAP,
        SECOND=SECOND_FACTOR % _WRAP,
        num_warps=4,
    )
    return partials


def _add_up(partials: Tensor, expected: Tensor, sums: Tensor, found: Tensor, *, is_verified: bool) -> None:
    checksum_totals_kernel[(1,)](
        partials,
        expected,
        sums,
        found,
        partials.shape[1],
        partials.shape[0],
        BLOCK=BLOCK_PAGES,
        PARTS=BLOCK_PARTS,
        IS_VERIFIED=is_verified,
        num_warps=8,
    )
