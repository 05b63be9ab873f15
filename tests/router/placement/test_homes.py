"""A conversation's home is soft, forgotten after a pause, and there are only so many."""

import pytest

from router.placement.homes import Homes
from wire.ids import Target, WorkerId

A = Target(WorkerId("a"), 0)
B = Target(WorkerId("b"), 1)


@pytest.fixture
def homes():
    made = Homes(idle_ttl_s=60.0, max_homes=3)
    yield made
    made.check_invariants()


def test_the_first_placement_makes_a_home(homes):
    assert homes.find("s", 0.0) is None
    homes.propose("s", A, "r1", 0.0)
    assert homes.find("s", 60.0) == A


def test_no_session_has_no_home(homes):
    assert homes.find(None, 0.0) is None


def test_a_home_is_forgotten_after_its_pause(homes):
    homes.propose("s", A, "r1", 0.0)
    assert homes.find("s", 60.1) is None
    homes.propose("s", B, "r2", 60.1)
    assert homes.find("s", 60.1) == B


def test_each_request_at_home_renews_it(homes):
    homes.propose("s", A, "r1", 0.0)
    homes.propose("s", A, "r2", 50.0)
    assert homes.find("s", 100.0) == A
    homes.renew("s", 90.0)
    assert homes.find("s", 150.0) == A
    homes.renew("unknown", 90.0)
    assert len(homes) == 1


def test_a_placement_elsewhere_moves_the_home_only_when_settled(homes):
    homes.propose("s", A, "r1", 0.0)
    homes.propose("s", B, "r2", 1.0)
    assert homes.find("s", 1.0) == A
    homes.settle("s", B, 2.0)
    assert homes.find("s", 2.0) == B


def test_a_home_that_rests_on_a_failed_request_alone_is_withdrawn(homes):
    homes.propose("s", A, "r1", 0.0)
    homes.withdraw("s", "r2")
    assert homes.find("s", 0.0) == A
    homes.withdraw("s", "r1")
    assert homes.find("s", 0.0) is None
    homes.withdraw("s", "r1")


def test_a_settled_home_is_not_withdrawn(homes):
    homes.propose("s", A, "r1", 0.0)
    homes.settle("s", A, 1.0)
    homes.withdraw("s", "r1")
    assert homes.find("s", 1.0) == A


def test_the_longest_unused_home_goes_when_there_are_too_many(homes):
    for n, name in enumerate("abc"):
        homes.propose(name, A, f"r{n}", float(n))
    homes.propose("a", A, "r9", 3.0)
    homes.propose("d", A, "r10", 4.0)
    assert [name for name in "abcd" if homes.find(name, 4.0)] == ["a", "c", "d"]


def test_homes_on_lost_ranks_are_forgotten(homes):
    homes.propose("s", A, "r1", 0.0)
    homes.propose("t", B, "r2", 0.0)
    assert homes.forget_targets([A]) == 1
    assert homes.find("s", 0.0) is None
    assert homes.find("t", 0.0) == B


def test_idle_homes_are_swept(homes):
    homes.propose("s", A, "r1", 0.0)
    homes.propose("t", A, "r2", 30.0)
    assert homes.expire(61.0) == 1
    assert len(homes) == 1
    assert homes.expire(100.0) == 1
    assert homes.expire(100.0) == 0


def test_a_broken_bound_is_found():
    homes = Homes(idle_ttl_s=60.0, max_homes=1)
    homes.propose("s", A, "r1", 0.0)
    homes._max_homes = 0
    with pytest.raises(AssertionError, match="1 homes, 0 allowed"):
        homes.check_invariants()
