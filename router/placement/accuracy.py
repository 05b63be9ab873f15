"""Compares the reuse that was predicted at the decision with what the engine reports."""

from enum import StrEnum

from prefix_index.trust import Trust


class Accuracy(StrEnum):
    """How a prediction stood up, by the reason it may differ."""

    EXACT = "exact"
    RACED = "raced"
    LOWER_BOUND = "lower_bound"
    N_GREATER_1 = "n_greater_1"
    UNEXPLAINED = "unexplained"
    #: Predicted from chunks of text: a guess, whatever came of it.
    APPROXIMATE = "approximate"


def classify(predicted: int, actual: int, *, trust: Trust, raced: bool = False, choices: int = 1) -> Accuracy:
    """Class of one prediction.

    Args:
        predicted: Cached tokens confirmed at the decision.
        actual: Cached tokens the engine reports.
        trust: State of the rank's event stream at the decision.
        raced: An event on the request's chain came between decision and admission.
        choices: Completions asked for (`n`); later ones hit the first's blocks.
    """
    if predicted == actual:
        return Accuracy.EXACT
    if choices > 1 and actual > predicted:
        return Accuracy.N_GREATER_1
    if raced:
        return Accuracy.RACED
    if trust is not Trust.EXACT and actual > predicted:
        return Accuracy.LOWER_BOUND
    return Accuracy.UNEXPLAINED
