"""All parts of a request in one buffer: each where the plan says, bit by bit, and back again."""

import pytest
import torch
from copies import as_layers, few, fill, same_bytes
from hypothesis import given
from hypothesis import strategies as st

from kernels.component_gather import Component, ComponentPlan, component_gather, component_scatter
from kernels.errors import DtypeMismatch, OverlappingRanges, PageOutOfRange, ShapeMismatch

#: Rows of pages, of a window, of a state, of a checksum of 8 bytes, and an odd one.
ROWS = [((4, 2, 16), torch.bfloat16), ((3, 8), torch.float32), ((2, 8, 8), torch.float32), ((), torch.int64)]
ODD = ((5, 3), torch.int8)


@st.composite
def requests(draw, device):
    components, indices = [], []
    for row, dtype in draw(st.lists(st.sampled_from([*ROWS, ODD]), min_size=1, max_size=5), label="rows"):
        rows = draw(st.integers(1, 5))
        pool = fill((draw(st.integers(1, 3)), rows, *row), dtype, device)
        taken = draw(st.integers(0, rows))
        components.append(Component(as_layers(pool, draw(st.booleans())), taken))
        indices += draw(st.permutations(range(rows)))[:taken]
    return components, torch.tensor(indices, dtype=draw(st.sampled_from([torch.int32, torch.int64])), device=device)


@few
@given(st.data())
def test_every_component_lies_where_the_plan_says_and_goes_back_to_its_rows(device, data):
    components, indices = data.draw(requests(device))
    plan = ComponentPlan.of(components)
    buffer = torch.full((plan.size_bytes + 32,), 0x5A, dtype=torch.uint8, device=device)
    component_gather(plan, indices, buffer)
    untouched = torch.ones(len(buffer), dtype=torch.bool, device=device)
    for one, start, picked in zip(components, plan.offsets_bytes, plan.split(indices), strict=True):
        assert start % 16 == 0
        expected = torch.stack([one.pool[layer][picked.long()] for layer in range(len(one.pool))])
        got = buffer[start : start + one.size_bytes]
        assert torch.equal(got, expected.reshape(-1).view(torch.uint8))
        untouched[start : start + one.size_bytes] = False
    assert (buffer[untouched] == 0x5A).all()
    before = [[one.pool[layer].clone() for layer in range(len(one.pool))] for one in components]
    for one, picked in zip(components, plan.split(indices), strict=True):
        for layer in range(len(one.pool)):
            one.pool[layer][picked.long()] = 0
    component_scatter(buffer, plan, indices)
    for one, layers in zip(components, before, strict=True):
        assert all(same_bytes(one.pool[number], layer) for number, layer in enumerate(layers))


POOL = torch.zeros(2, 4, 8)
PLAN = ComponentPlan.of([Component(POOL, 2), Component(torch.zeros(1, 3, 8), 1)])
IDS = torch.tensor([1, 3, 0])
BUFFER = torch.ones(PLAN.size_bytes, dtype=torch.uint8)


def bad_calls():
    yield "too few indices", ShapeMismatch, lambda: component_gather(PLAN, IDS[:2], BUFFER)
    yield "row past its pool", PageOutOfRange, lambda: component_gather(PLAN, torch.tensor([1, 3, 3]), BUFFER)
    yield "negative row", PageOutOfRange, lambda: component_scatter(BUFFER, PLAN, torch.tensor([1, -1, 0]))
    yield "floating indices", DtypeMismatch, lambda: component_gather(PLAN, IDS.float(), BUFFER)
    yield "buffer too small", ShapeMismatch, lambda: component_gather(PLAN, IDS, BUFFER[:-1])
    yield "buffer of floats", DtypeMismatch, lambda: component_gather(PLAN, IDS, BUFFER.float())
    yield "buffer off its alignment", ShapeMismatch, lambda: component_gather(PLAN, IDS, torch.ones(400).byte()[8:])
    inside = POOL.view(-1).view(torch.uint8)
    yield "buffer within a pool", OverlappingRanges, lambda: component_gather(PLAN, IDS, inside)
    yield "a row written twice", OverlappingRanges, lambda: component_scatter(BUFFER, PLAN, torch.tensor([1, 1, 0]))
    both = ComponentPlan.of([Component(POOL, 1), Component(POOL, 1)])
    staging = torch.ones(both.size_bytes, dtype=torch.uint8)
    yield "a row of two components", OverlappingRanges, lambda: component_scatter(staging, both, torch.tensor([2, 2]))
    mixed = ComponentPlan.of([Component(POOL, 1), Component(POOL[:, 1:3].contiguous(), 1), Component(POOL[1:], 1)])
    staged = torch.ones(mixed.size_bytes, dtype=torch.uint8)
    yield "pools that overlap", OverlappingRanges, lambda: component_scatter(staged, mixed, torch.tensor([0, 1, 3]))
    yield "no component", ShapeMismatch, lambda: ComponentPlan.of([])
    yield "negative rows", ShapeMismatch, lambda: ComponentPlan.of([Component(POOL, -1)])
    yield "flat pool", ShapeMismatch, lambda: ComponentPlan.of([Component(POOL[0, 0], 1)])


@pytest.mark.parametrize(("error", "call"), [case[1:] for case in bad_calls()], ids=[case[0] for case in bad_calls()])
def test_what_does_not_fit_is_refused_before_anything_is_written(error, call):
    with pytest.raises(error):
        call()
    assert not POOL.any()
    assert (BUFFER == 1).all()


def test_the_same_row_may_be_named_by_two_components():
    plan = ComponentPlan.of([Component(POOL, 1), Component(torch.zeros(1, 3, 8), 1)])
    component_scatter(torch.zeros(plan.size_bytes, dtype=torch.uint8), plan, torch.tensor([2, 2]))


def test_two_components_may_write_other_rows_of_one_pool_and_read_the_same(device):
    pool = torch.arange(32.0, device=device).view(1, 4, 8)
    plan = ComponentPlan.of([Component(pool, 1), Component(pool, 1)])
    buffer = torch.zeros(plan.size_bytes, dtype=torch.uint8, device=device)
    component_gather(plan, torch.tensor([2, 2], device=device), buffer)
    component_scatter(buffer, plan, torch.tensor([0, 3], device=device))
    assert torch.equal(pool[0, [0, 3]], pool[0, [2, 2]])
