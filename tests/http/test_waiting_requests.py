"""Requests that find no place wait for one in fair order and leave when their client does; none is lost or doubled."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from fake_engine import WHOLE, FakeEngine, running
from keeping_engine import KeepingEngine, keeping
from proxy_harness import CHAT, eventually, in_process, leap, on_socket, value

from router.access.keys import hash_key
from router.config.queue import QueueConfig

KEYS = {name: f"{name}-{'k' * 40}" for name in ("a", "b", "fast", "ops")}
QUEUE = {"max_waiting": 8, "requests_per_rank": 1}
#: Than anybody waits.
LONGER_S = QueueConfig().max_wait_s + 1.0


def access(**limits):
    own = {"fast": {"max_priority": 5}, "ops": {"role": "admin"}}
    keys = [{"name": name, "hash": hash_key(key)} | own.get(name, {}) for name, key in KEYS.items()]
    return {"keys": [key | {"limits": limits.get(key["name"], {})} for key in keys]}


def by(name):
    return {"authorization": f"Bearer {KEYS[name]}"}


class Gated(FakeEngine):
    """Answers when told to, and notes in which order requests came."""

    def __init__(self):
        super().__init__()
        self.order, self.doors, self.most = [], [], 0
        self.script = self.wait

    async def wait(self, _engine, request, _body):
        door = asyncio.Event()
        self.order.append(request.headers.get("x-name"))
        self.doors.append(door)
        self.most = max(self.most, sum(not each.is_set() for each in self.doors))
        await door.wait()
        return web.json_response(WHOLE)

    def open_next(self):
        next(door for door in self.doors if not door.is_set()).set()


@asynccontextmanager
async def gated(serve=in_process, **sections):
    async with running(Gated()) as engine, serve([engine.url], **({"queue": QUEUE} | sections)) as client:
        yield engine, client


def send(client, name="", key=None, **headers):
    lines = {"x-name": name, "x-request-id": f"r-{name}"} | headers | ({} if key is None else by(key))
    return asyncio.ensure_future(client.post("/v1/chat/completions", json=CHAT, headers=lines))


async def line_up(engine, client, *names, **more):
    """One that is served, and these that wait behind it."""
    tasks = [send(client, "first", **more)]
    await eventually(lambda: engine.order == ["first"])
    for number, name in enumerate(names, 1):
        tasks.append(send(client, name, **more))
        await eventually(lambda number=number: len(client.router.admission.queue) == number)
    return tasks


async def test_who_waits_is_served_when_a_place_is_free_one_at_a_time(monkeypatch):
    """At once, and not at the next look at the clock."""
    monkeypatch.setattr("router.proxy.admit.TICK_S", 3_600.0)
    async with gated() as (engine, client):
        tasks = await line_up(engine, client, "2", "3", "4")
        assert value(client.router, "queue_waiting") == 3
        for done in range(1, 5):
            engine.open_next()
            await eventually(lambda done=done: len(engine.order) == min(4, done + 1))
        assert [(await task).status_code for task in tasks] == [200] * 4
        assert engine.order == ["first", "2", "3", "4"]
        assert engine.most == 1
        assert value(client.router, "queue_ends_total", end="placed") == 3
        assert value(client.router, "queue_wait_seconds_count") == 3
        assert value(client.router, "queue_waiting") == 0


async def test_without_a_queue_a_full_fleet_refuses_at_once():
    async with gated(queue={"requests_per_rank": 1}) as (engine, client):
        (first,) = await line_up(engine, client)
        refused = await client.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert refused.headers["retry-after"] == "1"
        engine.open_next()
        assert (await first).status_code == 200


async def test_a_full_queue_refuses_and_says_when_to_come_again():
    async with gated(queue=QUEUE | {"max_waiting": 1}) as (engine, client):
        tasks = await line_up(engine, client, "2")
        refused = await client.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1
        for _ in tasks:
            engine.open_next()
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await eventually(lambda: len(engine.order) == 2)
        assert [(await task).status_code for task in tasks] == [200, 200]
        assert value(client.router, "queue_ends_total", end="full") == 1


async def test_who_waits_is_not_taken_for_another_one_of_the_same_id():
    """One id for all calls of a trace, or a proxy in front that asks again: each is a request of its own."""
    async with gated() as (engine, client):
        same = {"x-request-id": "trace-1"}
        tasks = [send(client, "1", **same)]
        await eventually(lambda: engine.order == ["1"])
        for number, name in enumerate("23", 1):
            tasks.append(send(client, name, **same))
            await eventually(lambda number=number: len(client.router.admission.queue) == number)
        for done in range(2, 5):
            engine.open_next()
            await eventually(lambda done=done: len(engine.order) == min(3, done))
        answers = [await task for task in tasks]
        assert [answer.status_code for answer in answers] == [200] * 3
        assert len({answer.headers["x-request-id"] for answer in answers}) == 3
        assert answers[0].headers["x-request-id"] == "trace-1"
        again = send(client, "4", **same)
        await eventually(lambda: len(engine.order) == 4)
        engine.open_next()
        assert (await again).headers["x-request-id"] == "trace-1"


async def test_who_waited_too_long_is_told():
    async with gated() as (engine, client):
        first, second = await line_up(engine, client, "2")
        leap(LONGER_S)
        answer = await second
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_timeout")
        assert int(answer.headers["retry-after"]) >= 1
        assert value(client.router, "queue_ends_total", end="timed_out") == 1
        engine.open_next()
        assert (await first).status_code == 200


async def test_a_client_that_goes_leaves_the_queue_at_once():
    async with gated(serve=on_socket) as (engine, client):
        first, second, third = await line_up(engine, client, "2", "3")
        second.cancel()
        await eventually(lambda: len(client.router.admission.queue) == 1)
        engine.open_next()
        await eventually(lambda: engine.order == ["first", "3"])
        engine.open_next()
        assert [(await task).status_code for task in (first, third)] == [200, 200]
        assert value(client.router, "queue_ends_total", end="left") == 1
        await eventually(lambda: value(client.router, "requests_total", outcome="cancelled") == 1)


async def test_tenants_take_turns_however_many_one_of_them_sends():
    async with gated(access=access()) as (engine, client):
        tasks = [send(client, "a0", "a")]
        await eventually(lambda: engine.order == ["a0"])
        for number, (name, key) in enumerate([(f"a{n}", "a") for n in range(1, 5)] + [("b1", "b"), ("b2", "b")], 1):
            tasks.append(send(client, name, key))
            await eventually(lambda number=number: len(client.router.admission.queue) == number)
        for done in range(1, 8):
            engine.open_next()
            await eventually(lambda done=done: len(engine.order) == min(7, done + 1))
        assert [(await task).status_code for task in tasks] == [200] * 7
        assert set(engine.order[1:3]) == {"a1", "b1"}
        assert set(engine.order[3:5]) == {"a2", "b2"}


async def test_a_priority_is_what_the_key_allows():
    async with gated(access=access()) as (engine, client):
        urgent = {"x-dovecote-priority": "9"}
        tasks = [send(client, "0", "a")]
        await eventually(lambda: engine.order == ["0"])
        for number, (name, key, headers) in enumerate([("1", "a", urgent), ("2", "b", {}), ("3", "fast", urgent)], 1):
            tasks.append(send(client, name, key, **headers))
            await eventually(lambda number=number: len(client.router.admission.queue) == number)
        for done in range(1, 5):
            engine.open_next()
            await eventually(lambda done=done: len(engine.order) == min(4, done + 1))
        assert [(await task).status_code for task in tasks] == [200] * 4
        assert engine.order == ["0", "3", "1", "2"]
        bad = await client.post("/v1/chat/completions", json=CHAT, headers=by("a") | {"x-dovecote-priority": "high"})
        assert bad.status_code == 400


async def test_without_keys_a_priority_is_anybodys_to_choose():
    async with gated() as (engine, client):
        tasks = await line_up(engine, client, "2")
        tasks.append(send(client, "3", **{"x-dovecote-priority": "9"}))
        await eventually(lambda: len(client.router.admission.queue) == 2)
        for done in range(1, 4):
            engine.open_next()
            await eventually(lambda done=done: len(engine.order) == min(3, done + 1))
        assert [(await task).status_code for task in tasks] == [200] * 3
        assert engine.order == ["first", "3", "2"]


async def test_another_tenants_newcomer_takes_the_place_of_the_last_of_many():
    async with gated(queue=QUEUE | {"max_waiting": 3}, access=access()) as (engine, client):
        tasks = await line_up(engine, client, "2", "3", "4", key="a")
        newcomer = send(client, "b", "b")
        displaced = await tasks[3]
        assert (displaced.status_code, displaced.json()["error"]["code"]) == (503, "queue_full")
        for done in range(1, 5):
            engine.open_next()
            await eventually(lambda done=done: len(engine.order) == min(4, done + 1))
        assert (await newcomer).status_code == 200
        assert [(await task).status_code for task in tasks[:3]] == [200] * 3
        assert value(client.router, "queue_ends_total", end="displaced") == 1


async def test_room_that_comes_without_an_end_is_noticed():
    """A second worker turns up: no request of this router ended, and the head is tried all the same."""
    async with running(Gated()) as engine, running(Gated()) as spare:
        spare.health_status = 503
        probes = {"interval_s": 0.05}
        async with in_process([engine.url, spare.url], queue=QUEUE, probes=probes) as client:
            first, second = await line_up(engine, client, "2")
            spare.health_status = 200
            await eventually(lambda: spare.order == ["2"])
            spare.open_next()
            assert (await second).status_code == 200
            engine.open_next()
            assert (await first).status_code == 200


async def test_a_request_that_rests_on_one_engine_waits_for_it_and_holds_up_nobody():
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(running(KeepingEngine())) for _ in range(2)]
        client = await stack.enter_async_context(in_process([one.url, two.url], queue=QUEUE))
        made = await client.post("/v1/responses", json={"model": "toy", "input": "hello"})
        home, other = (one, two) if made.headers["x-dovecote-worker"] == "w0" else (two, one)
        door = asyncio.Event()

        async def wait(engine, request, body):
            await door.wait()
            return await keeping(engine, request, body)

        home.script = other.script = wait
        busy = [send(client, str(number)) for number in range(2)]
        await eventually(lambda: len(one.requests) + len(two.requests) == 3)
        pinned = {"model": "toy", "input": "more", "previous_response_id": made.json()["id"]}
        waiting = asyncio.ensure_future(client.post("/v1/responses", json=pinned))
        await eventually(lambda: len(client.router.admission.queue) == 1)
        busy.append(send(client, "2"))
        await eventually(lambda: len(client.router.admission.queue) == 2)
        door.set()
        assert [(await task).status_code for task in busy] == [200] * 3
        answer = await waiting
        assert answer.status_code == 200
        assert answer.headers["x-dovecote-worker"] == made.headers["x-dovecote-worker"]


@pytest.mark.parametrize(
    ("limits", "passes", "reason"),
    [
        ({"requests_per_minute": 2}, 2, "requests_per_minute"),
        # Nine tokens of prompt and three of answer each, as the engine counts.
        ({"tokens_per_minute": 20}, 2, "tokens_per_minute"),
    ],
)
async def test_a_key_over_its_limit_is_429_and_told_when_to_come_again(engine, clock, limits, passes, reason):
    async with in_process([engine.url], access=access(a=limits), clock=clock) as client:
        for _ in range(passes):
            assert (await client.post("/v1/chat/completions", json=CHAT, headers=by("a"))).status_code == 200
        refused = await client.post("/v1/chat/completions", json=CHAT, headers=by("a"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert reason in refused.json()["error"]["message"]
        assert len(engine.requests) == passes
        assert value(client.router, "rate_limited_total", key="a", limit=reason) == 1
        assert (await client.post("/v1/chat/completions", json=CHAT, headers=by("b"))).status_code == 200
        clock.advance(float(refused.headers["retry-after"]))
        assert (await client.post("/v1/chat/completions", json=CHAT, headers=by("a"))).status_code == 200


async def test_requests_under_way_are_bounded_and_counted_off_on_every_path():
    async with gated(serve=on_socket, queue={}, access=access(a={"concurrent_requests": 1})) as (engine, client):
        first = send(client, "first", "a")
        await eventually(lambda: engine.order == ["first"])
        assert (await send(client, "2", "a")).status_code == 429
        first.cancel()
        rates = client.router.admission.rates
        await eventually(lambda: rates.count_running("a") == 0)
        bad = await client.post("/v1/chat/completions", content=b"{", headers=by("a"))
        assert bad.status_code == 400
        assert rates.count_running("a") == 0
