"""Two legs under any order of events: each ends once, the prefill charge is released once, nothing cut is complete."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router.proxy.legs.machine import (
    Abort,
    Answered,
    Begin,
    Deliver,
    Ended,
    Fail,
    Failed,
    FirstOutput,
    Leg,
    Legs,
    Order,
    Refused,
    Release,
    Retry,
    Send,
    Stopped,
    TimedOut,
)

legs = st.sampled_from(Leg)


class LegsMachine(RuleBasedStateMachine):
    """Any stimulus at any time; what was instructed is remembered beside in the plainest way."""

    make = Legs

    def __init__(self):
        super().__init__()
        self.sent, self.ended = [], []
        #: How a leg ended: `whole`, `broken`, `refused`, `aborted`.
        self.how = {}
        self.released, self.told = [], []
        self.output = self.stopped = False

    @initialize(order=st.sampled_from(Order))
    def build(self, order):
        self.order = order
        self.legs = self.make(order)
        self.feed(Begin())

    def is_open(self, leg):
        return leg in self.sent and leg not in self.ended

    def end(self, leg, how):
        assert self.is_open(leg), f"{leg} ends twice, or was never sent"
        self.ended.append(leg)
        self.how[leg] = how

    def feed(self, stimulus):
        for instruction in self.legs.handle(stimulus):
            match instruction:
                case Send(leg):
                    assert leg not in self.sent
                    assert not self.stopped
                    self.sent.append(leg)
                case Abort(leg):
                    self.end(leg, "aborted")
                case Release():
                    self.released.append(instruction)
                case Deliver() | Fail() | Retry():
                    assert not self.stopped
                    self.told.append(instruction)

    @rule(leg=legs, good=st.booleans())
    def complete(self, leg, good):
        # A decode leg is read to its end only by whoever carries its answer.
        if self.is_open(leg) and (leg is Leg.PREFILL or Deliver(leg) in self.told):
            self.end(leg, "whole")
            self.feed(Ended(leg, good))
        elif not self.is_open(leg):
            self.feed(Ended(leg, good))

    @rule(leg=legs)
    def break_off(self, leg):
        if self.is_open(leg):
            self.end(leg, "broken")
        self.feed(Failed(leg))

    @rule(leg=legs)
    def refuse(self, leg):
        if self.is_open(leg) and (leg is Leg.PREFILL or Deliver(leg) not in self.told):
            self.end(leg, "refused")
            self.feed(Refused(leg))

    @rule(good=st.booleans())
    def begin_answer(self, good):
        if self.is_open(Leg.DECODE):
            self.feed(Answered(good))

    @precondition(lambda self: Deliver(Leg.DECODE) in self.told and self.is_open(Leg.DECODE))
    @rule()
    def show_output(self):
        self.output = True
        self.feed(FirstOutput())

    @rule(leg=legs)
    def run_out_of_time(self, leg):
        self.feed(TimedOut(leg))

    @rule()
    def leave(self):
        self.feed(Stopped())
        self.stopped = True

    @invariant()
    def a_prefill_charge_is_released_once_and_not_before_its_part_is_over(self):
        assert len(self.released) <= 1
        if self.released:
            assert Leg.PREFILL in self.ended or self.output or Leg.DECODE in self.ended
        if self.order is Order.DECODE_ONLY:
            assert self.released == []
        elif Leg.PREFILL in self.ended:
            assert len(self.released) == 1

    @invariant()
    def the_client_gets_one_answer_or_one_error(self):
        answers = [told for told in self.told if isinstance(told, Deliver)]
        assert len(answers) <= 1
        assert len([told for told in self.told if isinstance(told, Fail | Retry)]) <= 1
        assert not (answers and any(isinstance(told, Retry) for told in self.told))
        if self.told[1:]:
            assert isinstance(self.told[0], Deliver)
            assert isinstance(self.told[1], Fail)

    @invariant()
    def a_retry_is_offered_only_where_nobody_can_have_begun(self):
        for told in self.told:
            if isinstance(told, Retry):
                assert self.how[told.leg] == "refused"
                assert not self.output
                assert all(self.how.get(leg) != "broken" for leg in Leg)

    @invariant()
    def what_is_complete_came_whole_from_the_leg_that_answers(self):
        if self.legs.is_complete:
            (answer,) = [told for told in self.told if isinstance(told, Deliver)]
            assert self.how[answer.leg] == "whole"
            assert not any(isinstance(told, Fail) for told in self.told)

    @invariant()
    def nothing_stays_open_once_nobody_waits_but_a_prefill_that_did_its_part(self):
        assert all(self.is_open(leg) == self.legs.is_open(leg) for leg in Leg)
        if self.stopped or any(isinstance(told, Fail | Retry) for told in self.told):
            assert not self.is_open(Leg.DECODE)
        if self.is_open(Leg.PREFILL) and Leg.DECODE in self.ended:
            assert self.how[Leg.DECODE] == "whole"

    def teardown(self):
        self.feed(Stopped())
        assert not any(self.is_open(leg) for leg in Leg)
        assert sorted(self.sent) == sorted(self.ended)
        assert len(self.released) == (self.order is not Order.DECODE_ONLY)


TestLegs = LegsMachine.TestCase
TestLegs.settings = settings(
    max_examples=150, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
