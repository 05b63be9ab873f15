"""What lets ranks be left out unseen, case by case; that the whole of it leaves out no winner is in the model test."""

from router.placement.groups import MAX_EXCESS, Order
from router.placement.question import Question
from router.placement.residency import NOTHING_EXPECTED, Expected
from router.policy.base import PlacementQuery
from router.policy.glance import Stakes
from wire.ids import RequestId, Target, WorkerId

HERE, THERE, FAR = (Target(WorkerId(name), 0) for name in ("here", "there", "far"))


def ask(confirmed, expected):
    return Question(
        query=PlacementQuery(request_id=RequestId("r"), prompt_tokens=1_000),
        pools=(),
        excluded=frozenset(),
        confirmed=confirmed,
        expected=expected,
        options={},
        credit_ratio=1.0,
        now_s=0.0,
    )


def test_most_that_lies_elsewhere_is_confirmed_or_expected_there():
    expected = Expected({HERE: 900, THERE: 640}, [(64, {HERE: 1, THERE: 1, FAR: 2})])
    assert ask({HERE: 1_000, THERE: 128}, expected).find_most_elsewhere({HERE}) == 640
    assert ask({HERE: 1_000, THERE: 704}, expected).find_most_elsewhere({HERE}) == 704
    assert ask({}, expected).find_most_elsewhere({HERE, THERE}) == 64
    assert ask({}, expected).find_most_elsewhere(set()) == 900
    assert ask({HERE: 1_000}, NOTHING_EXPECTED).find_most_elsewhere({HERE}) == 0


def test_an_order_serves_queries_of_which_nothing_is_less_than_in_its_own_and_nothing_far_more():
    reference = Stakes(*[2.0] * len(Stakes._fields))
    order = Order(reference, 1.0)
    assert order.fits(reference)
    for name in Stakes._fields:
        assert order.fits(reference._replace(**{name: 2.0 * MAX_EXCESS}))
        assert not order.fits(reference._replace(**{name: 1.9}))
        assert not order.fits(reference._replace(**{name: 2.1 * MAX_EXCESS}))
