"""The breaker driven at random, beside the plainest account of the same rules, and the trials of many ranks."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from router.fleet.breaker import Breaker, BreakerSettings, BreakerState, Cause, Verdict
from router.placement.breakers import Breakers
from wire.ids import RequestId, Target, WorkerId

SETTINGS = BreakerSettings(failures=3, window=6, window_failures=4, open_s=4.0, max_open_s=10.0, memory_s=30.0)
TARGETS = tuple(Target(WorkerId(name), rank) for name in "ab" for rank in (0, 1))
CAUSES = (None, *(Cause(tenant, key) for tenant in ("", "a", "b") for key in (1, 2)))
REQUESTS = tuple(RequestId(f"r{number}") for number in range(6))


class BreakerMachine(RuleBasedStateMachine):
    """One breaker; its history is kept whole and read anew after each step."""

    def __init__(self):
        super().__init__()
        self.breaker = Breaker(SETTINGS)
        self.now_s = 0.0
        self.past: list[tuple[bool, str | None]] = []  # what counted since the memory began, and whose it was
        self.failed: dict[Cause, float] = {}
        self.row = 0
        self.state = BreakerState.CLOSED
        self.until_s = 0.0
        self.doublings = 0
        self.on_probation = False
        self.failed_at_s = None

    def told(self):
        if self.state is BreakerState.OPEN and self.now_s >= self.until_s:
            self.state = BreakerState.HALF_OPEN
        return self.state

    @rule(by_s=st.sampled_from([0.0, 0.5, 1.0, 4.0, 31.0]))
    def time_goes_on(self, by_s):
        self.now_s += by_s

    def is_bad(self):
        tenants = {whose for is_failure, whose in self.past if is_failure}
        if self.row < SETTINGS.failures and sum(is_failure for is_failure, _ in self.past) < SETTINGS.window_failures:
            return False
        (only,) = tenants if len(tenants) == 1 else (None,)
        return not only or {whose for _, whose in self.past} == {only}

    def is_known(self, cause):
        """Whether it failed already; it did now, where that was noticed."""
        before_s = self.failed.get(cause)
        self.failed[cause] = self.now_s
        return before_s is not None and self.now_s - before_s <= SETTINGS.memory_s

    @rule(verdict=st.sampled_from(list(Verdict)), cause=st.sampled_from(CAUSES))
    def a_request_ends(self, verdict, cause):
        self.breaker.judge(verdict, self.now_s, cause=cause)
        state, tenant = self.told(), None if cause is None else cause.tenant
        if verdict in {Verdict.NEUTRAL, Verdict.FULL} or state is BreakerState.OPEN:
            return
        if verdict is Verdict.GOOD:
            if state is BreakerState.HALF_OPEN:
                self.past = []
            self.past = [*self.past, (False, tenant)][-SETTINGS.window :]
            self.failed.pop(cause, None)
            self.row = self.doublings = 0
            self.state, self.on_probation = BreakerState.CLOSED, False
            return
        if cause is not None and self.is_known(cause):
            return
        is_old = self.failed_at_s is None or self.now_s - self.failed_at_s > SETTINGS.memory_s
        if is_old and state is BreakerState.CLOSED and not self.on_probation:
            self.past, self.row, self.doublings = [], 0, 0
        self.failed_at_s = self.now_s
        self.row += 1
        self.past = [*self.past, (True, tenant)][-SETTINGS.window :]
        if self.is_bad() or self.on_probation or state is BreakerState.HALF_OPEN:
            self.state, self.on_probation = BreakerState.OPEN, False
            self.until_s = self.now_s + min(SETTINGS.max_open_s, SETTINGS.open_s * 2**self.doublings)
            self.doublings += 1

    @rule()
    def a_probe_goes_well(self):
        self.breaker.probe(self.now_s)
        if self.told() is BreakerState.HALF_OPEN:
            self.state, self.on_probation = BreakerState.CLOSED, True
            self.past, self.row = [], 0

    @invariant()
    def both_tell_the_same(self):
        assert self.breaker.find_state(self.now_s) is self.told()
        assert self.breaker.admits(self.now_s) == (self.told() is not BreakerState.OPEN)

    @invariant()
    def whoever_is_out_is_doubted(self):
        if self.told() is not BreakerState.CLOSED:
            assert self.breaker.is_doubted(self.now_s)
            assert not self.breaker.is_clean(self.now_s)

    @invariant()
    def nobody_is_out_for_longer_than_the_limit(self):
        later_s = self.now_s + SETTINGS.max_open_s
        assert self.breaker.find_state(later_s) is not BreakerState.OPEN


class BreakersMachine(RuleBasedStateMachine):
    """Many ranks and the requests that try them: never more trials than allowed, none left at the end."""

    def __init__(self):
        super().__init__()
        self.breakers = Breakers(SETTINGS)
        self.now_s = 0.0
        self.running: dict[RequestId, Target] = {}
        self.known = set(TARGETS)

    @rule(by_s=st.sampled_from([0.5, 4.0, 61.0]))
    def time_goes_on(self, by_s):
        self.now_s += by_s
        self.breakers.sweep(self.known.__contains__, self.now_s)

    @rule(request=st.sampled_from(REQUESTS), rank=st.sampled_from(TARGETS))
    def a_request_begins(self, request, rank):
        self.begin(request, rank)

    def begin(self, request, rank):
        if request in self.running or rank in self.breakers.find_barred(self.now_s):
            return
        self.running[request] = rank
        self.breakers.begin(request, rank, self.now_s)

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(), verdict=st.sampled_from([*Verdict, None]), is_judged_first=st.booleans(),
        cause=st.sampled_from(CAUSES),
    )  # fmt: skip
    def a_request_ends(self, data, verdict, is_judged_first, cause):
        request = data.draw(st.sampled_from(sorted(self.running)))
        target = self.running.pop(request)
        if verdict is not None and is_judged_first:
            self.breakers.judge(target, verdict, self.now_s, cause=cause)
        self.breakers.end(request)
        if verdict is not None and not is_judged_first:
            self.breakers.judge(target, verdict, self.now_s, cause=cause)

    @rule(rank=st.sampled_from(TARGETS))
    def a_rank_fails_until_it_is_out(self, rank):
        for _ in range(SETTINGS.failures):
            self.breakers.judge(rank, Verdict.FAILED, self.now_s)

    @rule(rank=st.sampled_from(TARGETS), request=st.sampled_from(REQUESTS))
    def a_rank_that_is_out_is_tried_after_its_time(self, rank, request):
        self.now_s += SETTINGS.max_open_s
        self.begin(request, rank)

    @rule(worker=st.sampled_from(["a", "b"]))
    def a_probe_goes_well(self, worker):
        self.breakers.probe(WorkerId(worker), self.now_s)

    @rule(rank=st.sampled_from(TARGETS))
    def a_rank_comes_or_goes(self, rank):
        self.known ^= {rank}

    @invariant()
    def trials_are_counted(self):
        self.breakers.check_invariants()

    @invariant()
    def who_gets_nothing_earns_nothing(self):
        out = {target for target, state in self.breakers.find_states(self.now_s).items() if state != "closed"}
        assert out <= self.breakers.find_doubted(self.now_s)
        assert self.breakers.find_barred(self.now_s) <= out

    @invariant()
    def in_time_everyone_may_be_tried_again(self):
        if not self.running:
            assert not self.breakers.find_barred(self.now_s + SETTINGS.max_open_s)

    def teardown(self):
        for request in list(self.running):
            self.breakers.end(request)
        self.breakers.check_invariants()
        assert not self.breakers._trials


TestBreaker = BreakerMachine.TestCase
TestBreakers = BreakersMachine.TestCase
TestBreaker.settings = TestBreakers.settings = settings(max_examples=60, stateful_step_count=30)
