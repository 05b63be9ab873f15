"""While no worker takes requests, those that wait go on waiting and those that come wait too, as long as they may."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from fake_engine import MODEL, FakeEngine, answering, held_until, running, well_behaved
from keeping_engine import KeepingEngine
from pair_engines import VllmEngine, VllmFabric
from proxy_harness import eventually, in_process, leap, value

from router.config.workers import WorkerConfig
from router.control.registry import Entry, Put, Removed
from router.errors import PassingError
from router.placement.instructions import Reject, RejectReason
from router.proxy.refusal import refusal
from tests.ports import take_port
from tests.waiting import PATIENCE_S

QUEUE = {"max_waiting": 8, "requests_per_rank": 1}
PROBES = {"interval_s": 0.02, "unhealthy_after": 1}
BREAKER = {"failures": 1, "open_s": 60.0}


def waiting(client):
    return len(client.router.admission.queue)


def is_out(client, name="w0"):
    return not client.router.fleet.workers[name].takes_requests


async def send(client, count):
    """So many requests that wait."""
    before, tasks = waiting(client), [asyncio.ensure_future(client.chat()) for _ in range(count)]
    await eventually(lambda: waiting(client) == before + count)
    return tasks


async def statuses(tasks):
    return [(await task).status_code for task in tasks]


def check_told(answer, code, *words):
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, code)
    assert int(answer.headers["retry-after"]) >= 1
    assert all(word in error["message"] for word in words)


@asynccontextmanager
async def sick(engine, **queue):
    """A router whose only worker serves one request and is then out by its probes; and what opens it again."""
    release = asyncio.Event()
    engine.script = held_until(release)
    async with in_process([engine.url], queue=QUEUE | queue, probes=PROBES) as client:
        first = asyncio.ensure_future(client.chat(stream=True))
        await eventually(lambda: engine.requests)
        yield client, first, release
        release.set()
        assert (await first).status_code == 200
        # A worker that is out loses its charges, so that the end of what it still served comes late.
        assert client.router.placer.ignored.late == 1
        client.router.placer.ignored.late = 0


async def test_who_waits_when_the_only_worker_goes_out_waits_on_and_so_does_who_comes_then(engine):
    async with sick(engine) as (client, first, release):
        before = await send(client, 2)
        engine.health_status = 503
        await eventually(lambda: is_out(client))
        during = await send(client, 2)
        release.set()
        await first
        probes = engine.probes
        await eventually(lambda: engine.probes > probes + 3)
        assert not [task for task in (*before, *during) if task.done()]
        engine.script, engine.health_status = well_behaved, 200
        assert await statuses([*before, *during]) == [200] * 4
        assert value(client.router, "queue_ends_total", end="placed") == 4


async def test_who_waited_in_vain_is_told_that_no_worker_was_there_and_when_to_come_again(engine):
    async with sick(engine) as (client, _, release):
        before = await send(client, 1)
        engine.health_status = 503
        await eventually(lambda: is_out(client))
        release.set()
        during = await send(client, 1)
        leap(31.0)
        for task in (*before, *during):
            check_told(await task, "queue_timeout", "30 s", "0 of 1 workers ready, 1 unhealthy")
        assert value(client.router, "queue_ends_total", end="timed_out") == 2


async def test_where_outages_are_not_waited_out_both_are_told_at_once(engine):
    async with sick(engine, waits_out_outages=False) as (client, _, _):
        before = await send(client, 2)
        engine.health_status = 503
        await eventually(lambda: is_out(client))
        for task in before:
            check_told(await task, "all_unhealthy")
        check_told(await client.chat(), "all_unhealthy")
        assert value(client.router, "queue_ends_total", end="failed") == 2


def entry(engine, name):
    return Entry(WorkerConfig(url=engine.url, id=name))


async def test_a_fleet_that_is_empty_for_a_moment_is_waited_out(engines):
    async with in_process([], registration={"hosts": ["127.0.0.1"]}, queue=QUEUE, probes=PROBES) as client:
        fleet = client.router.fleet
        fleet.apply(Put("api", entry(engines[0], "old")))
        await eventually(lambda: "old" in fleet.workers and not is_out(client, "old"))
        assert (await client.chat()).status_code == 200
        fleet.apply(Removed("api", "old"))
        await eventually(lambda: not fleet.workers)
        tasks = await send(client, 2)
        fleet.apply(Put("api", entry(engines[1], "new")))
        assert {(await task).headers["x-dovecote-worker"] for task in tasks} == {"new"}


async def test_a_model_whose_only_worker_is_replaced_is_not_unknown_meanwhile(engine):
    async with running(FakeEngine()) as other, in_process([engine.url], queue=QUEUE, probes=PROBES) as client:
        other.models = ["other"]
        other.server_info |= {"served_model_name": "other"}
        fleet = client.router.fleet
        fleet.apply(Put("api", entry(other, "old")))
        await eventually(lambda: "old" in fleet.workers and not is_out(client, "old"))
        fleet.apply(Removed("api", "old"))
        await eventually(lambda: "old" not in fleet.workers)
        task = asyncio.ensure_future(client.chat(model="other"))
        await eventually(lambda: waiting(client) == 1)
        assert (await client.chat(model="never")).status_code == 404
        # Who waits for it holds up nobody else.
        assert (await client.chat()).status_code == 200
        fleet.apply(Put("api", entry(other, "new")))
        answer = await task
        assert (answer.status_code, answer.headers["x-dovecote-worker"]) == (200, "new")


async def test_a_breaker_that_is_open_is_waited_out(engine, clock):
    async with in_process([engine.url], queue=QUEUE, breaker=BREAKER, clock=clock) as client:
        engine.script = answering(500)
        assert (await client.chat()).status_code == 500
        engine.script = well_behaved
        (task,) = await send(client, 1)
        clock.advance(BREAKER["open_s"])
        assert (await task).status_code == 200


async def test_a_drain_is_waited_out_but_not_by_who_rests_on_the_engine_that_drains():
    async with running(KeepingEngine()) as engine, in_process([engine.url], queue=QUEUE, probes=PROBES) as client:
        made = await client.post("/v1/responses", json={"model": MODEL, "input": "hello"})
        pinned = {"model": MODEL, "input": "more", "previous_response_id": made.json()["id"]}
        assert client.router.fleet.drain("w0")
        (task,) = await send(client, 1)
        check_told(await client.post("/v1/responses", json=pinned), "pinned_unavailable", "drains")
        assert client.router.fleet.resume("w0")
        assert (await task).status_code == 200


async def test_who_rests_on_an_engine_that_takes_nothing_for_a_while_waits_for_it(clock):
    sections = {"queue": QUEUE, "breaker": BREAKER, "clock": clock}
    async with running(KeepingEngine()) as engine, in_process([engine.url], **sections) as client:
        made = await client.post("/v1/responses", json={"model": MODEL, "input": "hello"})
        pinned = {"model": MODEL, "input": "more", "previous_response_id": made.json()["id"]}
        script, engine.script = engine.script, answering(500)
        assert (await client.post("/v1/responses", json=pinned)).status_code == 500
        engine.script = script
        task = asyncio.ensure_future(client.post("/v1/responses", json=pinned))
        await eventually(lambda: waiting(client) == 1)
        clock.advance(BREAKER["open_s"])
        assert (await task).status_code == 200


async def test_a_pair_without_its_decode_engine_is_waited_out():
    async with AsyncExitStack() as stack:
        fabric = VllmFabric()
        engines = [VllmEngine(fabric, "both") for _ in range(2)]
        for each in engines:
            await each.start()
            stack.push_async_callback(each.stop)
        roles = zip(("prefill", "decode"), engines, strict=True)
        workers = [{"url": each.url, "id": role, "role": role} for role, each in roles]
        async with in_process([], workers=workers, queue=QUEUE, probes=PROBES) as client:
            engines[1].health_status = 503
            await eventually(lambda: is_out(client, "decode"))
            (task,) = await send(client, 1)
            engines[1].health_status = 200
            assert (await task).status_code == 200


@asynccontextmanager
async def refusing():
    """A router whose only worker refuses connections, unnoticed so far; and what brings that worker back."""
    async with AsyncExitStack() as later:
        port = take_port()
        async with running(FakeEngine(), port) as engine:
            client = await later.enter_async_context(in_process([engine.url], queue=QUEUE, probes=PROBES))
        assert not is_out(client)

        async def bring_back():
            return await later.enter_async_context(running(FakeEngine(), port))

        yield client, bring_back


async def test_who_met_the_refused_connection_waits_like_those_that_come_after(monkeypatch):
    monkeypatch.setitem(PROBES, "unhealthy_after", 10_000)
    async with refusing() as (client, bring_back):
        tasks = await send(client, 2)
        assert value(client.router, "upstream_errors_total", worker="w0", reason="upstream_unreachable") == 1
        engine = await bring_back()
        assert await statuses(tasks) == [200, 200]
        assert len(engine.requests) == 2


async def test_who_was_refused_waits_no_longer_in_all_than_others(engine, clock):
    """All its time in the queue is over when its worker refuses the connection: nothing is left to wait."""
    dies = asyncio.Event()

    async def die(_engine, request, _body):
        await dies.wait()
        request.transport.abort()
        await asyncio.Event().wait()

    engine.script = die
    async with in_process([engine.url], queue=QUEUE | {"max_wait_s": 1_000.0}, clock=clock) as client:
        first = asyncio.ensure_future(client.chat())
        await eventually(lambda: engine.requests)
        (task,) = await send(client, 1)
        clock.advance(1_001.0)
        for site in engine.sites:
            await site.stop()
        dies.set()
        assert (await first).status_code == 502
        async with asyncio.timeout(PATIENCE_S):
            check_told(await task, "queue_timeout", "0 of 1 workers ready")


async def test_what_a_request_waited_for_its_place_is_no_silence_of_the_worker(engine):
    release, loop = asyncio.Event(), asyncio.get_running_loop()
    engine.script = held_until(release)
    timeouts = {"first_byte_s": 0.3, "idle_s": 5.0}
    async with in_process([engine.url], queue=QUEUE, timeouts=timeouts) as client:
        first = asyncio.ensure_future(client.chat(stream=True))
        await eventually(lambda: engine.requests)
        (task,) = await send(client, 1)
        until_s = loop.time() + 0.4
        await eventually(lambda: loop.time() > until_s)
        assert not task.done()
        engine.script = well_behaved
        release.set()
        assert await statuses([first, task]) == [200, 200]
        assert value(client.router, "requests_total", outcome="timed_out") == 0


@pytest.mark.parametrize("reason", RejectReason)
async def test_what_can_pass_is_told_apart_from_what_waiting_cannot_mend(client, reason):
    passing = {
        RejectReason.NO_WORKER,
        RejectReason.ALL_UNHEALTHY,
        RejectReason.OVERLOADED,
        RejectReason.NO_PARTNER,
        RejectReason.PINNED_ELSEWHERE,
    }
    error = refusal(Reject("r", reason, None), MODEL, client.router._proxy_parts())
    assert isinstance(error, PassingError) == (reason in passing)
