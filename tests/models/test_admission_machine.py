"""The queue under any order of arrivals, departures and places: bounded, fair, nobody lost and nobody starved."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router.admission import AdmissionQueue, QueueSettings
from router.admission.order import FLOOR_EVERY
from wire.ids import RequestId

TENANTS = ("a", "b", "c")
NAMES = ("m", "n")
MAX_COST = 1_000


class Admissions(RuleBasedStateMachine):
    """A fleet of a few places for each model, and its queue."""

    @initialize(max_waiting=st.integers(1, 12), places=st.integers(1, 3), weight=st.sampled_from([1.0, 3.0]))
    def begin(self, max_waiting, places, weight):
        self.weights = dict.fromkeys(TENANTS, 1.0) | {"a": weight}
        self.queue = AdmissionQueue(QueueSettings(max_waiting=max_waiting, weights=self.weights, aging_s=5.0))
        self.places, self.max_waiting = places, max_waiting
        self.running = {name: [] for name in NAMES}
        self.waiting, self.ended = {}, set()
        self.now_s, self.number = 0.0, 0
        #: Places given since a request of a lower priority had waited too long.
        self.passed_over = Counter()
        #: Work given to each tenant, under a name and a priority, while the same tenants waited.
        self.served, self.backlogged = {}, {}

    def snapshot(self, name, priority):
        return frozenset(w.tenant for n, w in self.waiting.values() if n == name and w.priority == priority)

    def note_backlogs(self):
        """Shares are compared while the very same tenants wait; a change begins a new interval."""
        for name in NAMES:
            for priority in range(3):
                now = self.snapshot(name, priority)
                if self.backlogged.get((name, priority)) != now:
                    self.backlogged[name, priority] = now
                    self.served[name, priority] = Counter()

    @rule(
        name=st.sampled_from(NAMES), tenant=st.sampled_from(TENANTS), priority=st.integers(0, 2),
        cost=st.integers(1, MAX_COST), passed_s=st.floats(0, 3),
    )  # fmt: skip
    def arrive(self, name, tenant, priority, cost, passed_s):
        self.now_s += passed_s
        self.number += 1
        request_id = RequestId(str(self.number))
        if not self.queue.count(name) and len(self.running[name]) < self.places:
            self.running[name].append(request_id)
            return
        before = len(self.queue)
        entered = self.queue.enter(
            request_id, name, tenant=tenant, priority=priority, cost_tokens=cost, now_s=self.now_s
        )
        held = Counter(w.tenant for _, w in self.waiting.values())
        if entered.displaced is not None:
            gone = entered.displaced
            assert before == self.max_waiting
            assert held[gone.tenant] / self.weights[gone.tenant] > (held[tenant] + 1) / self.weights[tenant]
            del self.waiting[gone.request_id]
        elif entered.waiting is None:
            assert before == self.max_waiting
            return
        self.waiting[request_id] = name, entered.waiting
        self.note_backlogs()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), passed_s=st.floats(0, 3))
    def give_up(self, data, passed_s):
        self.now_s += passed_s
        request_id = data.draw(st.sampled_from(sorted(self.waiting)))
        assert self.queue.leave(request_id)
        assert not self.queue.leave(request_id)
        del self.waiting[request_id]
        self.note_backlogs()

    @precondition(lambda self: any(self.running.values()))
    @rule(data=st.data(), passed_s=st.floats(0, 3))
    def end(self, data, passed_s):
        self.now_s += passed_s
        name = data.draw(st.sampled_from([name for name in NAMES if self.running[name]]))
        self.running[name].pop(data.draw(st.integers(0, len(self.running[name]) - 1)))
        head = self.queue.find_next(name, self.now_s)
        assert (head is None) == (self.queue.count(name) == 0)
        if head is None:
            return
        self.check_priority(name, head)
        self.queue.give(head.request_id, cost_tokens=head.cost_tokens, now_s=self.now_s)
        served = self.served[name, head.priority]
        served[head.tenant] += head.cost_tokens / self.weights[head.tenant]
        self.check_shares(name, head.priority)
        del self.waiting[head.request_id]
        self.running[name].append(head.request_id)
        self.note_backlogs()

    def check_priority(self, name, head):
        """The highest goes first, but nobody of a lower one is passed over for long once it has aged."""
        mine = [w for n, w in self.waiting.values() if n == name]
        highest = max(w.priority for w in mine)
        is_late = [w for w in mine if w.priority < highest and self.now_s - w.arrived_s >= 5.0]
        if head.priority < highest:
            assert self.now_s - min(w.arrived_s for w in is_late) >= 5.0
            self.passed_over[name] = 0
        elif is_late:
            self.passed_over[name] += 1
        lane = [w for w in mine if (w.tenant, w.priority) == (head.tenant, head.priority)]
        assert head == min(lane, key=lambda w: (w.arrived_s + w.cost_tokens / 20_000, w.number))

    def check_shares(self, name, priority):
        """Start-time fair queueing: two that wait differ by at most the longest request of each, by weight."""
        served, waiting = self.served[name, priority], self.backlogged[name, priority]
        for one in waiting:
            for other in waiting:
                bound = MAX_COST / self.weights[one] + MAX_COST / self.weights[other]
                assert served[one] - served[other] <= bound

    @invariant()
    def nobody_is_lost_and_no_bound_is_passed(self):
        if not hasattr(self, "queue"):
            return
        assert len(self.queue) == len(self.waiting) <= self.max_waiting
        assert sum(self.queue.count(name) for name in self.queue.names()) == len(self.waiting)
        assert set(self.queue.names()) == {name for name, _ in self.waiting.values()}
        assert all(len(running) <= self.places for running in self.running.values())
        assert 1 <= self.queue.find_retry_after_s() <= 120
        # Heads of lanes that are not due yet hide late ones behind them, each for a place at most.
        assert all(count <= FLOOR_EVERY * (1 + self.max_waiting) for count in self.passed_over.values())


Admissions.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestAdmissions = Admissions.TestCase
