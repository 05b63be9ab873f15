"""Live sessions driven at random through pauses, returns, moves, failures and losses, against a plain list of them."""

from collections import OrderedDict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.placement.live import PRIOR_PAUSE_S, PRIOR_RETURNS, LiveSession, LiveSessions, LiveShare, PausedSessions
from wire.ids import RequestId, SessionId, Target, WorkerId

TARGETS = tuple(Target(WorkerId(name), rank) for name in "ab" for rank in (0, 1))
IDLE_S = 30.0
MOST = 5

sessions = st.sampled_from("stuvwxyz").map(SessionId)
requests = st.sampled_from("123").map(RequestId)
targets = st.sampled_from(TARGETS)


class LiveMachine(RuleBasedStateMachine):
    """What is live stands beside in one list, the longest unused first."""

    def __init__(self):
        super().__init__()
        self.live = LiveSessions(idle_s=IDLE_S, max_sessions=MOST)
        self.known: OrderedDict[SessionId, LiveSession] = OrderedDict()
        self.returns, self.paused_s = PRIOR_RETURNS, PRIOR_RETURNS * PRIOR_PAUSE_S
        self.now_s = 0.0
        self.seen = dict.fromkeys(TARGETS, LiveShare())

    @rule(by_s=st.sampled_from((0.5, 4.0, 29.0, 31.0)))
    def let_time_pass(self, by_s):
        self.now_s += by_s

    @rule(session=sessions, rank=targets, tokens=st.integers(0, 9_000), request=requests)
    def place(self, session, rank, tokens, request):
        """The session is new, goes on, comes back, or moves."""
        before = self.known.pop(session, None)
        if before is not None and before.is_paused:
            self.returns += 1.0
            self.paused_s += self.now_s - before.last_used_s
        self.known[session] = LiveSession(target=rank, tokens=tokens, last_used_s=self.now_s, placed_by=request)
        while len(self.known) > MOST:
            self.known.popitem(last=False)
        self.live.store(session, rank, tokens, request, self.now_s)

    @rule(session=sessions)
    def hear_of(self, session):
        self.use(session)
        self.live.renew(session, self.now_s)

    @rule(session=sessions, request=requests)
    def end(self, session, request):
        """Only the end of the request that brought it there, and only its first end, lets a session pause."""
        known = self.known.get(session)
        if known is not None and known.placed_by == request and not known.is_paused:
            known.is_paused = True
            self.use(session)
        self.live.pause(session, request, self.now_s)

    def use(self, session):
        if session in self.known:
            self.known[session].last_used_s = self.now_s
            self.known.move_to_end(session)

    @rule(session=sessions, request=requests)
    def fail(self, session, request):
        known = self.known.get(session)
        if known is not None and known.placed_by == request:
            del self.known[session]
        self.live.withdraw(session, request)

    @rule(lost=st.sets(targets, max_size=2))
    def lose_ranks(self, lost):
        for session in [name for name, known in self.known.items() if known.target in lost]:
            del self.known[session]
        self.live.forget_targets(lost)

    @rule()
    def expire(self):
        """A pause that ends so counts as one without a return; a request that runs for long as none."""
        for session, known in list(self.known.items()):
            pause_s = self.now_s - known.last_used_s
            if pause_s > IDLE_S:
                self.paused_s += pause_s if known.is_paused else 0.0
                del self.known[session]
        self.live.expire(self.now_s)

    @rule()
    def look(self):
        """Ranks that look different since the last time were told, and perhaps others."""
        changed = {target for target in TARGETS if self.live.share(target) != self.seen[target]}
        assert changed <= self.live.touched
        self.live.touched.clear()
        self.seen = {target: self.live.share(target) for target in TARGETS}

    @invariant()
    def sums_are_those_of_the_sessions(self):
        for target in TARGETS:
            there = [known for known in self.known.values() if known.target == target]
            paused = [known.tokens for known in there if known.is_paused]
            share = LiveShare(
                sum(known.tokens for known in there), len(there), PausedSessions(len(paused), sum(paused))
            )
            assert self.live.share(target) == share
        self.live.check_invariants()

    @invariant()
    def each_session_is_as_it_was_left(self):
        assert len(self.live) == len(self.known)
        for session, known in self.known.items():
            assert self.live.find(session) == known

    @invariant()
    def the_rate_is_returns_over_seconds_of_pauses(self):
        assert self.live.return_rate_per_s == pytest.approx(self.returns / self.paused_s)

    def teardown(self):
        self.live.forget_targets(TARGETS)
        assert all(self.live.share(target) == LiveShare() for target in TARGETS)
        assert len(self.live) == 0


TestLive = LiveMachine.TestCase
TestLive.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
