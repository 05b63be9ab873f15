"""The last changes of a rank, asked for by position and time, bounded."""

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_index import Change
from prefix_index.runs import RunOutcome
from router.events.changes import PAGE_CHANGES, PAGE_HASHES, ChangeLog, Evidence


def test_a_span_holds_what_was_recorded_in_it():
    log = ChangeLog()
    log.record(Change(stored=(1,)), 1.0)
    start = log.position
    log.record(Change(stored=(2, 3)), 2.0)
    log.record(Change(removed=(2,)), 3.0)
    log.record(Change(stored=(9,)), 9.0)
    assert log.find_since(start, until_s=3.0) == Evidence(stored=frozenset({2, 3}), removed=frozenset({2}))
    assert log.find_since(log.position, until_s=10.0) == Evidence()


def test_a_run_is_one_change():
    log = ChangeLog()
    log.record_run(RunOutcome(payloads=3, stored=(1, 2), removed=(1,), gained=(4,), lost=(5,), clears=1), 1.0)
    log.record_run(RunOutcome(payloads=3, orphaned=2), 1.0)
    assert log.position == 1
    evidence = log.find_since(0, until_s=1.0)
    assert (evidence.stored, evidence.removed, evidence.gained, evidence.lost) == ({1, 2}, {1}, {4}, {5})
    assert evidence.cleared


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
    assert not log.find_since(1, until_s=1.0).cleared
    assert not log.find_since(0, until_s=0.5).cleared


def test_a_place_told_of_again_after_the_span_still_counts_within_it():
    log = ChangeLog()
    for at_s in (1.0, 2.0, 9.0):
        log.record(Change(stored=(7,)), at_s)
    assert 7 in log.find_since(1, until_s=3.0).stored
    log.record(Change(removed=(7,)), 10.0)
    assert 7 not in log.find_since(0, until_s=9.5).removed


def test_what_is_recorded_after_evidence_was_taken_does_not_change_it():
    log = ChangeLog()
    log.record(Change(stored=(1,)), 1.0)
    evidence = log.find_since(0, until_s=5.0)
    log.record(Change(stored=(1, 2), removed=(1,)), 2.0)
    assert (evidence.stored, evidence.removed) == ({1}, frozenset())


def test_the_log_is_bounded_by_hashes_and_by_pages_and_guesses_nothing_about_what_fell_out():
    log = ChangeLog(max_hashes=PAGE_HASHES, max_pages=2)
    for block in range(3 * PAGE_CHANGES):
        log.record(Change(stored=(block,)), float(block))
    assert log.position == 3 * PAGE_CHANGES
    assert log.find_since(0, until_s=1e9).stored == set(range(PAGE_CHANGES, 3 * PAGE_CHANGES))
    log.record(Change(stored=tuple(range(10_000, 10_000 + PAGE_HASHES))), 1e6)
    assert log.find_since(0, until_s=1e9).stored == set(range(10_000, 10_000 + PAGE_HASHES))


class ListedLog:
    """The same in the plainest way."""

    def __init__(self):
        self.entries = []

    def find_since(self, position, until_s):
        span = [change for change, at_s in self.entries[position:] if at_s <= until_s]
        return {block for change in span for block in change.stored}, {b for change in span for b in change.removed}


places = st.lists(st.integers(0, 12), max_size=4).map(tuple)


@given(st.lists(st.tuples(places, places, st.integers(0, 2)), max_size=40), st.data())
@settings(max_examples=200, deadline=None)
def test_any_span_is_what_a_plain_list_of_changes_says(told, data):
    log, listed, now_s = ChangeLog(), ListedLog(), 0.0
    for stored, removed, pause_s in told:
        now_s += pause_s
        change = Change(stored=stored, removed=removed)
        log.record(change, now_s)
        if stored or removed:
            listed.entries.append((change, now_s))
    position = data.draw(st.integers(0, len(listed.entries)))
    until_s = data.draw(st.integers(0, int(now_s) + 1))
    evidence, (stored, removed) = log.find_since(position, until_s), listed.find_since(position, until_s)
    assert (evidence.stored, evidence.removed) == (stored, removed)
    assert [place in evidence.stored for place in range(13)] == [place in stored for place in range(13)]
    asked = data.draw(places)
    assert evidence.stored.isdisjoint(asked) == stored.isdisjoint(asked)
    assert (bool(evidence.stored), len(evidence.removed)) == (bool(stored), len(removed))
