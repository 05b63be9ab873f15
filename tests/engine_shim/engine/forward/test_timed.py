"""The timed forward takes the time the model says, and its tokens follow from what lies in the pages."""

import subprocess
import sys

import pytest

from engine_shim.engine.cache.token_bytes import pack_tokens
from engine_shim.engine.forward.base import Draw, ForwardRow
from engine_shim.engine.forward.timed import CostModel, TimedForward, measure_row
from engine_shim.engine.spec import EngineSpec

SPEC = EngineSpec(page_tokens=4, pool_pages=64, vocabulary_tokens=32, eos_token_ids=(0, 5))
GREEDY = Draw(temperature=0.0, top_p=1.0, uniform=0.0)
COSTS = CostModel(
    prefill_token_s=0.5,
    prefill_pair_s=0.25,
    decode_step_s=16.0,
    decode_row_s=2.0,
    decode_context_token_s=1.0,
)


def row(tokens, pages, start=0, draw=GREEDY):
    return ForwardRow(token_bytes=pack_tokens(tokens), start_token=start, pages=pages, draw=draw)


def make_forward(costs=CostModel(time_scale=0.0)):  # noqa: B008 - frozen
    slept = []
    return TimedForward(costs, spec=SPEC, sleep=slept.append), slept


def step_s(*rows):
    return COSTS.step_s(map(measure_row, rows))


def test_prefill_costs_its_tokens_and_their_pairs():
    assert step_s(row(range(6), [0, 1])) == 6 * 0.5 + 0.25 * 6 * (6 - 6 / 2)
    assert step_s(row(range(6), range(9), start=20)) == 6 * 0.5 + 0.25 * 6 * (26 - 6 / 2)


def test_a_decode_step_costs_once_and_each_row_by_its_context():
    assert step_s(row([1], range(9), start=8), row([1], range(9), start=3)) == 16 + 2 * 2.0 + 8 + 3
    assert step_s(row([1], [0], draw=None)) == 0.5 + 0.25 * 0.5
    assert step_s() == 0.0


def test_a_step_sleeps_its_time_scaled_and_not_at_all_at_scale_0():
    forward, slept = make_forward(CostModel(prefill_token_s=0.5, time_scale=0.1))
    forward.run([row(range(4), [0])])
    assert slept == [pytest.approx(0.2)]
    forward, slept = make_forward()
    forward.run([row(range(4), [0])])
    assert slept == []


def answer(token_ids, chunks, pages):
    """The token after `token_ids`, computed in chunks that end at the given tokens."""
    forward, _ = make_forward()
    start = 0
    for end in (*chunks, len(token_ids)):
        (token,) = forward.run([row(token_ids[start:end], pages, start=start)])
        start = end
    return token


def test_a_token_is_a_function_of_the_sequence_and_of_nothing_else():
    tokens = list(range(11))
    expected = answer(tokens, [], [0, 1, 2])
    assert {answer(tokens, [cut], [7, 3, 9]) for cut in range(1, 11)} == {expected}
    assert answer(tokens, range(1, 11), [5, 4, 3]) == expected


def test_every_token_and_its_place_count():
    tokens = [1] * 11
    answers = {answer([*tokens[:at], 2, *tokens[at + 1 :]], [], [0, 1, 2]) for at in range(11)}
    assert len(answers) > 6


def test_a_page_of_another_prefix_changes_the_tokens_that_follow():
    forward, _ = make_forward()
    tokens, other = list(range(12)), list(range(20, 32))
    forward.run([row(tokens[:8], [0, 1]), row(other[:8], [2, 3])])
    right = forward.run([row(tokens[8:], [0, 1, 4], start=8)])
    wrong = forward.run([row(tokens[8:], [2, 3, 5], start=8)])
    assert right != wrong


def test_no_answer_ends_the_output_and_most_of_the_vocabulary_comes_up():
    forward, _ = make_forward()
    answers = {forward.run([row([number % 32, number // 32], [0])])[0] for number in range(1000)}
    assert answers == set(range(32)) - {0, 5}


def test_above_temperature_0_the_draw_counts():
    forward, _ = make_forward()
    warm = [Draw(temperature=1.0, top_p=1.0, uniform=number / 16) for number in range(16)]
    answers = [forward.run([row([1, 2], [0], draw=draw)])[0] for draw in warm]
    assert len(set(answers)) > 5
    assert answers == [forward.run([row([1, 2], [0], draw=draw)])[0] for draw in warm]


def test_a_row_without_a_draw_has_no_answer():
    forward, _ = make_forward()
    assert forward.run([row([1, 2], [0], draw=None), row([1, 2], [1])])[0] is None


def test_a_vocabulary_of_stop_tokens_alone_is_refused():
    with pytest.raises(ValueError, match="every token"):
        TimedForward(CostModel(), spec=EngineSpec(vocabulary_tokens=1, eos_token_ids=(0,)))


def test_the_timed_engine_and_the_way_to_the_torch_one_import_no_torch():
    modules = "engine_shim.engine.engine, engine_shim.engine.forward.timed, engine_shim.engine.forward.toy"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
