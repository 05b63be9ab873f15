"""Each difference between predicted and actual reuse has its reason, or none."""

import pytest

from prefix_index.trust import Trust
from router.placement.accuracy import Accuracy, classify


@pytest.mark.parametrize(
    ("predicted", "actual", "more", "accuracy"),
    [
        (64, 64, {}, Accuracy.EXACT),
        (64, 64, {"raced": True}, Accuracy.EXACT),
        (64, 80, {"choices": 2}, Accuracy.N_GREATER_1),
        (64, 48, {"choices": 2}, Accuracy.UNEXPLAINED),
        (64, 80, {"raced": True}, Accuracy.RACED),
        (64, 48, {"raced": True, "choices": 3}, Accuracy.RACED),
        (64, 80, {"trust": Trust.PARTIAL}, Accuracy.LOWER_BOUND),
        (0, 80, {"trust": Trust.LOST}, Accuracy.LOWER_BOUND),
        (64, 48, {"trust": Trust.PARTIAL}, Accuracy.UNEXPLAINED),
        (64, 80, {}, Accuracy.UNEXPLAINED),
        (64, 48, {"slack_tokens": 16}, Accuracy.UPPER_BOUND),
        (64, 32, {"slack_tokens": 16}, Accuracy.UNEXPLAINED),
        (64, 80, {"slack_tokens": 16}, Accuracy.UNEXPLAINED),
        (64, 32, {"believed": True}, Accuracy.BELIEVED),
        (64, 32, {"believed": True, "raced": True}, Accuracy.RACED),
    ],
)
def test_a_prediction_falls_into_the_class_of_its_reason(predicted, actual, more, accuracy):
    assert classify(predicted, actual, **{"trust": Trust.EXACT, **more}) is accuracy
