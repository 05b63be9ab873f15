"""paged_append writes every token to its slot, nothing else, and refuses before it writes."""

import pytest
import torch

from kernels.errors import DtypeMismatch, KernelError, OverlappingRanges, PageOutOfRange, ShapeMismatch
from kernels.paged_append import paged_append
from kernels.paged_rows import PagedRows

HEADS, DIM = 3, 5


def make_pools(pages=9, page_tokens=4, dtype=torch.float32, device="cpu", dim=DIM):
    shape = (pages, page_tokens, HEADS, dim)
    return tuple(torch.full(shape, one, dtype=dtype, device=device) for one in (-1.0, -2.0))


def make_tokens(tokens, device="cpu", dim=DIM, dtype=torch.float32):
    """Every token filled with its own number, so that a shifted slot is visible."""
    keys = torch.arange(1, tokens + 1, dtype=dtype)[:, None, None].expand(tokens, HEADS, dim).contiguous().to(device)
    return keys, keys + 0.5


@pytest.mark.parametrize("page_tokens", [1, 3, 4, 7])
@pytest.mark.parametrize(("starts", "counts"), [([0], [1]), ([5], [6]), ([0, 3, 2], [4, 1, 7]), ([2, 0], [0, 3])])
@pytest.mark.parametrize("dim", [DIM, 16])
def test_every_token_lands_in_its_slot_and_no_other_slot_changes(device, dim, page_tokens, starts, counts):
    needed = [-(-(start + count) // page_tokens) for start, count in zip(starts, counts, strict=True)]
    numbers = iter(torch.randperm(sum(needed) + 2, generator=torch.Generator().manual_seed(1)).tolist())
    pages = [[next(numbers) for _ in range(count)] for count in needed]
    key_pool, value_pool = make_pools(sum(needed) + 2, page_tokens, device=device, dim=dim)
    expected_keys, expected_values = key_pool.clone(), value_pool.clone()
    keys, values = make_tokens(sum(counts), device, dim)
    token = 0
    for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
        for position in range(start, start + count):
            place = pages[row][position // page_tokens], position % page_tokens
            expected_keys[place], expected_values[place] = keys[token], values[token]
            token += 1
    rows = PagedRows.of(pages, starts, counts, page_tokens=page_tokens, device=device)
    paged_append(keys, values, key_pool, value_pool, rows.slots)
    assert torch.equal(key_pool, expected_keys)
    assert torch.equal(value_pool, expected_values)


def test_a_token_without_a_slot_is_skipped(device):
    key_pool, value_pool = make_pools(device=device)
    keys, values = make_tokens(3, device)
    paged_append(keys, values, key_pool, value_pool, torch.tensor([5, -1, 0], dtype=torch.int32, device=device))
    assert torch.equal(key_pool.flatten(0, 1)[[5, 0]], keys[[0, 2]])
    assert torch.equal(value_pool.flatten(0, 1)[[5, 0]], values[[0, 2]])
    assert int((key_pool == -1).sum()) == key_pool.numel() - 2 * HEADS * DIM


def test_no_rows_and_empty_rows_write_nothing(device):
    key_pool, value_pool = make_pools(device=device)
    for rows in (PagedRows.of([], [], [], page_tokens=4), PagedRows.of([[1]], [2], [0], page_tokens=4)):
        paged_append(*make_tokens(0, device), key_pool, value_pool, rows.slots.to(device))
    assert torch.equal(key_pool, make_pools(device=device)[0])


def test_tokens_may_lie_apart_as_slices_of_one_projection_do(device):
    key_pool, value_pool = make_pools(device=device)
    projected = torch.randn(4, 2 * HEADS, DIM, generator=torch.Generator().manual_seed(2)).to(device)
    keys, values = projected.split(HEADS, dim=1)
    paged_append(keys, values, key_pool, value_pool, torch.tensor([3, 30, 8, 9], device=device))
    assert torch.equal(key_pool.flatten(0, 1)[[3, 30, 8, 9]], keys)
    assert torch.equal(value_pool.flatten(0, 1)[[3, 30, 8, 9]], values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_float8_pool_takes_scaled_values_held_to_the_largest(device, dtype):
    chance = torch.Generator().manual_seed(3)
    keys, values = (torch.randn(2, HEADS, DIM, generator=chance).to(dtype).to(device) for _ in range(2))
    if device.type == "cpu":  # the interpreter halves what rounds up to a power of two
        keys, values = ((rows * 8).round() / 8 for rows in (keys, values))
    keys[0, 0, 0], keys[0, 0, 1] = 6e4, -6e4
    key_pool, value_pool = (pool.to(torch.float8_e4m3fn) for pool in make_pools(device=device))
    paged_append(
        keys, values, key_pool, value_pool, torch.tensor([7, 2], device=device), key_scale=0.5, value_scale=2.0
    )
    stored = key_pool.float().flatten(0, 1)[[7, 2]]
    assert stored[0, 0, :2].tolist() == [448.0, -448.0]
    assert torch.equal(stored[1], (keys[1].float() / 0.5).to(torch.float8_e4m3fn).float())
    expected = (values.float() / 2.0).to(torch.float8_e4m3fn).float()
    assert torch.equal(value_pool.float().flatten(0, 1)[[7, 2]], expected)


def test_what_is_no_number_stays_none_in_a_float8_pool(device):
    """Held to the largest it would be a number like any other, and the fault it came from would not show."""
    key_pool, value_pool = (pool.to(torch.float8_e4m3fn) for pool in make_pools(device=device))
    keys, values = make_tokens(2, device)
    keys[0, 0, 0], keys[0, 0, 1], values[1] = torch.nan, torch.inf, torch.nan
    paged_append(keys, values, key_pool, value_pool, torch.tensor([1, 2], device=device))
    stored = key_pool.float().flatten(0, 1)[1, 0]
    assert stored[0].isnan()
    assert stored[1:].tolist() == [448.0, 1.0, 1.0, 1.0]
    assert value_pool.float().flatten(0, 1)[2].isnan().all()
    assert not value_pool.float().flatten(0, 1)[1].isnan().any()


def test_places_without_a_slot_are_no_slot_twice(device):
    key_pool, value_pool = make_pools(device=device)
    paged_append(*make_tokens(2, device), key_pool, value_pool, torch.tensor([-1, -1], device=device))
    assert torch.equal(key_pool, make_pools(device=device)[0])


def good_call():
    keys, values = make_tokens(3)
    return {"keys": keys, "values": values, "pools": make_pools(), "slots": torch.tensor([11, 12, 13])}


def bad_calls():
    good = good_call()
    key_pool, value_pool = good["pools"]
    yield "fewer values", ShapeMismatch, {"values": good["values"][:2]}
    yield "other heads", ShapeMismatch, {"keys": good["keys"][:, :2], "values": good["values"][:, :2]}
    yield "other head_dim", ShapeMismatch, {"keys": good["keys"][..., :4], "values": good["values"][..., :4]}
    yield "flat keys", ShapeMismatch, {"keys": good["keys"][0], "values": good["values"][0]}
    yield "more tokens than slots", ShapeMismatch, dict(zip(("keys", "values"), make_tokens(4), strict=True))
    strided_keys = torch.zeros(3, DIM, HEADS).transpose(1, 2)
    yield "strided keys", ShapeMismatch, {"keys": strided_keys}
    yield "pools of two sizes", ShapeMismatch, {"pools": (key_pool, value_pool[:5])}
    yield "flat pools", ShapeMismatch, {"pools": (key_pool[0], value_pool[0])}
    strided = torch.zeros(9, 4, DIM, HEADS).transpose(2, 3)
    yield "strided pools", ShapeMismatch, {"pools": (strided, strided.clone(memory_format=torch.preserve_format))}
    yield "half keys", DtypeMismatch, {"keys": good["keys"].half(), "values": good["values"].half()}
    yield "half values", DtypeMismatch, {"values": good["values"].half()}
    yield "pools of two dtypes", DtypeMismatch, {"pools": (key_pool, value_pool.half())}
    yield "slot past the pool", PageOutOfRange, {"slots": torch.tensor([11, 12, 36])}
    yield "slot below -1", PageOutOfRange, {"slots": torch.tensor([-2, 12, 13])}
    yield "short slots", DtypeMismatch, {"slots": torch.tensor([11, 12, 13], dtype=torch.int16)}
    yield "slots in a table", ShapeMismatch, {"slots": torch.tensor([[11, 12, 13]])}
    yield "strided slots", ShapeMismatch, {"slots": torch.arange(6)[::2]}
    yield "a scale without float8", DtypeMismatch, {"key_scale": 2.0}
    yield "a slot twice", OverlappingRanges, {"slots": torch.tensor([11, -1, 11])}
    yield "one pool for both", OverlappingRanges, {"pools": (key_pool, key_pool)}
    yield "keys within their pool", OverlappingRanges, {"keys": key_pool.flatten(0, 1)[::3][:3], "pools": good["pools"]}
    nothing = torch.zeros(9, 0, HEADS, DIM)
    yield "pages of no token", ShapeMismatch, {"pools": (nothing, nothing)}


@pytest.mark.parametrize(("error", "change"), [case[1:] for case in bad_calls()], ids=[case[0] for case in bad_calls()])
def test_what_does_not_fit_is_refused_before_anything_is_written(error, change):
    call = {**good_call(), **change}
    key_pool, value_pool = call.pop("pools")
    before = key_pool.clone(), value_pool.clone()
    with pytest.raises(error) as caught:
        paged_append(key_pool=key_pool, value_pool=value_pool, **call)
    assert isinstance(caught.value, KernelError)
    assert torch.equal(key_pool, before[0])
    assert torch.equal(value_pool, before[1])
