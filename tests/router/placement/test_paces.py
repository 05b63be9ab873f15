"""Measured times teach the pace only where they mean something."""

import pytest

from router.config.policy import Coefficients
from router.placement.paces import Paces, predict_step, record_decode, record_prefill
from router.placement.reservation import Reservation, StepParts
from wire.ids import RequestId, Target, WorkerId

COSTS = Coefficients(
    prefill_step_s=0.0,
    prefill_s_per_token=1e-3,
    attention_s_per_token_pair=0.0,
    decode_step_s=0.01,
    decode_s_per_request=0.002,
    decode_s_per_context_token=1e-6,
)


@pytest.fixture
def paces():
    return Paces()


def running(**changes):
    given = {
        "request_id": RequestId("r1"),
        "target": Target(WorkerId("a"), 0),
        "origin": "local",
        "reserved_at_s": 0.0,
        "prompt_tokens": 1_000,
        "uncached_tokens": 1_000,
        "prefill_s": 1.0,
        "remaining_prefill_s": 1.0,
        "expected_output_tokens": 100,
        "starts_at_once": True,
    }
    return Reservation(**{**given, **changes})


def test_a_prefill_on_an_idle_rank_is_learned_from(paces):
    record_prefill(paces, running(), cached_tokens=None, now_s=4.0, costs=COSTS)
    assert paces.prefill.ratio == pytest.approx(2.0)


def test_reported_reuse_comes_before_assumed(paces):
    record_prefill(paces, running(), cached_tokens=500, now_s=0.5, costs=COSTS)
    assert paces.prefill.ratio == pytest.approx(1.0)
    assert paces.prefill.measurements == 1


def test_what_a_prefill_takes_at_least_is_part_of_what_is_predicted(paces):
    costs = COSTS.model_copy(update={"prefill_step_s": 0.25})
    record_prefill(paces, running(), cached_tokens=None, now_s=1.25, costs=costs)
    assert paces.prefill.ratio == pytest.approx(1.0)


def test_attention_is_learned_from_prefills_of_different_lengths(paces):
    costs = COSTS.model_copy(update={"prefill_step_s": 0.5, "attention_s_per_token_pair": 1e-6})
    for length in (1_000, 100_000) * 40:
        taken_s = 0.5 + length * 1e-3 + 4 * 1e-6 * length * length / 2
        record_prefill(paces, running(prompt_tokens=length), cached_tokens=None, now_s=taken_s, costs=costs)
    assert paces.attention.ratio > 2.0


def test_what_a_prefill_takes_at_least_counts_as_no_attention(paces):
    costs = COSTS.model_copy(update={"prefill_step_s": 0.5})
    for length in (1_000, 100_000) * 40:
        taken_s = 3 * (0.5 + length * 1e-3) if length == 1_000 else length * 1e-3
        record_prefill(paces, running(prompt_tokens=length), cached_tokens=None, now_s=taken_s, costs=costs)
    assert paces.attention.ratio == 1.0


@pytest.mark.parametrize("changes", [{"starts_at_once": False}, {"assumed_cached_tokens": 900}])
def test_a_queued_or_short_prefill_teaches_nothing(paces, changes):
    record_prefill(paces, running(**changes), cached_tokens=None, now_s=4.0, costs=COSTS)
    assert paces.prefill.measurements == 0


def test_a_step_takes_longer_with_more_requests_and_longer_contexts():
    step = predict_step(5, 10_000, None, COSTS)
    assert (step.base_s, step.context_s) == (pytest.approx(0.02), pytest.approx(0.01))


def test_the_time_between_tokens_is_learned_from(paces):
    seen = running(first_token_at_s=1.0, first_step=StepParts(0.01, 0.0))
    record_decode(paces, seen, last_step=StepParts(0.03, 0.0), output_tokens=101, now_s=5.0)
    assert paces.decode.ratio == pytest.approx(2.0**0.5)


@pytest.mark.parametrize("context_ratio", [0.0, 0.5, 1.0, 4.0])
def test_what_the_context_adds_to_a_step_is_told_apart(paces, context_ratio):
    for number in range(300):
        step = StepParts(0.01, 0.002 * (number * 7 % 11))
        step_s = 3.0 * (step.base_s + context_ratio * step.context_s)
        seen = running(first_token_at_s=0.0, first_step=step)
        record_decode(paces, seen, last_step=step, output_tokens=101, now_s=100 * step_s)
    assert paces.decode.context_ratio == pytest.approx(context_ratio, rel=0.1, abs=0.1)
    assert paces.decode.ratio == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(
    ("seen", "output_tokens"),
    [(running(), 100), (running(first_token_at_s=1.0, first_step=StepParts(0.01)), 3)],
)
def test_an_answer_at_once_or_a_short_one_teaches_nothing(paces, seen, output_tokens):
    record_decode(paces, seen, last_step=StepParts(0.01), output_tokens=output_tokens, now_s=9.0)
    assert paces.decode.ratio == 1.0
