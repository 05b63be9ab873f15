"""Clients leave while they wait, at the very moments at which their place is given out, refused or given away."""

import asyncio

import pytest

from router.admission import QueueSettings
from router.errors import OverloadedError, QueueFullError
from router.metrics import RouterMetrics
from router.proxy.admit import Admission
from wire.ids import Target, WorkerId

TARGET = Target(WorkerId("w"), 0)


class Places:
    """So many places, and who has one."""

    def __init__(self, free=0):
        self.free = free
        self.taken = []
        self.asked = []


class Wanting:
    """A request that wants one of them."""

    cost_tokens = 10

    def __init__(self, name, places, queue_name="model"):
        self.request_id = name
        self.queue_name = queue_name
        self._places = places

    def place(self):
        self._places.asked.append(self.request_id)
        if not self._places.free:
            raise OverloadedError("no place")
        self._places.free -= 1
        self._places.taken.append(self.request_id)
        return TARGET


@pytest.fixture
def places():
    return Places()


def make(**settings):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: errors.append(context))
    errors = []
    admission = Admission(
        QueueSettings(**({"max_waiting": 8, "max_wait_s": 30.0} | settings)), RouterMetrics(), loop.time
    )
    return admission, errors


async def wait_for(admission, name, places, queue_name="model"):
    """A request that waits."""
    task = asyncio.ensure_future(admission.place(Wanting(name, places, queue_name), "a", 0))
    await asyncio.sleep(0)
    assert admission.queue.count(queue_name)
    return task


async def test_a_place_goes_to_the_next_one_when_the_first_leaves_at_that_moment(places):
    admission, errors = make()
    first, second = await wait_for(admission, "1", places), await wait_for(admission, "2", places)
    places.free = 1
    admission.wake()
    first.cancel()
    assert await second is TARGET
    assert places.taken == ["2"]
    assert (len(admission.queue), errors) == (0, [])


async def test_who_leaves_as_it_is_displaced_leaves_the_newcomer_waiting(places):
    admission, errors = make(max_waiting=2)
    await wait_for(admission, "1", places)
    left = await wait_for(admission, "2", places)
    newcomer = asyncio.ensure_future(admission.place(Wanting("3", places), "b", 0))
    left.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not newcomer.done()
    places.free = 2
    admission.wake()
    assert await newcomer is TARGET
    assert (sorted(places.taken), len(admission.queue), errors) == (["1", "3"], 0, [])


async def test_who_leaves_has_those_behind_it_tried_and_no_other_queue(places):
    """Of an outage many get tired at once, and each may have a queue of its own."""
    admission, errors = make()
    first, _, _ = [await wait_for(admission, *each) for each in (("1", places), ("2", places), ("3", places, "other"))]
    places.asked.clear()
    first.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (places.asked, len(admission.queue), errors) == (["2"], 2, [])


async def test_of_names_for_which_nobody_waits_nothing_is_kept(places):
    """Clients choose the model that they ask for: while nobody knows which there are, any name may wait."""
    admission, errors = make(max_waiting=1)
    waiting = await wait_for(admission, "1", places)
    for number in range(100):
        with pytest.raises(QueueFullError):
            await admission.place(Wanting(f"x{number}", places, f"model-{number}"), "a", 0)
    assert list(admission._reasons) == ["model"]
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (admission._reasons, len(admission.queue), errors) == ({}, 0, [])
