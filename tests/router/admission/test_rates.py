"""Limits of a key: as much as it may in any minute, and no more, whatever the order of things."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from router.access.principal import KeyLimits
from router.admission import KeyRates
from router.admission.rates import MAX_DEBT_MINUTES, Limited, RateReason


def test_requests_come_back_evenly():
    rates, limits = KeyRates(), KeyLimits(requests_per_minute=60)
    for _ in range(60):
        assert rates.begin("k", limits, 0.0) is None
    assert rates.begin("k", limits, 0.0) == Limited(RateReason.REQUESTS, 1)
    assert rates.begin("k", limits, 1.0) is None
    assert rates.begin("k", limits, 1.0) is not None


def test_an_answer_that_went_over_is_paid_off_before_the_next_request():
    rates, limits = KeyRates(), KeyLimits(tokens_per_minute=600)
    assert rates.begin("k", limits, 0.0) is None
    rates.spend("k", 1_200, 0.0)
    assert rates.begin("k", limits, 0.0) == Limited(RateReason.TOKENS, 61)
    assert rates.begin("k", limits, 59.0) is not None
    assert rates.begin("k", limits, 61.0) is None


def test_an_engine_that_counts_beyond_all_bounds_bars_a_key_for_an_hour_at_most():
    rates, limits = KeyRates(), KeyLimits(tokens_per_minute=600)
    assert rates.begin("k", limits, 0.0) is None
    for _ in range(3):
        rates.spend("k", 1 << 60, 0.0)
    assert rates.begin("k", limits, 0.0) == Limited(RateReason.TOKENS, 60 * MAX_DEBT_MINUTES + 1)
    assert rates.begin("k", limits, 60.0 * MAX_DEBT_MINUTES + 1) is None


def test_requests_under_way_are_bounded_and_their_ends_make_room():
    rates, limits = KeyRates(), KeyLimits(concurrent_requests=2)
    assert rates.begin("k", limits, 0.0) is None
    assert rates.begin("k", limits, 0.0) is None
    assert rates.begin("k", limits, 0.0) == Limited(RateReason.CONCURRENT, 1)
    assert rates.begin("other", limits, 0.0) is None
    rates.end("k")
    assert rates.begin("k", limits, 0.0) is None


def test_an_end_too_many_is_our_bug_and_said():
    with pytest.raises(RuntimeError, match="not under way"):
        KeyRates().end("k")


def test_a_changed_limit_counts_at_once_and_who_is_gone_is_forgotten():
    rates = KeyRates()
    for _ in range(2):
        assert rates.begin("k", KeyLimits(requests_per_minute=2), 0.0) is None
    assert rates.begin("k", KeyLimits(requests_per_minute=2), 0.0) is not None
    assert rates.begin("k", KeyLimits(requests_per_minute=3), 0.0) is None
    assert rates.begin("k", KeyLimits(), 0.0) is None
    rates.forget(frozenset())
    assert rates.count_running("k") == 4
    for _ in range(4):
        rates.end("k")
    rates.forget(frozenset())
    assert rates._uses == {}


class Rates(RuleBasedStateMachine):
    """Never more under way than may be, never fewer than none, never more in a minute than a bucket and its filling."""

    @initialize(requests=st.integers(1, 20), tokens=st.integers(1, 1_000), concurrent=st.integers(1, 4))
    def begin(self, requests, tokens, concurrent):
        self.rates, self.now_s = KeyRates(), 0.0
        self.limits = KeyLimits(requests_per_minute=requests, tokens_per_minute=tokens, concurrent_requests=concurrent)
        self.running, self.passed_s, self.debt = 0, [], 0.0

    @rule(by_s=st.floats(0, 90))
    def wait(self, by_s):
        self.now_s += by_s
        self.debt = max(0.0, self.debt - by_s * self.limits.tokens_per_minute / 60)

    @rule()
    def ask(self):
        limited = self.rates.begin("k", self.limits, self.now_s)
        if limited is None:
            assert self.running < self.limits.concurrent_requests
            # Full at the start, so that debt beyond a minute's worth bars the way.
            assert self.debt < self.limits.tokens_per_minute + 1e-6
            self.running += 1
            self.passed_s.append(self.now_s)
            recent = [at_s for at_s in self.passed_s if at_s > self.now_s - 60]
            assert len(recent) <= 2 * self.limits.requests_per_minute
        else:
            assert limited.retry_after_s >= 1

    @rule(tokens=st.integers(0, 2_000))
    def spend(self, tokens):
        if self.passed_s:
            self.rates.spend("k", tokens, self.now_s)
            # A bucket that is full stands one minute above nothing.
            self.debt = min(self.debt + tokens, (1 + MAX_DEBT_MINUTES) * self.limits.tokens_per_minute)

    @rule()
    def finish(self):
        if self.running:
            self.rates.end("k")
            self.running -= 1

    @invariant()
    def counts_agree(self):
        if hasattr(self, "rates"):
            assert self.rates.count_running("k") == self.running >= 0


Rates.TestCase.settings = settings(max_examples=60, stateful_step_count=50)
TestRates = Rates.TestCase
