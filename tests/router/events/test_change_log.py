"""The last changes of a rank, asked for by position and time, bounded."""

from prefix_index import Change
from router.events.changes import ChangeLog, Evidence


def test_a_span_holds_what_was_recorded_in_it():
    log = ChangeLog()
    log.record(Change(stored=(1,)), 1.0)
    start = log.position
    log.record(Change(stored=(2, 3)), 2.0)
    log.record(Change(removed=(2,)), 3.0)
    log.record(Change(stored=(9,)), 9.0)
    assert log.find_since(start, until_s=3.0) == Evidence(stored=frozenset({2, 3}), removed=frozenset({2}))
    assert log.find_since(log.position, until_s=10.0) == Evidence()


def test_changes_of_nothing_are_not_kept():
    log = ChangeLog()
    log.record(Change(orphaned=3), 1.0)
    assert log.position == 0


def test_what_window_groups_and_other_tiers_gained_and_lost_is_kept_apart():
    log = ChangeLog()
    log.record(Change(touched=(1, 2)), 1.0)
    log.record(Change(stored=(3,), touched=(4,)), 1.0)
    log.record(Change(touched=(2,)), 1.0, is_gain=False)
    evidence = log.find_since(0, until_s=1.0)
    assert (evidence.gained, evidence.lost, evidence.stored) == ({1, 2, 4}, {2}, {3})


def test_a_cleared_cache_is_evidence():
    log = ChangeLog()
    log.record(Change(cleared=True), 1.0)
    assert log.find_since(0, until_s=1.0).cleared


def test_the_log_is_bounded_by_changes_and_by_hashes_and_guesses_nothing_about_what_fell_out():
    log = ChangeLog(max_changes=3, max_hashes=10)
    for block in range(6):
        log.record(Change(stored=(block,)), float(block))
    assert log.position == 6
    assert log.find_since(0, until_s=9.0).stored == {3, 4, 5}
    log.record(Change(stored=tuple(range(100, 120))), 7.0)
    assert log.find_since(0, until_s=9.0).stored == set(range(100, 120))
