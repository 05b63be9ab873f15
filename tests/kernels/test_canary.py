"""A checksum changes with every bit it covers, and goes with its page wherever that is copied."""

import pytest
import torch
from copies import as_layers, few, fill
from hypothesis import given
from hypothesis import strategies as st

from kernels.canary import page_checksums, verify_checksums
from kernels.canary import reference as plain
from kernels.errors import PageOutOfRange, ShapeMismatch

MASK = 2**64 - 1


def checksum_by_hand(pool, page, sample_every):
    """In Python's integers, word by word."""
    layers, _, rows = pool.shape[:3]
    words = [[int(word) & MASK for word in layer.reshape(-1).view(torch.int64)] for layer in pool[:, page].cpu()]
    row_words, total = len(words[0]) // rows, 0
    for layer in range(layers):
        for row in range(layer % min(sample_every, rows), rows, sample_every):
            for at in range(row * row_words, (row + 1) * row_words):
                mixed = words[layer][at] ^ ((layer * len(words[0]) + at + 1) * (plain.PLACE_FACTOR & MASK) & MASK)
                mixed = mixed * (plain.FIRST_FACTOR & MASK) & MASK
                mixed = (mixed ^ (mixed >> 32)) * (plain.SECOND_FACTOR & MASK) & MASK
                total = (total + (mixed ^ (mixed >> 29))) & MASK
    return total


@few
@given(st.data())
def test_a_checksum_is_the_sum_of_its_mixed_words(device, data):
    shape = [data.draw(st.integers(1, most)) for most in (3, 4, 5, 2)]
    pool = fill((*shape, data.draw(st.sampled_from([8, 24]))), torch.int8, device)
    every = data.draw(st.integers(1, 6))
    page_ids = torch.tensor(data.draw(st.lists(st.integers(0, shape[1] - 1), max_size=5)), device=device).long()
    sums = page_checksums(as_layers(pool, data.draw(st.booleans())), page_ids, sample_every=every)
    assert [one & MASK for one in sums.tolist()] == [checksum_by_hand(pool, page, every) for page in page_ids.tolist()]


def test_one_bit_a_swap_of_layers_or_of_rows_changes_it_and_a_move_does_not(device):
    pool = fill((2, 5, 4, 2, 8), torch.float16, device)
    ids = torch.tensor([3], device=device)
    whole = page_checksums(pool, ids)
    moved = pool.clone()
    moved[:, 0] = pool[:, 3]
    assert torch.equal(page_checksums(moved, ids * 0), whole)
    for change in (lambda page: page.flip(0), lambda page: page.flip(1), lambda page: page * 0):
        changed = pool.clone()
        changed[:, 3] = change(pool[:, 3])
        assert not torch.equal(page_checksums(changed, ids), whole)
    for bit in range(16):
        changed = pool.clone()
        changed.view(torch.int16)[1, 3, 2, 1, bit % 8] ^= 1 << bit if bit < 15 else -32768
        assert not torch.equal(page_checksums(changed, ids), whole)


def test_pages_that_are_not_as_expected_are_counted_and_the_first_is_named(device, monkeypatch):
    if device.type == "cpu":
        monkeypatch.setattr("kernels.canary.kernel.BLOCK_PAGES", 8)
    pool = fill((2, 30, 2, 1, 8), torch.int32, device)
    page_ids = torch.arange(29, -1, -1, device=device)
    expected = page_checksums(pool, page_ids)
    assert verify_checksums(pool, page_ids, expected).tolist() == [0, -1]
    pool[1, 7, 1, 0, 3] += 1
    pool[0, 21, 0, 0, 0] += 1
    assert verify_checksums(pool, page_ids, expected).tolist() == [2, 29 - 21]


def test_a_sample_sees_its_rows_and_no_others(device):
    pool = fill((2, 3, 4, 2, 8), torch.float16, device)
    ids = torch.tensor([1], device=device)
    sampled = page_checksums(pool, ids, sample_every=4)
    pool[0, 1, 1:] = 0
    pool[1, 1, 0] = 0
    pool[1, 1, 2:] = 0
    assert torch.equal(page_checksums(pool, ids, sample_every=4), sampled)
    assert verify_checksums(pool, ids, sampled, sample_every=4).tolist() == [0, -1]
    pool[1, 1, 1] = 0
    assert verify_checksums(pool, ids, sampled, sample_every=4).tolist() == [1, 0]


def test_no_page_has_no_checksum_and_nothing_wrong(device):
    pool, none = fill((2, 3, 4, 2, 8), torch.float16, device), torch.zeros(0, dtype=torch.int64, device=device)
    assert page_checksums(pool, none).shape == (0,)
    assert verify_checksums(pool, none, none).tolist() == [0, -1]


def test_what_does_not_fit_is_refused():
    pool, ids = torch.zeros(2, 3, 4, 2, 8), torch.tensor([1])
    with pytest.raises(ShapeMismatch, match="12 bytes"):
        page_checksums(torch.zeros(2, 3, 4, 3), ids)
    with pytest.raises(ShapeMismatch):
        page_checksums(pool, ids, sample_every=0)
    with pytest.raises(ShapeMismatch, match="multiple of 8"):
        page_checksums(torch.zeros(197, dtype=torch.int8)[5:].view(2, 3, 4, 8), ids)
    with pytest.raises(PageOutOfRange):
        page_checksums(pool, ids + 2)
    with pytest.raises(ShapeMismatch):
        verify_checksums(pool, ids, torch.zeros(2, dtype=torch.int64))
