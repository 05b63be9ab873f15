"""Retries stay within the attempts of a request and the budget of all of them."""

from router.proxy.legs.retries import FLOOR, Retries, RetryLimits


def test_pauses_double_up_to_the_longest_and_chance_takes_a_part():
    limits = RetryLimits(max_attempts=9, backoff_s=0.1, max_backoff_s=0.5)
    retries = Retries(limits, lambda: 1.0)
    assert [retries.take(attempts) for attempts in (1, 2, 3, 4)] == [0.1, 0.2, 0.4, 0.5]
    assert Retries(limits, lambda: 0.25).take(1) == 0.025


def test_a_request_has_so_many_attempts():
    retries = Retries(RetryLimits(max_attempts=3), lambda: 0.5)
    assert retries.take(2) is not None
    assert retries.take(3) is None
    assert Retries(RetryLimits(max_attempts=1), lambda: 0.5).take(1) is None


def test_C19_a_fleet_that_refuses_everything_is_not_asked_several_times_for_each_request():
    retries = Retries(RetryLimits(max_attempts=3, budget_ratio=0.2), lambda: 0.0)
    sent = 0
    for _ in range(10_000):
        retries.count_request()
        attempts = 1
        while retries.take(attempts) is not None:
            attempts += 1
        sent += attempts
    assert sent <= 10_000 * 1.25 + FLOOR
    # It comes back with requests that need none.
    for _ in range(2_000):
        retries.count_request()
    assert retries.take(1) is not None
