"""The time between tokens: one ratio for the whole, one for what of it grows with the context."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fleet.pace import CONTEXT_LOG_STEP, StepPace, WorkerPaces
from wire.ids import WorkerId

ANY_S = st.one_of(st.floats(), st.floats(1e-4, 1.0))


def learn(pace, *, ratio, context_ratio, count=300, noise=0.0, longest_context_s=0.02, seed=1):
    rng = Random(seed)
    for _ in range(count):
        context_s = rng.uniform(0.0, longest_context_s)
        step_s = ratio * (0.01 + context_ratio * context_s) * math.exp(rng.gauss(0.0, noise))
        pace.record(base_s=0.01, context_s=context_s, measured_s=step_s)


def test_nothing_measured_is_as_predicted():
    assert StepPace().predict_s(0.01, 0.02) == 0.03


@pytest.mark.parametrize("ratio", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("context_ratio", [0.0, 0.3, 1.0, 3.0])
def test_both_parts_are_found_among_noise(ratio, context_ratio):
    pace = StepPace()
    learn(pace, ratio=ratio, context_ratio=context_ratio, noise=0.2)
    assert pace.context_ratio == pytest.approx(context_ratio, rel=0.25, abs=0.15)
    for context_s in (0.0, 0.01, 0.02):
        step_s = ratio * (0.01 + context_ratio * context_s)
        assert pace.predict_s(0.01, context_s) == pytest.approx(step_s, rel=0.2)


def test_contexts_that_hardly_differ_scale_both_parts_alike():
    pace = StepPace()
    for _ in range(300):
        pace.record(base_s=0.01, context_s=0.01, measured_s=0.08)
    assert pace.context_ratio == pytest.approx(1.0, abs=0.01)
    assert pace.predict_s(0.01, 0.01) == pytest.approx(0.08, rel=0.02)


def test_an_engine_that_changes_is_followed():
    pace = StepPace()
    learn(pace, ratio=1.0, context_ratio=1.0)
    learn(pace, ratio=2.0, context_ratio=0.0, count=600, seed=2)
    assert pace.context_ratio == pytest.approx(0.0, abs=0.05)
    assert pace.predict_s(0.01, 0.02) == pytest.approx(0.02, rel=0.05)


def test_one_outlier_moves_little_once_many_were_seen():
    pace = StepPace()
    learn(pace, ratio=1.0, context_ratio=1.0)
    pace.record(base_s=0.01, context_s=0.02, measured_s=1e9)
    assert pace.predict_s(0.01, 0.01) == pytest.approx(0.02, rel=0.1)
    assert pace.context_ratio == pytest.approx(1.0, abs=0.5)


@given(st.lists(st.tuples(ANY_S, ANY_S, ANY_S), max_size=40))
def test_whatever_is_measured_the_ratios_stay_within_their_bounds(measured):
    pace = StepPace()
    for base_s, context_s, measured_s in measured:
        pace.record(base_s=base_s, context_s=context_s, measured_s=measured_s)
        assert 1 / 64.1 < pace.ratio < 64.1
        assert 1 / 64.1 < pace.context_ratio <= StepPace.MAX_CONTEXT_RATIO


def test_workers_are_told_of_the_context_once_it_is_far_from_what_they_know():
    paces, worker = WorkerPaces(), WorkerId("w")
    paces.record_decode(worker, predicted_s=0.01, measured_s=0.04, now_s=0.0)
    paces.refresh(0.0)
    decode = paces.find(worker).decode
    assert not paces.change_context(math.exp(CONTEXT_LOG_STEP / 2))
    assert (paces.find(worker).context, paces.find(WorkerId("other")).context) == (1.0, 1.0)
    assert paces.change_context(0.25)
    assert (paces.find(worker).context, paces.find(WorkerId("other")).context) == (0.25, 0.25)
    assert (paces.find(worker).decode, paces.refresh(0.0)) == (decode, [])
    assert not paces.change_context(0.25)
