"""Whole pages: every byte lands where the index says, and all else is untouched."""

import pytest
import torch
from copies import as_layers, few, fill, picks, pools, same_bytes
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import DeviceMismatch, DtypeMismatch, OverlappingRanges, PageOutOfRange, ShapeMismatch
from kernels.latent_slice import latent_interleave, latent_slice
from kernels.layer_table import LayerTable
from kernels.page_gather import page_gather
from kernels.page_layout import from_page_first, from_unified, to_page_first, to_unified
from kernels.state_copy import state_restore, state_save


@few
@given(st.data())
def test_gathered_pages_lie_in_the_order_of_the_index(device, data):
    pool, is_table = data.draw(pools(device))
    page_ids = data.draw(picks(pool.shape[1], device, distinct=False))
    before, got = pool.clone(), page_gather(as_layers(pool, is_table), page_ids)
    for place, page in enumerate(page_ids.tolist()):
        assert same_bytes(got[:, place], pool[:, page])
    assert got.shape[1] == len(page_ids)
    assert same_bytes(pool, before)


def test_a_token_s_slot_is_a_page_of_one_token(device):
    pool = fill((2, 5, 4, 3, 8), torch.float16, device)
    slots = torch.tensor([19, 0, 7], device=device)
    assert same_bytes(page_gather(pool.flatten(1, 2), slots), pool.flatten(1, 2)[:, slots])


@few
@given(st.data())
def test_pages_turned_page_first_and_back_are_the_same(device, data):
    pool, is_table = data.draw(pools(device))
    page_ids = data.draw(picks(pool.shape[1], device, distinct=True))
    programs = data.draw(st.sampled_from([None, 1, 3]))
    pages = to_page_first(as_layers(pool, is_table), page_ids, programs=programs)
    for place, page in enumerate(page_ids.tolist()):
        assert same_bytes(pages[place], pool[:, page])
    other = fill(pool.shape, pool.dtype, device).flip(0).contiguous()
    expected = other.clone()
    for place, page in enumerate(page_ids.tolist()):
        expected[:, page] = pages[place]
    from_page_first(pages, page_ids, as_layers(other, is_table), programs=programs)
    assert same_bytes(other, expected)


@few
@given(st.data())
def test_unified_pages_hold_each_group_of_heads_together(device, data):
    pool, is_table = data.draw(pools(device))
    heads = pool.shape[3]
    groups = data.draw(st.sampled_from([one for one in range(1, heads + 1) if heads % one == 0]))
    page_ids = data.draw(picks(pool.shape[1], device, distinct=True))
    pages = to_unified(as_layers(pool, is_table), page_ids, head_groups=groups)
    part = heads // groups
    for place, page in enumerate(page_ids.tolist()):
        for group in range(groups):
            assert same_bytes(pages[place, group], pool[:, page, :, group * part : (group + 1) * part].contiguous())
    other = fill(pool.shape, pool.dtype, device).flip(0).contiguous()
    expected = other.clone()
    expected[:, page_ids.long()] = pool[:, page_ids.long()]
    from_unified(pages, page_ids, as_layers(other, is_table))
    assert same_bytes(other, expected)


def test_a_unified_pool_of_keys_and_values_in_turn_has_both_of_a_layer_side_by_side(device):
    keys, values = (fill((2, 4, 3, 2, 8), torch.float16, device) for _ in range(2))
    values = values.flip(0).contiguous()
    table = LayerTable.of([one for pair in zip(keys, values, strict=True) for one in pair])
    pages = to_unified(table, torch.tensor([2], device=device), head_groups=2).view(1, 2, 2, 2, 3, 1, 8)
    assert same_bytes(pages[0, 1, 0, 0], keys[0, 2, :, 1:].contiguous())
    assert same_bytes(pages[0, 1, 1, 1], values[1, 2, :, 1:].contiguous())


@few
@given(st.data())
def test_slices_of_all_ranks_interleaved_are_the_pages(device, data):
    pool, is_table = data.draw(pools(device, "layers pages page_tokens head_dim"))
    page_ids = data.draw(picks(pool.shape[1], device, distinct=True))
    ranks = data.draw(st.integers(1, 4))
    longest = -(-len(page_ids) // ranks)
    slices = torch.empty((ranks, len(pool), longest, *pool.shape[2:]), dtype=pool.dtype, device=device)
    for rank in range(ranks):
        part = latent_slice(as_layers(pool, is_table), page_ids, rank=rank, ranks=ranks)
        assert same_bytes(part, pool[:, page_ids[rank::ranks].long()])
        slices[rank, :, : part.shape[1]] = part
    other = fill(pool.shape, pool.dtype, device).flip(0).contiguous()
    expected = other.clone()
    expected[:, page_ids.long()] = pool[:, page_ids.long()]
    latent_interleave(slices, page_ids, as_layers(other, is_table))
    assert same_bytes(other, expected)


@few
@given(st.data())
def test_saved_states_restored_are_the_same_and_no_other_changes(device, data):
    states, is_table = data.draw(pools(device, "layers pages heads head_dim"))
    checkpoints = fill((len(states), 5, *states.shape[2:]), states.dtype, device)
    count = min(data.draw(st.integers(0, 5)), states.shape[1])
    slots = data.draw(picks(states.shape[1], device, distinct=True, count=count))
    places = data.draw(picks(5, device, distinct=True, count=count)).to(slots.dtype)
    expected = checkpoints.clone()
    expected[:, places.long()] = states[:, slots.long()]
    state_save(as_layers(states, is_table), slots, as_layers(checkpoints, is_table), places)
    assert same_bytes(checkpoints, expected)
    others = fill(states.shape, states.dtype, device).flip(0).contiguous()
    expected = others.clone()
    expected[:, slots.long()] = states[:, slots.long()]
    state_restore(checkpoints, places, as_layers(others, is_table), slots)
    assert same_bytes(others, expected)


@pytest.mark.parametrize("state", [(3, 5), (2, 8)])
@pytest.mark.parametrize(("wide", "narrow"), [(torch.float32, torch.float16), (torch.float32, torch.bfloat16)])
def test_states_are_rounded_as_they_are_saved_and_widened_as_they_are_restored(device, wide, narrow, state):
    states = torch.randn(2, 4, *state, generator=torch.Generator().manual_seed(1)).to(device)
    checkpoints = torch.zeros(2, 3, *state, dtype=narrow, device=device)
    slots, places = torch.tensor([3, 1], device=device), torch.tensor([0, 2], device=device)
    state_save(states, slots, checkpoints, places)
    saved, rounded = checkpoints[:, [0, 2]], states[:, [3, 1]].to(narrow)
    if narrow == torch.float16:
        assert torch.equal(saved, rounded)
    else:  # the interpreter cuts off where a GPU rounds
        steps = saved.view(torch.int16).int() - rounded.view(torch.int16).int()
        assert int(steps.abs().max()) <= (1 if device.type == "cpu" else 0)
    assert not checkpoints[:, 1].any()
    restored = torch.zeros_like(states)
    state_restore(checkpoints, places, restored, slots)
    assert torch.equal(restored[:, [3, 1]], saved.to(wide))
    assert not restored[:, [0, 2]].any()


POOL = torch.zeros(2, 4, 3, 2, 8)
IDS = torch.tensor([1, 3])
OUT = torch.zeros(2, 2, 3, 2, 8)


def bad_calls():
    yield "page past the pool", PageOutOfRange, lambda: page_gather(POOL, torch.tensor([4]))
    yield "negative page", PageOutOfRange, lambda: to_page_first(POOL, torch.tensor([-1]))
    yield "index of int16", DtypeMismatch, lambda: page_gather(POOL, IDS.short())
    yield "index in a table", ShapeMismatch, lambda: page_gather(POOL, IDS[None])
    yield "out on another device", DeviceMismatch, lambda: page_gather(POOL, IDS, out=OUT.to("meta"))
    yield "other dtype of out", DtypeMismatch, lambda: page_gather(POOL, IDS, out=OUT.half())
    yield "other shape of out", ShapeMismatch, lambda: page_gather(POOL, IDS, out=torch.zeros(2, 3, 3, 2, 8))
    strided = torch.zeros(2, 2, 3, 8, 2).transpose(3, 4)
    yield "strided out", ShapeMismatch, lambda: page_gather(POOL, IDS, out=strided)
    yield "strided pool", ShapeMismatch, lambda: page_gather(POOL.transpose(3, 4), IDS)
    yield "flat pool", ShapeMismatch, lambda: page_gather(POOL[0, 0, 0], IDS)
    yield "out within the pool", OverlappingRanges, lambda: page_gather(POOL, torch.arange(4), out=POOL)
    pages = torch.ones(2, 2, 3, 2, 8)
    yield "a page written twice", OverlappingRanges, lambda: from_page_first(pages, torch.tensor([1, 1]), POOL)
    yield "no program", ShapeMismatch, lambda: from_page_first(pages, IDS, POOL, programs=0)
    yield "groups that do not divide", ShapeMismatch, lambda: to_unified(POOL, IDS, head_groups=3)
    yield "pages not unified", ShapeMismatch, lambda: from_unified(pages, IDS, POOL)
    yield "heads of no pool", ShapeMismatch, lambda: to_unified(POOL[0], IDS, head_groups=1)
    yield "rank of none", ShapeMismatch, lambda: latent_slice(POOL, IDS, rank=2, ranks=2)
    yield "slices of no rank", ShapeMismatch, lambda: latent_interleave(torch.ones(2, 2, 3), IDS, POOL)
    slices = torch.ones(2, 2, 2, 3, 2, 8)
    yield "slices too long", ShapeMismatch, lambda: latent_interleave(slices, IDS, POOL)
    states = torch.ones(2, 3, 3, 2, 8)
    yield "more slots than places", ShapeMismatch, lambda: state_save(states, IDS[:1], POOL, IDS)
    yield "a place written twice", OverlappingRanges, lambda: state_save(states, IDS * 0, POOL, IDS * 0)
    yield "other states", ShapeMismatch, lambda: state_save(states[..., :4].contiguous(), IDS * 0, POOL, IDS)
    yield "integers to floats", DtypeMismatch, lambda: state_save(states.int(), IDS * 0, POOL, IDS)
    yield "indices of two dtypes", DtypeMismatch, lambda: state_save(states, IDS.int() * 0, POOL, IDS)
    yield "tables of two shapes", ShapeMismatch, lambda: LayerTable.of([POOL[0], POOL[1, :2]])
    yield "tables of two dtypes", DtypeMismatch, lambda: LayerTable.of([POOL[0], POOL[1].half()])
    yield "a table of nothing", ShapeMismatch, lambda: LayerTable.of([])
    twice = LayerTable.of([POOL[0], POOL[0]])
    yield "a layer written twice", OverlappingRanges, lambda: from_page_first(pages, IDS, twice)


@pytest.mark.parametrize(("error", "call"), [case[1:] for case in bad_calls()], ids=[case[0] for case in bad_calls()])
def test_what_does_not_fit_is_refused_before_anything_is_written(error, call):
    with pytest.raises(error):
        call()
    assert not POOL.any()


def test_a_layer_that_two_share_may_be_read_for_both(device):
    pool = fill((3, 2, 2, 8), torch.float16, device)
    ids = torch.tensor([2, 0], device=device)
    both = page_gather(LayerTable.of([pool, pool]), ids)
    assert same_bytes(both, torch.stack([pool[ids], pool[ids]]))
