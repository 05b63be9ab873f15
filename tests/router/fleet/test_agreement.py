"""A run of predictions that differ has one cause, and is told once."""

import pytest

from router.fleet.agreement import RUN, Agreement, Disagreement
from wire.ids import Target, WorkerId

RANK, OTHER = Target(WorkerId("a"), 0), Target(WorkerId("a"), 1)


def feed(agreement, *pairs, rank=RANK):
    return [agreement.record(rank, predicted_tokens=predicted, actual_tokens=actual) for predicted, actual in pairs]


@pytest.mark.parametrize(
    ("pair", "kind"),
    [((0, 64), Disagreement.BLIND), ((64, 0), Disagreement.GHOST), ((64, 16), Disagreement.OFF)],
)
def test_A19_a_run_of_one_kind_is_told_once_by_its_kind(pair, kind):
    agreement = Agreement()
    assert feed(agreement, *[pair] * (RUN - 1)) == [None] * (RUN - 1)
    assert agreement.find(RANK) is None
    assert feed(agreement, pair, pair) == [kind, None]
    assert agreement.find_all() == {RANK: kind}
    assert agreement.find(OTHER) is None


def test_a_run_of_several_kinds_is_off():
    agreement = Agreement(run=3)
    assert feed(agreement, (0, 64), (64, 0), (0, 64)) == [None, None, Disagreement.OFF]


def test_prompts_that_are_new_to_both_say_nothing():
    agreement = Agreement(run=2)
    assert feed(agreement, (0, 16), (0, 0), (0, 16))[-1] is Disagreement.BLIND


def test_one_right_prediction_of_something_ends_a_run():
    agreement = Agreement(run=2)
    assert feed(agreement, (0, 16), (16, 16), (0, 16)) == [None, None, None]
    feed(agreement, (0, 16), (16, 16))
    assert agreement.find_all() == {}


def test_an_engine_that_is_another_one_now_starts_afresh():
    agreement = Agreement(run=1)
    feed(agreement, (0, 16))
    feed(agreement, (0, 16), rank=OTHER)
    agreement.forget([RANK])
    assert agreement.find_all() == {OTHER: Disagreement.BLIND}
