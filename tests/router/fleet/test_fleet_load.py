"""Reports are bounded, aged and kept apart from what the router placed."""

import pytest

from router.fleet.load import MAX_COUNT, OwnLoad, bound_count
from router.fleet.view import ReportedCounts, build_report


def report(**changes):
    given = dict.fromkeys(("waiting_tokens", "used_tokens", "capacity_tokens"))
    own = changes.pop("own", OwnLoad())
    counts = ReportedCounts(**{"running_requests": 0, "waiting_requests": 0, **given, **changes})
    return build_report(counts, own=own, now_s=10.0)


@pytest.mark.parametrize(("count", "bounded"), [(None, None), (-3, 0), (7, 7), (10**400, MAX_COUNT)])
def test_a_count_is_cut_to_what_can_be_true(count, bounded):
    assert bound_count(count) == bounded


def test_a_report_has_an_age_that_is_never_negative():
    assert report().age_s(12.5) == 2.5
    assert report().age_s(9.0) == 0.0


def test_requests_of_others_are_those_above_the_own():
    assert report(running_requests=3, waiting_requests=2, own=OwnLoad(open_requests=4)).foreign_requests() == 1
    assert report(running_requests=3, own=OwnLoad(open_requests=4)).foreign_requests() == 0


def test_tokens_of_others_are_those_above_the_own():
    assert report(waiting_tokens=900, own=OwnLoad(waiting_tokens=300)).foreign_waiting_tokens(50) == 600
    assert report(waiting_tokens=100, own=OwnLoad(waiting_tokens=300)).foreign_waiting_tokens(50) == 0


def test_tokens_not_reported_are_reckoned_from_requests():
    assert report(waiting_requests=3, own=OwnLoad(open_requests=1)).foreign_waiting_tokens(50) == 100
    assert report(running_requests=9, waiting_requests=3).foreign_waiting_tokens(50) == 150
