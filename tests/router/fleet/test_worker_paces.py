"""Each worker's own pace counts by what it rests on and how old that is; attention is told apart by lengths."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fleet.pace import FORGET_S, PRIOR_MEASUREMENTS, AttentionPace, WorkerPaces
from wire.ids import WorkerId

W, V = WorkerId("w"), WorkerId("v")


def measure(paces, count, ratio, now_s=0.0, worker=W):
    for _ in range(count):
        paces.record_prefill(worker, predicted_s=1.0, measured_s=ratio, now_s=now_s)
    paces.refresh(now_s)


def test_a_worker_that_was_never_measured_is_as_the_fleet():
    paces = WorkerPaces()
    assert (paces.find(W).prefill, paces.find(W).decode) == (1.0, 1.0)
    assert paces.refresh(5.0) == []


def test_a_few_measurements_are_hardly_believed_and_many_are():
    paces = WorkerPaces()
    measure(paces, 1, 4.0)
    assert paces.find(W).prefill < 1.15
    measure(paces, 400, 4.0)
    assert paces.find(W).prefill > 2.5
    assert paces.find(V).prefill == 1.0
    assert paces.find(W).decode == 1.0


def test_as_many_measurements_as_the_prior_weighs_are_half_believed():
    paces = WorkerPaces()
    measure(paces, int(PRIOR_MEASUREMENTS), 4.0)
    assert math.log(paces.find(W).prefill) == pytest.approx(math.log(4.0) / 2, abs=0.1)


def test_a_worker_priced_too_dear_gets_another_chance_with_time():
    paces = WorkerPaces()
    measure(paces, 200, 8.0)
    dear = paces.find(W).prefill
    assert paces.refresh(FORGET_S) == [W]
    later = paces.find(W).prefill
    paces.refresh(10 * FORGET_S)
    assert 1.0 == paces.find(W).prefill < later < dear


def test_prefill_and_decode_are_learned_apart_and_forgotten_together():
    paces = WorkerPaces()
    for _ in range(100):
        paces.record_decode(W, predicted_s=0.01, measured_s=0.02, now_s=0.0)
    assert paces.refresh(0.0) == [W]
    assert (paces.find(W).prefill, paces.find(W).decode > 1.5) == (1.0, True)
    paces.forget(W)
    assert paces.find(W).decode == 1.0


@given(st.lists(st.tuples(st.floats(allow_nan=True), st.floats(allow_nan=True), st.floats(0, 1e6)), max_size=40))
def test_ratios_stay_bounded_whatever_is_measured(measurements):
    paces, attention = WorkerPaces(), AttentionPace()
    for predicted_s, measured_s, now_s in measurements:
        paces.record_prefill(W, predicted_s=predicted_s, measured_s=measured_s, now_s=now_s)
        attention.record(attention_share=0.5, predicted_s=predicted_s, measured_s=measured_s)
        paces.refresh(now_s)
        assert 1 / 65 < paces.find(W).prefill < 65
        assert 1 / 9 < attention.ratio < 9


def test_slow_long_prompts_beside_quick_short_ones_are_slow_attention():
    attention = AttentionPace()
    assert attention.ratio == 1.0
    for _ in range(400):
        for share in (0.1, 0.7):
            linear_s, attention_s = 1.0 - share, share
            attention.record(
                attention_share=share,
                predicted_s=linear_s + attention.ratio * attention_s,
                measured_s=linear_s + 2.0 * attention_s,
            )
    assert attention.ratio == pytest.approx(2.0, rel=0.35)
    assert attention.ratio > 1.3
