"""Who goes next: priorities that do not starve others, fair shares in tokens, short before long for a while."""

import pytest

from router.admission import AdmissionQueue, QueueOrder, QueueSettings, Waiting
from router.admission.order import FLOOR_EVERY
from wire.ids import RequestId


def waiting(number, tenant="a", priority=0, cost_tokens=100, arrived_s=0.0):
    name = RequestId(str(number))
    return Waiting(request_id=name, tenant=tenant, priority=priority, cost_tokens=cost_tokens, arrived_s=arrived_s,
                   number=number)  # fmt: skip


def order_of(*entries, weights=None):
    order = QueueOrder(
        aging_s=5.0, handicap_tokens_per_s=1_000.0, weigh=(weights or {}).get if weights else lambda _: 1
    )
    for entry in entries:
        order.add(entry)
    return order


def drain(order, now_s=0.0):
    """Whoever goes, in order."""
    gone = []
    while (head := order.find_next(now_s)) is not None:
        order.give(head.tenant, head.priority, head.cost_tokens)
        assert order.remove(head)
        gone.append(head.number)
    return gone


def test_of_one_tenant_the_first_goes_first():
    assert drain(order_of(*(waiting(number, arrived_s=number) for number in (3, 1, 2)))) == [1, 2, 3]


def test_a_short_one_overtakes_a_long_one_that_came_a_moment_before():
    long, short = waiting(1, cost_tokens=50_000), waiting(2, cost_tokens=100, arrived_s=40.0)
    assert drain(order_of(long, short)) == [2, 1]


def test_a_long_one_is_not_overtaken_for_ever():
    """Its handicap is 50 s: who comes later than that goes after it."""
    long = waiting(1, cost_tokens=50_000)
    shorts = [waiting(2 + place, cost_tokens=100, arrived_s=float(place)) for place in range(100)]
    assert drain(order_of(long, *shorts)).index(1) == 50


def test_a_flood_of_long_requests_does_not_starve_another_tenants_short_ones():
    flood = [waiting(number, cost_tokens=100_000) for number in range(1, 51)]
    order = order_of(*flood, waiting(100, "b"), waiting(101, "b"))
    assert {100, 101} <= set(drain(order)[:3])


def test_shares_go_by_weight():
    entries = [waiting(100 * place + number, tenant) for number in range(40) for place, tenant in enumerate("ab", 1)]
    gone = drain(order_of(*entries, weights={"a": 3.0, "b": 1.0}))[:40]
    assert sum(number < 200 for number in gone) in range(29, 32)


def test_shares_are_in_tokens_and_not_in_requests():
    long = [waiting(number, "a", cost_tokens=1_000) for number in range(40)]
    short = [waiting(100 + number, "b", cost_tokens=100) for number in range(40)]
    gone = drain(order_of(*long, *short))[:22]
    assert sum(number < 100 for number in gone) in {2, 3}


def test_the_highest_priority_goes_first_and_no_other_starves():
    low = [waiting(number) for number in range(1, 4)]
    high = [waiting(100 + number, priority=5, arrived_s=90.0) for number in range(40)]
    assert drain(order_of(*low, *high), now_s=1.0)[-3:] == [1, 2, 3]
    late = drain(order_of(*low, *high), now_s=100.0)
    assert [late.index(number) for number in (1, 2, 3)] == [7, 15, 23]
    assert FLOOR_EVERY == 8


def test_who_does_not_wait_cannot_be_removed():
    order = order_of(waiting(1))
    assert not order.remove(waiting(2))
    assert not order.remove(waiting(1, "b"))
    assert not order.remove(waiting(1, priority=3))
    assert len(order) == 1


def enter(queue, number, tenant="a", name="m", now_s=0.0, **more):
    return queue.enter(RequestId(str(number)), name, tenant=tenant, priority=0, cost_tokens=10, now_s=now_s, **more)


def test_a_full_queue_makes_room_for_who_has_less_waiting():
    queue = AdmissionQueue(QueueSettings(max_waiting=4))
    for number in range(4):
        assert enter(queue, number).waiting is not None
    assert enter(queue, 4).waiting is None
    entered = enter(queue, 5, "b")
    assert entered.displaced.request_id == "3"
    assert enter(queue, 6, "b").displaced.request_id == "2"
    assert enter(queue, 7, "b").waiting is None
    assert enter(queue, 8, "a").waiting is None
    assert len(queue) == 4


def test_a_name_waits_once():
    queue = AdmissionQueue(QueueSettings(max_waiting=4))
    assert enter(queue, 1).waiting is not None
    assert enter(queue, 1).waiting is None


def test_when_to_come_again_follows_how_fast_places_come():
    queue = AdmissionQueue(QueueSettings(max_waiting=300))
    for number in range(200):
        enter(queue, number)
    assert queue.find_retry_after_s() == 120
    for number in range(100):
        head = queue.find_next("m", 0.0)
        queue.give(head.request_id, cost_tokens=10, now_s=0.1 * number)
    assert queue.find_retry_after_s() == pytest.approx(11, abs=1)
