"""Paced sessions load their ranks between their requests."""

import pytest

from router.config.policy import Coefficients
from router.placement.live import HALVE_AT, LiveSessions, LiveShare, PausedSessions
from wire.ids import Target, WorkerId

A, B = (Target(WorkerId(name), 0) for name in "ab")


@pytest.fixture
def live():
    made = LiveSessions(idle_s=60.0, max_sessions=3)
    yield made
    made.check_invariants()


def test_a_session_counts_on_its_rank_until_it_paused_for_too_long(live):
    live.store("s", A, 5_000, "r1", 0.0)
    live.expire(60.0)
    assert live.share(A).tokens == 5_000
    live.renew("s", 50.0)
    live.expire(110.0)
    assert live.share(A).tokens == 5_000
    live.expire(111.0)
    assert (live.share(A), len(live)) == (LiveShare(), 0)


def test_a_session_that_grows_or_moves_counts_once(live):
    live.store("s", A, 5_000, "r1", 0.0)
    live.store("s", A, 7_000, "r2", 1.0)
    assert live.share(A).tokens == 7_000
    live.store("s", B, 8_000, "r3", 2.0)
    assert (live.share(A).tokens, live.share(B).tokens) == (0, 8_000)


def test_what_a_failed_request_brought_goes_with_it_and_nothing_else(live):
    live.store("s", A, 5_000, "r1", 0.0)
    live.withdraw("s", "r0")
    assert live.share(A).tokens == 5_000
    live.withdraw("s", "r1")
    live.withdraw("s", "r1")
    assert live.share(A).tokens == 0


def test_the_longest_unused_session_goes_when_there_are_too_many(live):
    for n in range(4):
        live.store(f"s{n}", A, 1_000, f"r{n}", float(n))
    assert live.find("s0") is None
    assert live.share(A).tokens == 3_000


def test_sessions_on_lost_ranks_go_and_changes_are_told(live):
    live.store("s", A, 5_000, "r1", 0.0)
    live.store("t", B, 5_000, "r2", 0.0)
    live.touched.clear()
    live.forget_targets([A])
    assert (live.share(A).tokens, live.share(B).tokens) == (0, 5_000)
    assert live.touched == {A}


def test_a_session_pauses_from_the_end_of_its_last_request_until_it_is_placed_again(live):
    live.store("s", A, 5_000, "r1", 0.0)
    assert live.share(A).paused == PausedSessions()
    live.pause("s", "r0", 1.0)
    assert live.share(A).paused == PausedSessions()
    live.pause("s", "r1", 2.0)
    live.pause("s", "r1", 9.0)
    assert live.share(A).paused == PausedSessions(1, 5_000)
    live.store("s", B, 6_000, "r2", 12.0)
    assert live.share(A).paused == live.share(B).paused == PausedSessions()
    live.pause("s", "r2", 13.0)
    live.withdraw("s", "r2")
    assert live.share(B).paused == PausedSessions()


def test_the_rate_of_returns_is_that_of_late():
    """Whatever the traffic was before: counts are halved, and pauses that end by themselves are seconds without one."""
    live, clock_s = LiveSessions(idle_s=60.0, max_sessions=9), [0.0]

    def turn(n, pause_s):
        live.store("s", A, 1_000, f"r{n}", clock_s[0])
        live.pause("s", f"r{n}", clock_s[0])
        clock_s[0] += pause_s

    assert live.return_rate_per_s == 1 / 15
    for n in range(2 * int(HALVE_AT)):
        turn(n, 5.0)
    assert live.return_rate_per_s == pytest.approx(1 / 5, rel=0.01)
    for n in range(6 * int(HALVE_AT)):
        turn(n, 50.0)
    assert live.return_rate_per_s == pytest.approx(1 / 50, rel=0.05)


def test_a_pause_that_ends_by_itself_lowers_the_rate_of_returns_and_a_long_request_does_not(live):
    live.store("s", A, 1_000, "r1", 0.0)
    live.expire(70.0)
    assert (len(live), live.return_rate_per_s) == (0, 1 / 15)
    live.store("s", A, 1_000, "r2", 70.0)
    live.pause("s", "r2", 80.0)
    live.expire(200.0)
    assert live.return_rate_per_s == 16 / (16 * 15 + 120)


def test_sums_that_differ_from_the_sessions_are_found():
    live = LiveSessions(idle_s=60.0, max_sessions=3)
    live.store("s", A, 5_000, "r1", 0.0)
    live.find("s").is_paused = True
    with pytest.raises(AssertionError, match="counted"):
        live.check_invariants()


def test_new_sessions_go_where_fewer_tokens_live_though_nothing_runs_anywhere(make_world, ranks):
    world = make_world()
    world.fleet(ranks, capacity_tokens=200_000)
    counts = dict.fromkeys(ranks, 0)
    for n in range(24):
        counts[world.serve(f"r{n}", n * 1.0, session=f"s{n}", prompt_tokens=60_000)] += 1
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_session_whose_home_is_overfull_stays_unless_it_may_rebalance(make_world, ranks):
    for ratio, stays in ((0.0, True), (1.0, False)):
        world = make_world(costs=Coefficients(rebalance_ratio=ratio))
        world.fleet(ranks[:1], capacity_tokens=100_000)
        for n in range(6):
            world.serve(f"r{n}", n * 1.0, session=f"s{n}", prompt_tokens=40_000)
        world.fleet(ranks[:2], 10.0, capacity_tokens=100_000)
        again = world.arrive("again", 11.0, session="s0", prompt_tokens=41_000, overlaps={ranks[0]: 40_000})
        assert (again.target == ranks[0]) is stays
