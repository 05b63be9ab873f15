"""What becomes of two legs, told as stories: stimuli in, instructions out."""

import pytest

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

P, D = Leg.PREFILL, Leg.DECODE


def tell(order, *stimuli):
    """The instructions to the last of some stimuli, after `Begin`."""
    legs = Legs(order)
    told = [legs.handle(stimulus) for stimulus in (Begin(), *stimuli)]
    return told[-1]


@pytest.mark.parametrize(
    ("order", "sent"),
    [(Order.TOGETHER, (P, D)), (Order.PREFILL_FIRST, (P,)), (Order.DECODE_ONLY, (D,))],
)
def test_legs_are_sent_in_the_order_of_their_engine(order, sent):
    assert tell(order) == tuple(map(Send, sent))


def test_a_decode_leg_is_sent_once_its_prefill_is_done():
    assert tell(Order.PREFILL_FIRST, Ended(P)) == (Release(is_done=True), Send(D))
    assert tell(Order.TOGETHER, Ended(P)) == (Release(is_done=True),)


@pytest.mark.parametrize(
    ("stimulus", "told"),
    [
        (Failed(P), (Release(is_done=False), Abort(D), Fail(P))),
        (Failed(D), (Abort(P), Release(is_done=False), Fail(D))),
        (Refused(P), (Abort(D), Release(is_done=False), Retry(P))),
        (Refused(D), (Abort(P), Release(is_done=False), Retry(D))),
        (Ended(P, is_good=False), (Release(is_done=False), Abort(D), Deliver(P))),
        (Answered(is_good=False), (Abort(P), Release(is_done=False), Deliver(D))),
        (Answered(is_good=True), (Deliver(D),)),
        (TimedOut(P), (Abort(P), Abort(D), Release(is_done=False), Fail(P))),
        (TimedOut(D), (Abort(P), Abort(D), Release(is_done=False), Fail(D))),
        (Stopped(), (Abort(P), Abort(D), Release(is_done=False))),
    ],
    ids=repr,
)
def test_C01_the_first_failure_of_either_leg_frees_the_other_at_once(stimulus, told):
    assert tell(Order.TOGETHER, stimulus) == told
    assert tell(Order.TOGETHER, stimulus, stimulus) == ()


@pytest.mark.parametrize("stimulus", [Failed(P), Ended(P, is_good=False), TimedOut(P)], ids=repr)
def test_before_the_output_a_prefill_that_fails_ends_the_answer_and_behind_it_nothing(stimulus):
    told = tell(Order.TOGETHER, Answered(is_good=True), stimulus)
    assert told[-1] == Fail(P)
    assert Abort(D) in told
    behind = tell(Order.TOGETHER, Answered(is_good=True), FirstOutput(), stimulus)
    assert behind == ((Abort(P),) if isinstance(stimulus, TimedOut) else ())


def test_C19_after_the_hand_over_only_the_decode_leg_may_be_sent_again():
    assert tell(Order.PREFILL_FIRST, Ended(P), Refused(D)) == (Retry(D),)
    assert tell(Order.DECODE_ONLY, Refused(D)) == (Retry(D),)
    assert tell(Order.PREFILL_FIRST, Ended(P), Failed(D)) == (Fail(D),)


def test_a_prefill_that_drains_behind_a_whole_answer_is_left_alone():
    legs = Legs(Order.TOGETHER)
    for stimulus in (Begin(), Answered(is_good=True), FirstOutput(), Ended(D)):
        legs.handle(stimulus)
    assert legs.is_complete
    assert legs.is_open(P)
    assert legs.handle(Ended(P)) == ()
    assert not legs.is_open(P)
