"""The gated delta rule by chunks is the rule token by token, wherever rows begin, end and are cut."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from kernels.errors import DeviceMismatch, DtypeMismatch, OverlappingRanges, PageOutOfRange, ShapeMismatch
from kernels.gated_delta_rule import DeltaRows, RecurrentInputs, gated_delta_decode, gated_delta_prefill
from kernels.testing import assert_close

SCALE = 0.25


def make_inputs(tokens, *, key_heads=1, heads=2, key_dim=16, value_dim=16, dtype=torch.float32, device="cpu", seed=0):
    chance = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=chance)

    keys = normalize(draw(tokens, key_heads, key_dim), dim=-1)
    return RecurrentInputs(
        queries=draw(tokens, key_heads, key_dim).to(dtype).to(device),
        keys=keys.to(dtype).to(device),
        values=draw(tokens, heads, value_dim).to(dtype).to(device),
        log_decays=(-draw(tokens, heads).abs() * 0.3).to(device),
        betas=torch.sigmoid(draw(tokens, heads)).to(device),
    )


def cut(inputs, span):
    names = ("queries", "keys", "values", "log_decays", "betas")
    return RecurrentInputs(**{name: getattr(inputs, name)[span].contiguous() for name in names})


def make_states(count, inputs, seed=1):
    shape = (count, *inputs.state_shape)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(inputs.keys.device)


def make_rows(starts, counts, device="cpu", dtype=torch.int64):
    offsets = torch.tensor([0, *torch.tensor(counts, dtype=torch.int64).cumsum(0).tolist()], dtype=dtype, device=device)
    return DeltaRows(row_offsets=offsets, start_tokens=torch.tensor(starts, dtype=dtype, device=device))


def run_by_hand(inputs, state):
    """One row in double, by the rule's definition, head by head; every state after every token."""
    group = inputs.values.shape[1] // inputs.keys.shape[1]
    tokens, heads = inputs.values.shape[:2]
    out, states = torch.zeros(inputs.values.shape, dtype=torch.float64), []
    state = state.double().clone()
    for token in range(tokens):
        for head in range(heads):
            key, query = (one[token, head // group].double() for one in (inputs.keys, inputs.queries))
            kept = torch.exp(inputs.log_decays[token, head].double()) * state[head]
            change = inputs.betas[token, head].double() * (inputs.values[token, head].double() - kept.T @ key)
            state[head] = kept + torch.outer(key, change)
            out[token, head] = state[head].T @ query * SCALE
        states.append(state.clone())
    return out, states


ROWS = {
    "one token": ([0], [1]),
    "a chunk": ([0], [64]),
    "a chunk and one": ([0], [65]),
    "from within a chunk": ([70], [61]),
    "several rows": ([0, 63, 128, 5], [3, 130, 64, 1]),
    "empty rows": ([9, 0, 64], [0, 70, 0]),
}


@pytest.mark.parametrize(("starts", "counts"), ROWS.values(), ids=ROWS)
def test_a_prefill_is_the_rule_token_by_token(device, starts, counts):
    inputs = make_inputs(sum(counts), device=device)
    states = make_states(len(counts), inputs)
    done = gated_delta_prefill(inputs, states, make_rows(starts, counts, device), scale=SCALE)
    token = 0
    for row, count in enumerate(counts):
        span = slice(token, token + count)
        out, after = run_by_hand(cut(inputs, span), states[row])
        assert_close("out", done.out[span].cpu(), out.float())
        assert_close(
            "state", done.final_states[row].cpu(), (after[-1] if after else states[row].double()).float().cpu()
        )
        token += count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("key_heads", "heads", "key_dim", "value_dim"), [(1, 1, 8, 5), (1, 3, 16, 40), (2, 2, 64, 16), (2, 6, 24, 64)]
)
def test_value_heads_share_key_heads_and_dims_may_differ(device, key_heads, heads, key_dim, value_dim, dtype):
    sizes = {"key_heads": key_heads, "heads": heads, "key_dim": key_dim, "value_dim": value_dim}
    inputs = make_inputs(67, **sizes, dtype=dtype, device=device)
    states = make_states(1, inputs)
    done = gated_delta_prefill(inputs, states, make_rows([0], [67], device, torch.int32), scale=SCALE)
    out, after = run_by_hand(inputs, states[0])
    assert_close("out", done.out.cpu(), out.to(dtype), times=4)
    difference = done.final_states[0].cpu().double() - after[-1].cpu()
    assert difference.abs().max() < (1e-4 if dtype == torch.float32 else 3e-2)


@pytest.mark.parametrize("closed", [-math.inf, -1e30, -3e3])
def test_a_gate_that_closes_leaves_nothing_of_what_was_before(device, closed):
    inputs = make_inputs(67, device=device)
    inputs.log_decays[5, 0] = inputs.log_decays[40] = inputs.log_decays[41, 1] = closed
    states = make_states(1, inputs)
    done = gated_delta_prefill(inputs, states, make_rows([0], [67], device), scale=SCALE)
    out, after = run_by_hand(inputs, states[0])
    assert_close("out", done.out.cpu(), out.float(), times=4)
    assert_close("state", done.final_states[0].cpu(), after[-1].float().cpu(), times=4)


@pytest.mark.parametrize("keys", ["equal", "opposite", "one after the other"])
def test_keys_that_are_alike_do_no_harm(device, keys):
    """The matrix that is inverted is then as far from 1 as may be."""
    inputs = make_inputs(130, device=device)
    one = inputs.keys[:1].expand_as(inputs.keys).clone()
    if keys == "opposite":
        one[::2] *= -1
    if keys == "one after the other":
        one = torch.eye(16, device=device)[torch.arange(130) % 2][:, None].expand_as(one).contiguous()
    hard = RecurrentInputs(
        queries=inputs.queries,
        keys=one,
        values=inputs.values,
        log_decays=torch.zeros_like(inputs.log_decays),
        betas=torch.ones_like(inputs.betas),
    )
    states = make_states(1, hard)
    done = gated_delta_prefill(hard, states, make_rows([0], [130], device), scale=SCALE)
    out, _ = run_by_hand(hard, states[0])
    assert_close("out", done.out.cpu(), out.float(), times=5)


def test_gates_that_forget_all_do_not_overflow(device):
    inputs = make_inputs(70, device=device)
    inputs.log_decays.fill_(-60.0)
    done = gated_delta_prefill(inputs, make_states(1, inputs), make_rows([0], [70], device), scale=SCALE)
    assert_close("out", done.out.cpu(), run_by_hand(inputs, make_states(1, inputs)[0])[0].float())


@pytest.mark.parametrize("every", [64, 128])
@pytest.mark.parametrize("start", [0, 64, 100, 127])
def test_F07_a_checkpoint_is_the_state_after_its_token_and_a_row_may_go_on_from_it(device, start, every):
    inputs = make_inputs(200, device=device)
    states = make_states(1, inputs)
    rows = make_rows([start], [200], device)
    done = gated_delta_prefill(inputs, states, rows, scale=SCALE, checkpoint_tokens=every)
    _, after = run_by_hand(inputs, states[0])
    marks = [mark for mark in range(every, start + 201, every) if mark > start]
    assert done.checkpoint_offsets.tolist() == [0, len(marks)]
    assert len(done.checkpoints) >= len(marks)
    for number, mark in enumerate(marks):
        assert_close("checkpoint", done.checkpoints[number].cpu(), after[mark - start - 1].float())
    cut_at = marks[0] - start
    rest = gated_delta_prefill(
        cut(inputs, slice(cut_at, None)),
        done.checkpoints[:1],
        make_rows([marks[0]], [200 - cut_at], device),
        scale=SCALE,
    )
    # From a multiple of a chunk on the same chunks are computed from the same state.
    assert torch.equal(rest.out, done.out[cut_at:])
    assert torch.equal(rest.final_states, done.final_states)


def test_checkpoints_of_several_rows_lie_one_after_the_other_and_may_be_rounded(device):
    counts, starts = [130, 10, 64, 129], [0, 60, 63, 128]
    inputs = make_inputs(sum(counts), device=device)
    states = make_states(4, inputs)
    rows = make_rows(starts, counts, device)
    done = gated_delta_prefill(inputs, states, rows, scale=SCALE, checkpoint_tokens=64, checkpoint_dtype=torch.float16)
    assert done.checkpoint_offsets.tolist() == [0, 2, 3, 4, 6]
    token, number = 0, 0
    for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
        _, after = run_by_hand(cut(inputs, slice(token, token + count)), states[row])
        for mark in range(start // 64 * 64 + 64, start + count + 1, 64):
            assert_close("checkpoint", done.checkpoints[number].cpu(), after[mark - start - 1].half())
            number += 1
        token += count
    assert done.checkpoints[number:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("key_heads", "heads", "key_dim", "value_dim"), [(2, 4, 16, 16), (1, 3, 8, 40)])
def test_a_decode_step_replaces_its_states_in_place_and_no_others(device, key_heads, heads, key_dim, value_dim, dtype):
    sizes = {"key_heads": key_heads, "heads": heads, "key_dim": key_dim, "value_dim": value_dim}
    inputs = make_inputs(3, **sizes, dtype=dtype, device=device)
    states = make_states(6, inputs)
    before = states.clone()
    slots = torch.tensor([4, -1, 0], dtype=torch.int32, device=device)
    out = gated_delta_decode(inputs, states, slots, scale=SCALE)
    for sequence, slot in ((0, 4), (2, 0)):
        expected, after = run_by_hand(cut(inputs, slice(sequence, sequence + 1)), before[slot])
        assert_close("out", out[sequence].cpu(), expected[0].to(dtype))
        assert_close("state", states[slot].cpu(), after[0].float())
    assert not out[1].any()
    assert torch.equal(states[[1, 2, 3, 5]], before[[1, 2, 3, 5]])


def test_states_may_be_kept_in_half_precision(device):
    inputs = make_inputs(2, device=device)
    states = make_states(3, inputs).half()
    _, after = run_by_hand(cut(inputs, slice(0, 1)), states[2].float())
    gated_delta_decode(inputs, states, torch.tensor([2, 0], device=device), scale=SCALE)
    assert_close("state", states[2].cpu(), after[0].half())


def test_decode_steps_after_a_prefill_are_the_prefill_of_all(device):
    inputs = make_inputs(70, device=device)
    states = make_states(1, inputs)
    whole = gated_delta_prefill(inputs, states, make_rows([0], [70], device), scale=SCALE)
    part = gated_delta_prefill(cut(inputs, slice(0, 66)), states, make_rows([0], [66], device), scale=SCALE)
    pool, slot = part.final_states, torch.tensor([0], device=device)
    for token in range(66, 70):
        out = gated_delta_decode(cut(inputs, slice(token, token + 1)), pool, slot, scale=SCALE)
        assert_close("out", out.cpu(), whole.out[token : token + 1].cpu(), times=2)
    assert_close("state", pool.cpu(), whole.final_states.cpu(), times=2)


def test_nothing_gives_nothing(device):
    inputs = make_inputs(0, device=device)
    done = gated_delta_prefill(inputs, make_states(0, inputs), make_rows([], [], device), scale=SCALE)
    assert done.out.shape == (0, 2, 16)
    states = make_states(2, inputs)
    assert gated_delta_decode(inputs, states, torch.zeros(0, dtype=torch.int64), scale=SCALE).shape == (0, 2, 16)


def changed(inputs, **fields):
    names = ("queries", "keys", "values", "log_decays", "betas")
    return RecurrentInputs(**{**{name: getattr(inputs, name) for name in names}, **fields})


def bad_calls():
    inputs = make_inputs(3)
    states, rows = make_states(1, inputs), make_rows([0], [3])
    pool, slots = make_states(4, inputs), torch.tensor([0, 1, 2])

    def prefill(inputs=inputs, states=states, rows=rows, **named):
        return lambda: gated_delta_prefill(inputs, states, rows, scale=SCALE, **named)

    def decode(inputs=inputs, states=pool, slots=slots):
        return lambda: gated_delta_decode(inputs, states, slots, scale=SCALE)

    yield "fewer keys", ShapeMismatch, prefill(changed(inputs, keys=inputs.keys[:2]))
    yield (
        "heads that do not divide",
        ShapeMismatch,
        prefill(changed(inputs, keys=torch.cat([inputs.keys] * 3, 1), queries=torch.cat([inputs.keys] * 3, 1))),
    )
    yield "fewer values", ShapeMismatch, prefill(changed(inputs, values=inputs.values[:2]))
    yield "gates of fewer heads", ShapeMismatch, prefill(changed(inputs, betas=inputs.betas[:, :1].contiguous()))
    yield "gates in half", DtypeMismatch, prefill(changed(inputs, log_decays=inputs.log_decays.half()))
    yield "half keys", DtypeMismatch, prefill(changed(inputs, keys=inputs.keys.half()))
    yield (
        "strided values",
        ShapeMismatch,
        prefill(changed(inputs, values=inputs.values.transpose(0, 1).contiguous().transpose(0, 1))),
    )
    yield "values elsewhere", DeviceMismatch, prefill(changed(inputs, values=inputs.values.to("meta")))
    yield "states of two rows", ShapeMismatch, prefill(states=make_states(2, inputs))
    yield "half states", DtypeMismatch, prefill(states=states.half())
    yield "rows of other tokens", ShapeMismatch, prefill(rows=make_rows([0], [2]))
    yield "a row before its sequence", ShapeMismatch, prefill(rows=make_rows([-1], [3]))
    yield (
        "rows of two dtypes",
        DtypeMismatch,
        prefill(rows=DeltaRows(row_offsets=rows.row_offsets, start_tokens=rows.start_tokens.int())),
    )
    yield "checkpoints within a chunk", ShapeMismatch, prefill(checkpoint_tokens=96)
    yield "checkpoints of integers", DtypeMismatch, prefill(checkpoint_dtype=torch.int32)
    yield "a slot past the pool", PageOutOfRange, decode(slots=torch.tensor([0, 1, 4]))
    yield "a slot twice", OverlappingRanges, decode(slots=torch.tensor([0, 1, 1]))
    yield "too few slots", ShapeMismatch, decode(slots=slots[:2])
    alone = DeltaRows(row_offsets=rows.row_offsets, start_tokens=rows.start_tokens[0])
    yield "a start that is no list", ShapeMismatch, prefill(rows=alone)
    own = pool.view(-1)[: inputs.values.numel()].view(inputs.values.shape)
    yield "values within the states", OverlappingRanges, decode(changed(inputs, values=own))
    yield "other states", ShapeMismatch, decode(states=pool[:, :, :8].contiguous())
    yield "states of integers", DtypeMismatch, decode(states=pool.int())


@pytest.mark.parametrize(("error", "call"), [case[1:] for case in bad_calls()], ids=[case[0] for case in bad_calls()])
def test_what_does_not_fit_is_refused(error, call):
    with pytest.raises(error):
        call()
