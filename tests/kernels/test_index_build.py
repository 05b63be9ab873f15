"""Indices of a decode step are what its lengths say, whoever looks at them."""

from dataclasses import replace

import pytest
import torch
from copies import few
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import DeviceMismatch, DtypeMismatch, PageOutOfRange, ShapeMismatch
from kernels.index_build import TILE_TOKENS, DecodeIndices, build_decode_indices, build_split_plan


def tiles_of(length, window):
    first = max(0, length - window) if window else 0
    return len({position // TILE_TOKENS for position in range(first, length)})


@few
@given(st.data())
def test_pages_offsets_tiles_and_slots_are_those_of_the_lengths(device, data):
    page_tokens, width = data.draw(st.sampled_from([1, 3, 16, 64])), data.draw(st.integers(1, 9))
    requests = data.draw(st.integers(1, 5))
    table = torch.randperm(requests * width, generator=torch.Generator().manual_seed(1)).view(requests, width)
    ids = data.draw(st.lists(st.integers(0, requests - 1), max_size=6))
    lengths = [data.draw(st.integers(0, width * page_tokens)) for _ in ids]
    window = data.draw(st.sampled_from([None, 1, 5, 64, 100]))
    kind = data.draw(st.sampled_from([torch.int32, torch.int64]))
    got = build_decode_indices(
        table.to(torch.int32).to(device),
        torch.tensor(ids, dtype=kind, device=device),
        torch.tensor(lengths, dtype=kind, device=device),
        page_tokens=page_tokens,
        window_tokens=window,
    )
    pages, page_offsets, tile_offsets, slots = [], [0], [0], []
    for request, length in zip(ids, lengths, strict=True):
        pages += table[request, : -(-length // page_tokens)].tolist()
        page_offsets.append(len(pages))
        tile_offsets.append(tile_offsets[-1] + tiles_of(length, window))
        last = length - 1
        slots.append(-1 if last < 0 else int(table[request, last // page_tokens]) * page_tokens + last % page_tokens)
    assert got.page_ids[: len(pages)].tolist() == pages
    assert (got.page_ids[len(pages) :] == -77).all()
    assert got.page_offsets.tolist() == page_offsets
    assert got.tile_offsets.tolist() == tile_offsets
    assert got.slots.tolist() == slots


@pytest.mark.parametrize("window", [None, 1, 64, 65, 4096])
def test_a_split_plan_counts_the_tiles_that_a_window_touches(device, window):
    lengths = [0, 1, 63, 64, 65, 0, 4095, 4096, 4097, 5000]
    plan = build_split_plan(torch.tensor(lengths, device=device), window_tokens=window)
    assert plan.dtype == torch.int32
    assert plan.diff().tolist() == [tiles_of(length, window) for length in lengths]
    assert plan[0] == 0


def test_more_sequences_than_one_look_holds_are_summed(device, monkeypatch):
    if device.type == "cpu":
        monkeypatch.setattr("kernels.index_build.kernel.BLOCK", 4)
    lengths = torch.full((1500 if device.type == "cuda" else 11,), 130, device=device)
    assert build_split_plan(lengths).tolist() == list(range(0, 3 * len(lengths) + 1, 3))


def test_more_pages_than_one_look_holds_are_copied(device, monkeypatch):
    if device.type == "cpu":
        monkeypatch.setattr("kernels.index_build.kernel.BLOCK", 4)
    table = torch.arange(2 * 1030, device=device).flip(0).view(2, 1030)
    ids, lens = torch.tensor([1, 0], device=device), torch.tensor([1030, 9], device=device)
    got = build_decode_indices(table, ids, lens, page_tokens=1)
    assert torch.equal(got.page_ids[:1039], torch.cat((table[1], table[0, :9])))


def test_room_given_is_written_and_can_be_used_again(device):
    table = torch.arange(6, dtype=torch.int32, device=device).view(2, 3)
    room = DecodeIndices.empty(2, table)
    for lengths in ([5, 1], [0, 12]):
        ids, lens = torch.tensor([1, 0], device=device), torch.tensor(lengths, device=device)
        got = build_decode_indices(table, ids, lens, page_tokens=4, out=room)
        assert got is room
    assert room.page_offsets.tolist() == [0, 0, 3]
    assert room.page_ids[:3].tolist() == [0, 1, 2]
    assert room.slots.tolist() == [-1, 11]


def test_what_does_not_fit_is_refused():
    table, ids, lens = torch.zeros(2, 3, dtype=torch.int32), torch.tensor([1, 0]), torch.tensor([5, 1])
    with pytest.raises(ShapeMismatch):
        build_decode_indices(table[0], ids, lens, page_tokens=4)
    with pytest.raises(PageOutOfRange):
        build_decode_indices(table, ids + 1, lens, page_tokens=4)
    with pytest.raises(PageOutOfRange):
        build_decode_indices(table, ids, lens + 8, page_tokens=4)
    with pytest.raises(DtypeMismatch):
        build_decode_indices(table, ids, lens.int(), page_tokens=4)
    with pytest.raises(ShapeMismatch):
        build_decode_indices(table, ids, lens, page_tokens=4, out=DecodeIndices.empty(1, table))
    with pytest.raises(ShapeMismatch):
        build_decode_indices(table, ids, lens, page_tokens=0)
    with pytest.raises(ShapeMismatch):
        build_split_plan(lens, window_tokens=0)
    with pytest.raises(DtypeMismatch):
        build_split_plan(lens, out=torch.zeros(3))


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (ShapeMismatch, {"tile_offsets": torch.zeros(2, dtype=torch.int32)}),
        (ShapeMismatch, {"page_ids": torch.zeros(12, dtype=torch.int32)[::2]}),
        (ShapeMismatch, {"page_ids": torch.zeros(2, 3, dtype=torch.int32)}),
        (DtypeMismatch, {"page_ids": torch.zeros(6)}),
        (DtypeMismatch, {"slots": torch.zeros(2, dtype=torch.int32)}),
        (DeviceMismatch, {"page_offsets": torch.zeros(3, dtype=torch.int32, device="meta")}),
    ],
)
def test_room_that_does_not_fit_is_refused(error, change):
    table, ids, lens = torch.zeros(2, 3, dtype=torch.int32), torch.tensor([1, 0]), torch.tensor([5, 1])
    room = replace(DecodeIndices.empty(2, table), **change)
    with pytest.raises(error):
        build_decode_indices(table, ids, lens, page_tokens=4, out=room)
