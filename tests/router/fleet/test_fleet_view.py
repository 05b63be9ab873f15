"""The fleet is replaced whole; what stays keeps its report and memory."""

import pytest

from router.fleet.load import OwnLoad
from router.fleet.rank import RankFacts
from router.fleet.view import MAX_GONE_MODELS, MODEL_MEMORY_S, Fleet, ReportedCounts, build_report
from wire.ids import Target, WorkerId

A, B = (Target(WorkerId(name), 0) for name in "ab")


def facts(target, **changes):
    return RankFacts(target=target, url="http://x", **{"models": ("toy",), **changes})


def report(used_tokens=None, capacity_tokens=None):
    counts = ReportedCounts(
        running_requests=0,
        waiting_requests=0,
        waiting_tokens=None,
        used_tokens=used_tokens,
        capacity_tokens=capacity_tokens,
    )
    return build_report(counts, own=OwnLoad(), now_s=0.0)


def test_ranks_that_vanish_are_named_and_come_back_empty():
    fleet = Fleet()
    assert fleet.replace([facts(A), facts(B)]) == ()
    fleet.find(A).report = report()
    assert fleet.replace([facts(B)]) == (A,)
    assert A not in fleet
    assert fleet.find(A) is None
    fleet.replace([facts(A), facts(B)])
    assert fleet.find(A).report is None
    assert len(fleet) == 2


def test_ranks_that_stay_keep_what_is_known_of_them_and_take_new_facts():
    fleet = Fleet()
    fleet.replace([facts(A)])
    fleet.find(A).report = report(used_tokens=5)
    fleet.replace([facts(A, healthy=False)])
    assert fleet.find(A).report.used_tokens == 5
    assert not fleet.find(A).facts.accepts_requests()


def test_only_ranks_that_serve_the_model_are_found():
    fleet = Fleet()
    fleet.replace([facts(A, models=("x", "y")), facts(B, models=("z",), draining=True)])
    assert [rank.facts.target for rank in fleet.find_serving("y")] == [A]
    assert [rank.facts.target for rank in fleet.find_serving(None)] == [A, B]
    assert fleet.find_serving("w") == []


@pytest.mark.parametrize(("state", "accepts"), [({}, True), ({"healthy": False}, False), ({"draining": True}, False)])
def test_a_rank_takes_requests_when_healthy_and_not_draining(state, accepts):
    assert facts(A, **state).accepts_requests() is accepts


@pytest.mark.parametrize(
    ("known", "reported", "capacity"),
    [(None, None, None), (100, None, 100), (100, 0, 100), (100, 200, 200), (None, 200, 200)],
)
def test_the_capacity_is_the_reported_one_else_that_of_the_facts(known, reported, capacity):
    fleet = Fleet()
    fleet.replace([facts(A, capacity_tokens=known)])
    rank = fleet.find(A)
    assert rank.find_capacity_tokens() == known
    rank.report = report(capacity_tokens=reported)
    assert rank.find_capacity_tokens() == capacity


def test_what_is_resident_is_reported_or_was_sent_there_up_to_the_capacity():
    fleet = Fleet()
    fleet.replace([facts(A)])
    rank = fleet.find(A)
    assert rank.find_resident_tokens() == 0
    rank.recent.record(work_s=1.0, new_tokens=500, now_s=0.0)
    assert rank.find_resident_tokens() == 500
    rank.report = report(used_tokens=800)
    assert rank.find_resident_tokens() == 800
    rank.report = report(used_tokens=None, capacity_tokens=300)
    assert rank.find_resident_tokens() == 300


def test_a_model_whose_last_rank_left_is_awaited_for_a_while_and_not_where_it_is_served():
    fleet = Fleet()
    fleet.replace([facts(A, models=("x", "y")), facts(B, models=("y",))], 0.0)
    assert not fleet.is_awaited("x", 0.0)
    fleet.replace([facts(B, models=("y",))], 10.0)
    assert [fleet.is_awaited(name, 10.0) for name in ("x", "y", "z", None)] == [True, False, False, False]
    fleet.replace([facts(B, models=("y",))], 20.0)
    assert fleet.is_awaited("x", 9.0 + MODEL_MEMORY_S)
    assert not fleet.is_awaited("x", 10.0 + MODEL_MEMORY_S)
    fleet.replace([facts(A, models=("x",))], 30.0)
    assert not fleet.is_awaited("x", 30.0)
    assert fleet.is_awaited("y", 30.0)


def test_models_that_are_awaited_are_bounded_the_oldest_is_forgotten():
    fleet = Fleet()
    for number in range(MAX_GONE_MODELS + 2):
        fleet.replace([facts(A, models=(str(number),))], 1.0)
    assert not fleet.is_awaited("0", 1.0)
    assert all(fleet.is_awaited(str(number), 1.0) for number in range(1, MAX_GONE_MODELS + 1))
