"""A breaker opens for what an engine did, and for nothing else; it closes by a trial or by a probe."""

import pytest

from router.fleet.breaker import MAX_CAUSES, MAX_TRIES, Breaker, BreakerSettings, BreakerState, Cause, Verdict

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
SETTINGS = BreakerSettings()


@pytest.fixture
def breaker():
    return Breaker(SETTINGS)


def fail(breaker, times, now_s=0.0):
    for _ in range(times):
        breaker.judge(Verdict.FAILED, now_s)


def test_it_opens_at_so_many_failures_in_a_row_and_not_before(breaker):
    fail(breaker, SETTINGS.failures - 1)
    assert breaker.find_state(0.0) is CLOSED
    fail(breaker, 1)
    assert breaker.find_state(0.0) is OPEN
    assert not breaker.admits(SETTINGS.open_s - 0.001)


def test_one_request_that_went_well_ends_the_row(breaker):
    for _ in range(2):
        fail(breaker, SETTINGS.failures - 1)
        breaker.judge(Verdict.GOOD, 0.0)
    assert breaker.find_state(0.0) is CLOSED


def test_it_opens_where_half_of_the_last_requests_failed_though_never_many_in_a_row(breaker):
    opened_after = None
    for number in range(SETTINGS.window + 2):
        breaker.judge(Verdict.FAILED if number % 2 == 0 else Verdict.GOOD, 0.0)
        if opened_after is None and breaker.find_state(0.0) is OPEN:
            opened_after = number + 1
    assert opened_after == 2 * SETTINGS.window_failures - 1


@pytest.mark.parametrize("verdict", [Verdict.NEUTRAL, Verdict.FULL])
def test_D01_neither_mistakes_of_clients_nor_a_full_queue_open_it(breaker, verdict):
    for _ in range(200):
        breaker.judge(verdict, 0.0)
    assert breaker.find_state(0.0) is CLOSED
    assert breaker.admits(0.0)


def test_mistakes_of_clients_do_not_end_a_row_of_failures_either(breaker):
    fail(breaker, SETTINGS.failures - 1)
    breaker.judge(Verdict.NEUTRAL, 0.0)
    fail(breaker, 1)
    assert breaker.find_state(0.0) is OPEN


def test_a_full_queue_counts_for_as_long_as_the_engine_asks_within_a_limit(breaker):
    breaker.judge(Verdict.FULL, 0.0, retry_after_s=2.0)
    assert breaker.is_full(1.9)
    assert not breaker.is_full(2.0)
    breaker.judge(Verdict.FULL, 0.0, retry_after_s=3_600.0)
    assert not breaker.is_full(SETTINGS.max_full_s)


def test_after_its_time_it_lets_one_request_try_and_that_one_closes_it(breaker):
    fail(breaker, SETTINGS.failures)
    now_s = SETTINGS.open_s
    assert breaker.find_state(now_s) is HALF_OPEN
    assert breaker.admits(now_s)
    breaker.trials += 1
    assert not breaker.admits(now_s)
    breaker.judge(Verdict.GOOD, now_s)
    breaker.trials -= 1
    assert breaker.find_state(now_s) is CLOSED
    assert not breaker.is_doubted(now_s)


def test_a_trial_that_fails_opens_it_for_twice_as_long_up_to_a_limit(breaker):
    fail(breaker, SETTINGS.failures)
    now_s, waits = 0.0, []
    for _ in range(6):
        begun_s = now_s
        while breaker.find_state(now_s) is OPEN:
            now_s += 0.5
        waits.append(now_s - begun_s)
        breaker.judge(Verdict.FAILED, now_s)
    assert waits == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_D11_a_probe_closes_it_without_any_request(breaker):
    fail(breaker, SETTINGS.failures)
    breaker.probe(SETTINGS.open_s - 0.1)
    assert breaker.find_state(SETTINGS.open_s - 0.1) is OPEN
    breaker.probe(SETTINGS.open_s)
    assert breaker.find_state(SETTINGS.open_s) is CLOSED


def test_a_probe_does_not_speak_for_a_request_that_is_trying(breaker):
    fail(breaker, SETTINGS.failures)
    breaker.trials += 1
    breaker.probe(SETTINGS.open_s)
    assert breaker.find_state(SETTINGS.open_s) is HALF_OPEN


def test_closed_by_a_probe_it_is_on_probation_one_failure_opens_it_for_longer(breaker):
    fail(breaker, SETTINGS.failures)
    breaker.probe(5.0)
    assert breaker.is_doubted(5.0)
    fail(breaker, 1, 5.0)
    assert breaker.find_state(5.0 + 9.9) is OPEN
    assert breaker.find_state(5.0 + 10.0) is HALF_OPEN


def test_a_request_that_goes_well_ends_probation_and_the_doubling(breaker):
    fail(breaker, SETTINGS.failures)
    breaker.probe(5.0)
    breaker.judge(Verdict.GOOD, 5.0)
    assert not breaker.is_doubted(5.0)
    fail(breaker, SETTINGS.failures, 6.0)
    assert breaker.find_state(6.0 + SETTINGS.open_s) is HALF_OPEN


def test_requests_from_before_that_end_while_it_is_open_change_nothing(breaker):
    fail(breaker, SETTINGS.failures)
    fail(breaker, 50, 4.0)
    breaker.judge(Verdict.GOOD, 4.5)
    assert breaker.find_state(4.9) is OPEN
    assert breaker.find_state(5.0) is HALF_OPEN
    assert breaker.opened == 1


def test_failures_far_apart_do_not_add_up(breaker):
    for number in range(20):
        fail(breaker, 1, number * (SETTINGS.memory_s + 1))
    assert breaker.find_state(20 * (SETTINGS.memory_s + 1)) is CLOSED


def test_a_rank_that_fails_again_and_again_is_doubted_before_it_opens_and_not_for_one_failure(breaker):
    fail(breaker, 1)
    assert not breaker.is_doubted(0.0)
    fail(breaker, 1)
    assert breaker.is_doubted(0.0)
    assert not breaker.is_doubted(SETTINGS.memory_s + 1)


def causes(count, tenant=""):
    return [Cause(tenant, f"{tenant}{number}") for number in range(count)]


def fail_by(breaker, *whose, now_s=0.0):
    for cause in whose:
        breaker.judge(Verdict.FAILED, now_s, cause=cause)


def test_failures_of_one_cause_count_once_however_many_and_those_of_others_do(breaker):
    one, *others = causes(SETTINGS.failures)
    fail_by(breaker, *[one] * 100)
    assert breaker.find_state(0.0) is CLOSED
    assert not breaker.is_doubted(0.0)
    fail_by(breaker, *others[:-1])
    assert breaker.find_state(0.0) is CLOSED
    fail_by(breaker, others[-1])
    assert breaker.find_state(0.0) is OPEN


def test_a_cause_counts_again_once_it_went_well_or_was_quiet_for_long(breaker):
    whose = causes(SETTINGS.failures - 1)
    fail_by(breaker, *whose)
    breaker.judge(Verdict.GOOD, 0.0, cause=whose[0])
    fail_by(breaker, *whose[1:])
    assert not breaker.is_doubted(0.0)
    fail_by(breaker, whose[0], Cause("", "x"))
    assert breaker.is_doubted(0.0)
    later_s = SETTINGS.memory_s + 1.0
    fail_by(breaker, *causes(SETTINGS.failures), now_s=later_s)
    assert breaker.find_state(later_s) is OPEN


def test_a_cause_that_never_rests_is_never_news_and_keeps_no_old_failure_alive(breaker):
    one, *others = causes(SETTINGS.failures - 1)
    fail_by(breaker, *others)
    for second in range(0, 200, 10):
        fail_by(breaker, one, now_s=float(second))
    assert not breaker.is_clean(200.0)
    fail_by(breaker, Cause("", "x"), now_s=200.0)
    assert breaker.find_state(200.0) is CLOSED
    assert breaker.is_clean(200.0 + SETTINGS.memory_s + 1.0)


def test_failures_that_no_request_brought_about_count_each(breaker):
    fail_by(breaker, *[None] * SETTINGS.failures)
    assert breaker.find_state(0.0) is OPEN


def test_a_trial_by_what_had_failed_before_says_nothing_and_by_another_it_opens_again(breaker):
    whose = causes(SETTINGS.failures)
    fail_by(breaker, *whose)
    now_s = SETTINGS.open_s
    fail_by(breaker, whose[0], now_s=now_s)
    assert breaker.find_state(now_s) is HALF_OPEN
    fail_by(breaker, Cause("", "x"), now_s=now_s)
    assert breaker.find_state(now_s) is OPEN


def test_on_probation_what_had_failed_before_opens_nothing(breaker):
    whose = causes(SETTINGS.failures)
    fail_by(breaker, *whose)
    now_s = SETTINGS.open_s
    breaker.probe(now_s)
    fail_by(breaker, *whose, now_s=now_s)
    assert breaker.find_state(now_s) is CLOSED
    fail_by(breaker, Cause("", "x"), now_s=now_s)
    assert breaker.find_state(now_s) is OPEN


def test_one_tenant_opens_nothing_while_others_are_served_and_does_once_they_are_not(breaker):
    for cause in causes(3 * SETTINGS.window, "a"):
        breaker.judge(Verdict.GOOD, 0.0, cause=Cause("b", "b"))
        fail_by(breaker, cause)
    assert breaker.find_state(0.0) is CLOSED
    fail_by(breaker, *causes(SETTINGS.window, "c"))
    assert breaker.find_state(0.0) is OPEN


def test_a_rank_that_fails_its_only_tenant_opens(breaker):
    fail_by(breaker, *causes(SETTINGS.failures, "a"))
    assert breaker.find_state(0.0) is OPEN


def test_failures_of_nobody_and_of_one_tenant_open_it_though_others_were_served(breaker):
    breaker.judge(Verdict.GOOD, 0.0, cause=Cause("b", "b"))
    fail_by(breaker, *causes(SETTINGS.failures - 1, "a"))
    assert breaker.find_state(0.0) is CLOSED
    fail_by(breaker, None)
    assert breaker.find_state(0.0) is OPEN


def test_a_cause_goes_elsewhere_after_a_few_failures_until_they_are_old_or_it_went_well(breaker):
    one, other = causes(2)
    fail_by(breaker, *[one] * (MAX_TRIES - 1))
    assert not breaker.is_tried(one, 0.0)
    fail_by(breaker, one)
    assert breaker.is_tried(one, SETTINGS.memory_s)
    assert not breaker.is_tried(one, SETTINGS.memory_s + 1.0)
    assert not breaker.is_tried(other, 0.0)
    breaker.judge(Verdict.GOOD, 0.0, cause=one)
    assert not breaker.is_tried(one, 0.0)


def test_causes_are_bounded_the_one_that_failed_longest_ago_is_forgotten():
    breaker, whose = Breaker(BreakerSettings(window_failures=SETTINGS.window)), causes(MAX_CAUSES)
    for cause in whose:
        fail_by(breaker, cause, cause)
        breaker.judge(Verdict.GOOD, 0.0, cause=Cause("", "good"))
    fail_by(breaker, whose[0], Cause("", "x"))
    assert breaker.is_tried(whose[0], 0.0)
    assert not breaker.is_tried(whose[1], 0.0)
