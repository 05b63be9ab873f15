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
    #: One block less than predicted, where events leave open whether it is the prompt's (keys of token pairs).
    UPPER_BOUND = "upper_bound"
    #: Predicted from groups that the engine's events do not tell of; the answer corrected what is believed.
    BELIEVED = "believed"
    #: Predicted from chunks of text: a guess, whatever came of it.
    APPROXIMATE = "approximate"


def classify(
    predicted: int,
    actual: int,
    *,
    trust: Trust,
    raced: bool = False,
    choices: int = 1,
    slack_tokens: int = 0,
    believed: bool = False,
) -> Accuracy:
    """Class of one prediction.

    Args:
        predicted: Cached tokens confirmed at the decision.
        actual: Cached tokens the engine reports.
        trust: State of the rank's event stream at the decision.
        raced: An event on the request's chain came between decision and admission.
        choices: Completions asked for (`n`); later ones hit the first's blocks.
        slack_tokens: Tokens that may be too many, by what the rank's events leave open.
        believed: The prediction rests on groups that the rank's events do not tell of.
    """
    if predicted == actual:
        return Accuracy.EXACT
    if choices > 1 and actual > predicted:
        return Accuracy.N_GREATER_1
    if raced:
        return Accuracy.RACED
    if trust is not Trust.EXACT and actual > predicted:
        return Accuracy.LOWER_BOUND
    if 0 < predicted - actual <= slack_tokens:
        return Accuracy.UPPER_BOUND
    return Accuracy.BELIEVED if believed else Accuracy.UNEXPLAINED
