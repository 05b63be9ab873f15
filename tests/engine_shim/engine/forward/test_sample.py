"""Sampling: greedy, temperature, top-p, and independence of the batch."""

import math
from itertools import pairwise

import pytest
import torch

from engine_shim.engine.forward.base import Draw
from engine_shim.engine.forward.sample import sample_tokens

GREEDY = Draw(temperature=0.0, top_p=1.0, uniform=0.99)


def draw(uniform, temperature=1.0, top_p=1.0):
    return Draw(temperature=temperature, top_p=top_p, uniform=uniform)


def sample_one(probabilities, chance):
    return sample_tokens(torch.tensor([probabilities]).log(), [chance])[0]


def test_greedy_takes_the_highest_and_the_first_among_equals():
    logits = torch.tensor([[0.0, 3.0, 3.0], [5.0, 1.0, 2.0]])
    assert sample_tokens(logits, [GREEDY, GREEDY]) == [1, 0]


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 1), (0.49, 1), (0.51, 2), (0.79, 2), (0.81, 0), (1 - 2**-53, 0)])
def test_a_draw_falls_into_the_token_whose_share_it_lies_in(uniform, token):
    assert sample_one([0.2, 0.5, 0.3], draw(uniform)) == token


@pytest.mark.parametrize(
    ("top_p", "tokens"), [(0.4, {1}), (0.5, {1}), (0.6, {1, 2}), (0.9, {0, 1, 2}), (1.0, {0, 1, 2})]
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, tokens):
    drawn = {sample_one([0.2, 0.5, 0.3], draw(number / 100, top_p=top_p)) for number in range(100)}
    assert drawn == tokens


def test_a_low_temperature_sharpens_and_a_high_one_flattens():
    probabilities = [0.5, 0.3, 0.2]
    shares = []
    for temperature in (0.2, 1.0, 5.0):
        drawn = [sample_one(probabilities, draw(number / 200, temperature)) for number in range(200)]
        shares.append(drawn.count(0))
    assert all(sharper > flatter for sharper, flatter in pairwise(shares))


def test_a_row_samples_the_same_alone_and_in_any_batch():
    chance = torch.Generator().manual_seed(3)
    logits = torch.randn(9, 300, generator=chance) * 3
    draws = [draw(index / 9, 0.3 + index / 4, 1 - index / 20) if index % 3 else GREEDY for index in range(9)]
    together = sample_tokens(logits, draws)
    assert together == [sample_tokens(logits[index : index + 1], [draws[index]])[0] for index in range(9)]
    assert together[::-1] == sample_tokens(logits.flip(0), draws[::-1])


def test_logits_that_would_overflow_are_sampled_all_the_same():
    logits = torch.tensor([[3e38, -3e38, 0.0], [0.0, -math.inf, -math.inf]])
    assert sample_tokens(logits, [draw(0.999, 1e-300), draw(0.999)]) == [0, 0]


def test_no_rows_give_no_tokens():
    assert sample_tokens(torch.zeros(0, 5), []) == []
