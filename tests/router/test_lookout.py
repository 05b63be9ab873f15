"""Limits count only while the router itself is on time, and each strikes once."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.lookout import LATE_S, LOOK_S, TICK_S, Limit, Lookout, own_time
from router.proxy.client import AsgiClient
from router.proxy.interrupt import ExchangeWatch
from tests.waiting import PATIENCE_S


def limited(due_s):
    struck = []
    limit = Limit(due_s, lambda: struck.append(due_s))
    return limit, struck


@pytest.fixture
async def lookout():
    return Lookout()


async def test_what_is_due_strikes_once(lookout):
    now_s = asyncio.get_running_loop().time()
    limit, struck = limited(now_s + 10.0)
    lookout.join(limit)
    first_s = now_s
    while not struck:
        first_s += LOOK_S
        lookout.look(first_s)
    assert first_s == pytest.approx(now_s + 10.0, abs=LOOK_S)
    lookout.look(first_s)
    assert len(struck) == 1
    lookout.leave(limit)
    assert not len(lookout)


async def test_who_left_is_not_looked_at(lookout):
    limit, struck = limited(0.0)
    lookout.join(limit)
    lookout.leave(limit)
    lookout.look(math.inf)
    assert not struck


@pytest.fixture
async def timers(monkeypatch):
    """Times for which the event loop was asked to call back."""
    loop, asked = asyncio.get_running_loop(), []
    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda when, *rest, **more: asked.append(when) or call_at(when, *rest, **more))
    return asked


async def test_limits_need_no_timer_of_their_own(lookout, timers):
    loop = asyncio.get_running_loop()
    for _ in range(100):
        lookout.join(limited(loop.time() + 60.0)[0])
    assert len(timers) == 1


async def test_an_earlier_limit_is_looked_at_in_time(lookout, timers):
    loop = asyncio.get_running_loop()
    struck = asyncio.Event()
    lookout.join(limited(loop.time() + 60.0)[0])
    due_s = loop.time() + LOOK_S / 10
    lookout.join(Limit(due_s, struck.set))
    assert timers[-1] == due_s
    async with asyncio.timeout(PATIENCE_S):
        await struck.wait()


async def test_who_leaves_because_another_one_struck_is_not_looked_at_any_more(lookout):
    """A phase of two ends the limit of the other: what comes to stand in its place has its own time."""
    struck = []
    pair = [Limit(0.0, lambda at=at: (struck.append(at), lookout.leave(pair[1 - at]))) for at in range(2)]
    for limit in pair:
        lookout.join(limit)
    lookout.look(asyncio.get_running_loop().time())
    assert len(struck) == 1


async def test_who_has_more_time_since_another_one_struck_has_it(lookout):
    struck = []

    def strike(at):
        struck.append(at)
        pair[1 - at].due_s = math.inf

    pair = [Limit(0.0, lambda at=at: strike(at)) for at in range(2)]
    for limit in pair:
        lookout.join(limit)
    lookout.look(asyncio.get_running_loop().time())
    assert len(struck) == 1


async def test_a_watch_that_is_over_is_looked_at_no_more(lookout):
    """What still runs of its exchange may move its limits; nobody would ever take it off the list again."""

    async def stay():
        return await asyncio.Event().wait()

    with ExchangeWatch(AsgiClient(stay, stay), lookout) as watch:
        watch.limit(60.0)
        assert len(lookout) == 1
    watch.limit(1.0)
    assert not len(lookout)


async def test_what_goes_wrong_with_one_leaves_the_others_their_limits(lookout):
    loop, reported, struck = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.set_exception_handler(lambda _loop, _context: reported.set())

    def fail():
        raise RuntimeError("a defect")

    lookout.join(Limit(loop.time(), fail))
    lookout.join(Limit(loop.time() + LOOK_S / 10, struck.set))
    async with asyncio.timeout(PATIENCE_S):
        await reported.wait()
        await struck.wait()


async def test_what_takes_longer_than_its_own_time_ends_and_what_the_loop_was_late_does_not_count():
    loop, held_s = asyncio.get_running_loop(), 0.0
    on_time, loop.time = loop.time, lambda: on_time() + held_s
    with pytest.raises(TimeoutError):
        async with own_time(LOOK_S / 10):
            await asyncio.Event().wait()
    async with own_time(PATIENCE_S):
        held_s = 2 * PATIENCE_S
        # Looked at once or twice by then.
        await asyncio.sleep(2 * LOOK_S)


@given(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=60))
def test_C06_time_in_which_the_router_was_held_up_counts_for_nobody(lags_s):
    """However the loop's lag comes: what strikes had its whole time, less what cannot be told."""
    lookout = Lookout()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        now_s, own_s = loop.time(), 0.0
        limit, struck = limited(now_s + 10.0)
        loop.call_soon(lookout.join, limit)
        runner.run(asyncio.sleep(0))
    for lag_s in lags_s:
        now_s += LOOK_S + lag_s
        own_s += LOOK_S + (lag_s if lag_s <= LATE_S else 0.0)
        lookout.look(now_s, late_s=lag_s)
        assert bool(struck) == (own_s >= 10.0 - TICK_S) or own_s == pytest.approx(10.0 - TICK_S)
        if struck:
            break
