"""Lengths of answers: what is still to come of one, against sums over the answers themselves."""

import math
from itertools import pairwise
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.fleet.outputs import (
    GRID,
    HALVE_AT,
    MAX_OUTLOOKS,
    PRIOR_ANSWERS,
    PRIOR_MEDIAN_TOKENS,
    PRIOR_SIGMA,
    REBUILD_AFTER,
    OutputLengths,
)

#: Answers that are recorded of each length drawn: all tables are made of all of them, and none is halved.
REPEATS = REBUILD_AFTER
lengths = st.one_of(st.integers(0, 60), st.integers(0, 3_000), st.integers(0, 300_000))
samples = st.lists(lengths, min_size=1, max_size=int((HALVE_AT - PRIOR_ANSWERS) // REPEATS) - 1)
limits = st.none() | st.integers(-5, 1_000_000)


def learn(answers, *, repeats=1):
    outputs = OutputLengths()
    for answer in answers:
        for _ in range(repeats):
            outputs.record(answer)
    return outputs


def prior():
    """Lengths and weights that stand for the prior, an eighth of a doubling apart."""
    below = NormalDist(math.log(PRIOR_MEDIAN_TOKENS), PRIOR_SIGMA).cdf
    edges = [2.0 ** (step / 8) for step in range(153)]
    shares = [below(math.log(after)) - below(math.log(before)) for before, after in pairwise(edges)]
    middles = [(before + after) / 2 for before, after in pairwise(edges)]
    return [(middle, PRIOR_ANSWERS * share) for middle, share in zip(middles, shares, strict=True)]


def weigh(answers, repeats=1):
    return [*((float(answer), float(repeats)) for answer in answers), *prior()]


def brute_remaining(weighted, begun):
    """Mean of what follows `begun` in the answers that get there."""
    left = [(length - begun, weight) for length, weight in weighted if length >= begun]
    total = math.fsum(weight for _, weight in left)
    return math.fsum(rest * weight for rest, weight in left) / total


def brute_joint(weighted, begun):
    """The same of the shorter of that and of a whole answer, over all pairs."""
    left = [(length - begun, weight) for length, weight in weighted if length >= begun]
    pairs = [(min(rest, other), a * b) for rest, a in left for other, b in weighted]
    return math.fsum(tokens * weight for tokens, weight in pairs) / math.fsum(weight for _, weight in pairs)


def pareto(count, least, exponent):
    """Quantiles of a long tail."""
    return [round(least * ((n + 0.5) / count) ** (-1 / exponent)) for n in range(count)]


@settings(deadline=None, max_examples=60)
@given(answers=samples, output_tokens=st.integers(-10, 10**9), limit_tokens=limits)
def test_what_is_still_to_come_is_at_least_one_and_at_most_what_the_grid_and_the_limit_leave(
    answers, output_tokens, limit_tokens
):
    outputs = learn(answers, repeats=REPEATS)
    for find in (outputs.find_remaining_tokens, outputs.find_joint_tokens):
        tokens = find(output_tokens, limit_tokens)
        assert type(tokens) is int
        assert 1 <= tokens <= GRID[-1]
        if limit_tokens is not None:
            assert tokens <= max(1, limit_tokens - output_tokens)
        assert tokens <= find(output_tokens)
    assert outputs.find_joint_tokens(output_tokens) <= outputs.find_remaining_tokens(output_tokens)


@settings(deadline=None, max_examples=40)
@given(answers=samples, place=st.integers(0, 24))
def test_what_remains_at_a_length_of_the_grid_is_the_mean_over_the_answers_that_get_there(answers, place):
    """Within 4 tokens and a fifth of those answers' lengths and of what remains: half a step of the grid each time.

    An answer counts as anywhere within its step of half a doubling, and what remains of it by the middle of its step.
    """
    begun = GRID[place]
    weighted = weigh(answers, REPEATS)
    brute = brute_remaining(weighted, begun)
    found = learn(answers, repeats=REPEATS).find_remaining_tokens(math.ceil(begun))
    assert abs(found - brute) <= 8 + 0.21 * (found + begun + brute)


@settings(deadline=None, max_examples=30)
@given(answers=samples)
def test_what_two_answers_have_in_common_is_the_mean_of_the_shorter_over_all_pairs(answers):
    """Within 12 tokens and a factor of 1.75: a step of the grid up or down for the answer, half a one for the sum."""
    brute = brute_joint(weigh(answers, REPEATS), 0.0)
    found = learn(answers, repeats=REPEATS).find_joint_tokens(0)
    assert brute / 1.75 - 12 <= found <= brute * 1.75 + 12


@pytest.mark.parametrize(("least", "exponent"), [(20, 1.5), (200, 1.2), (100, 2.5), (900, 3.0)])
@pytest.mark.parametrize("place", [0, 6, 9, 11])
def test_of_answers_without_gaps_both_are_within_an_eighth(least, exponent, place):
    answers = pareto(3_840, least, exponent)
    answers = [answer for answer in answers if answer < GRID[-3]]
    outputs = learn(answers[: len(answers) // REBUILD_AFTER * REBUILD_AFTER])
    begun = GRID[place]
    thinned = weigh(answers[::8], 8)
    assert outputs.find_remaining_tokens(math.ceil(begun)) == pytest.approx(
        brute_remaining(weigh(answers), begun), rel=0.125
    )
    assert outputs.find_joint_tokens(math.ceil(begun)) == pytest.approx(brute_joint(thinned, begun), rel=0.125)


@pytest.mark.parametrize("exponent", [1.2, 1.5, 2.0])
def test_under_a_long_tail_an_answer_that_is_longer_already_is_never_expected_to_end_sooner(exponent):
    answers = pareto(3_840, 20, exponent)
    outputs = learn(answers)
    well_seen = [n for n in range(32, answers[100]) if n < 100_000]
    for find in (outputs.find_remaining_tokens, outputs.find_joint_tokens):
        found = [find(output_tokens) for output_tokens in well_seen]
        assert found == sorted(found)


def test_under_a_long_tail_an_answer_is_expected_to_go_on_in_proportion_to_its_length():
    outputs = learn(pareto(3_840, 20, 2.0))
    for length in (32, 46, 64, 91, 128):
        expected = 2 * outputs.find_remaining_tokens(length)
        assert outputs.find_remaining_tokens(2 * length) == pytest.approx(expected, rel=0.125)


def test_an_answer_longer_than_any_seen_is_expected_to_last_as_long_again():
    outputs = OutputLengths()
    outputs._counts = [1.0, *(0.0 for _ in GRID[1:])]
    outputs._rebuild()
    assert outputs.find_remaining_tokens(5_000) == outputs.find_joint_tokens(5_000) == 4_096


def test_in_the_far_tail_the_prior_stands_however_many_answers_were_short():
    """Figures there are a trillionth of the sum, and not its rounding errors."""
    far = [math.ceil(tokens) for tokens in GRID[20:-1]]
    before = [OutputLengths().find_remaining_tokens(tokens) for tokens in far]
    assert before == sorted(before)
    outputs = learn([30] * 3_840)
    assert [outputs.find_remaining_tokens(tokens) for tokens in far] == before


def test_answers_of_long_ago_are_forgotten():
    outputs = learn([20_000] * 4_000)
    assert outputs.expected_tokens > 10_000
    for _ in range(12 * int(HALVE_AT) // 2):
        outputs.record(50)
    assert 45 <= outputs.expected_tokens <= 65
    for _ in range(2 * int(HALVE_AT)):
        outputs.record(20_000)
    assert outputs.expected_tokens > 10_000


def test_before_any_answer_the_prior_holds_and_the_tables_follow_a_few_answers_later():
    outputs = OutputLengths()
    mean = PRIOR_MEDIAN_TOKENS * math.exp(PRIOR_SIGMA**2 / 2)
    assert outputs.expected_tokens == pytest.approx(mean, rel=0.05)
    before = outputs.expected_tokens
    for _ in range(REBUILD_AFTER - 1):
        outputs.record(10_000)
    assert outputs.expected_tokens == before
    outputs.record(10_000)
    assert outputs.expected_tokens > 10 * before


@pytest.mark.parametrize("length", [-(10**400), -1, 10**400])
def test_an_absurd_length_counts_as_the_shortest_or_the_longest(length):
    outputs = learn([length] * REBUILD_AFTER)
    assert 1 <= outputs.expected_tokens <= GRID[-1]
    assert (outputs.expected_tokens > 100_000) == (length > 0)


def test_what_a_limit_leaves_is_expected_at_most():
    outputs = OutputLengths()
    assert outputs.find_remaining_tokens(0, 100) == outputs.find_joint_tokens(0, 100) == 100
    assert outputs.find_remaining_tokens(70, 100) == outputs.find_joint_tokens(70, 100) == 30
    assert outputs.find_remaining_tokens(100, 100) == outputs.find_joint_tokens(170, 100) == 1
    assert outputs.find_remaining_tokens(0, 100_000) == outputs.expected_tokens


@settings(max_examples=50, deadline=None)
@given(answers=samples, limit=limits)
def test_the_outlook_of_an_answer_is_what_its_length_and_limit_say(answers, limit):
    outputs = OutputLengths()
    for known in ([], answers):
        for answer in known * REPEATS:
            outputs.record(answer)
        outlook = outputs.foresee(limit)
        assert outputs.foresee(limit) is outlook
        assert (outlook.remaining_tokens, outlook.joint_tokens) == outputs.find_both_tokens(0, limit)
        assert outlook.joint_ratio == outlook.joint_tokens / outputs.find_joint_tokens(0)
        most = outputs.expected_tokens
        assert outlook.expected_tokens == (most if limit is None else min(max(0, limit), most))


def test_of_limits_that_clients_make_up_few_are_remembered():
    outputs = OutputLengths()
    for limit in range(2 * MAX_OUTLOOKS):
        assert outputs.foresee(limit).expected_tokens == min(limit, outputs.expected_tokens)
    assert len(outputs._outlooks) == MAX_OUTLOOKS
