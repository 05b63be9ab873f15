"""Attention merged from parts is attention over the whole, and empty parts take no part."""

import math

import pytest
import torch

from kernels.errors import DtypeMismatch, ShapeMismatch
from kernels.lse_merge import lse_merge
from kernels.testing import assert_close


def attend(scores, values):
    """Softmax attention of scores [tokens, heads, context] over values [context, head_dim], in double."""
    return torch.softmax(scores, -1) @ values, torch.logsumexp(scores, -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("tokens", "heads", "head_dim"), [(1, 1, 1), (3, 5, 7), (9, 2, 64)])
@pytest.mark.parametrize("cuts", [(), (4,), (1, 2, 3), (0, 10, 17, 17)])
def test_merged_parts_are_the_whole(device, cuts, tokens, heads, head_dim, dtype):
    chance = torch.Generator().manual_seed(5)
    scores = torch.randn(tokens, heads, 17, generator=chance).double() * 6
    values = torch.randn(17, head_dim, generator=chance).double()
    partials, lses = [], []
    for start, end in zip((0, *cuts), (*cuts, 17), strict=True):
        out, lse = attend(scores[..., start:end], values[start:end])
        partials.append(out if end > start else torch.full_like(out, math.nan))
        lses.append(lse)
    whole, total = attend(scores, values)
    got, lse = lse_merge(torch.stack(partials).to(dtype).to(device), torch.stack(lses).float().to(device))
    assert_close("out", got, whole.to(dtype).to(device))
    assert_close("lse", lse, total.float().to(device))


def test_where_all_parts_are_empty_there_are_zeros(device):
    partials = torch.full((3, 2, 2, 8), math.nan, device=device)
    lses = torch.full((3, 2, 2), -math.inf, device=device)
    lses[1, 1], partials[1, 1] = 2.0, 5.0
    out, lse = lse_merge(partials, lses)
    assert out[:, 0, 0].tolist() == [0.0, 5.0]
    assert lse[:, 0].tolist() == [-math.inf, 2.0]


def test_a_part_that_is_no_number_shows(device):
    partials, lses = torch.ones(3, 1, 2, 8, device=device), torch.zeros(3, 1, 2, device=device)
    lses[1, 0, 1] = math.nan
    out, lse = lse_merge(partials, lses)
    assert out[0].isnan().all(1).tolist() == [False, True]
    assert lse[0].isnan().tolist() == [False, True]


def test_one_part_comes_back_exactly(device):
    partials, lses = torch.randn(4, 3, 2, 16, device=device), torch.full((4, 3, 2), -math.inf, device=device)
    lses[2] = 300.0
    out, lse = lse_merge(partials, lses)
    assert torch.equal(out, partials[2])
    assert torch.equal(lse, lses[2])


def test_the_result_may_be_of_another_dtype(device):
    partials, lses = torch.ones(2, 3, 2, 16, device=device), torch.zeros(2, 3, 2, device=device)
    out, _ = lse_merge(partials, lses, dtype=torch.float16)
    assert out.dtype == torch.float16
    assert (out == 1).all()


def test_no_token_gives_nothing(device):
    out, lse = lse_merge(torch.zeros(2, 0, 4, 8, device=device), torch.zeros(2, 0, 4, device=device))
    assert (out.shape, lse.shape) == ((0, 4, 8), (0, 4))


def test_what_does_not_fit_is_refused():
    partials, lses = torch.zeros(2, 3, 2, 16), torch.zeros(2, 3, 2)
    with pytest.raises(ShapeMismatch):
        lse_merge(partials[0], lses)
    with pytest.raises(ShapeMismatch):
        lse_merge(partials[:0], lses[:0])
    with pytest.raises(ShapeMismatch):
        lse_merge(partials, lses[:1])
    with pytest.raises(DtypeMismatch):
        lse_merge(partials, lses.double())
    with pytest.raises(DtypeMismatch):
        lse_merge(partials.int(), lses)
