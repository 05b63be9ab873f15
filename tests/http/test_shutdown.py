"""A router that is told to end leaves its balancers first, serves on meanwhile, and finishes what runs."""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager

import httpx
from fake_engine import hanging, held_until
from proxy_harness import CHAT, eventually, in_process

from router.control.readiness import ASKED_WITHIN_S, WAIT_S, Readiness
from tests.waiting import PATIENCE_S


@asynccontextmanager
async def process(engine, **environment):
    """A router in a process of its own."""
    arguments = ("-m", "router", "serve", "--port", "0", "--log-level", "warning", engine.url)
    child = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=os.environ | environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def find_url(child):
    async with asyncio.timeout(PATIENCE_S):
        return (await child.stdout.readline()).decode().split()[-1]


def knocker():
    return httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S)


async def knock_until_nobody_listens(url):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with knocker() as newcomer:
                    await newcomer.get(f"{url}/livez")
            except httpx.ConnectError:
                return
            except httpx.TransportError:
                # Whoever was in line when it stopped listening is cut off.
                continue


@asynccontextmanager
async def streaming(engine, wait_s):
    """A router process that waits so long for its balancers, asked by one, and a stream that it has begun."""
    release = asyncio.Event()
    async with process(engine, DOVECOTE__SHUTDOWN__WAIT_S=wait_s) as child, knocker() as client:
        url = await find_url(child)
        assert (await client.get(f"{url}/readyz")).status_code == 200
        script, engine.script = engine.script, held_until(release)
        stream = asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=CHAT | {"stream": True}))
        await eventually(lambda: engine.requests)
        engine.script = script
        yield child, url
        await knock_until_nobody_listens(url)
        assert child.returncode is None
        release.set()
        assert (await stream).text.endswith("data: [DONE]\n\n")
        async with asyncio.timeout(PATIENCE_S):
            assert await child.wait() in {0, -signal.SIGTERM}


async def test_D09_after_sigterm_it_is_not_ready_and_serves_on_until_a_second_one_and_finishes_its_streams(engine):
    async with streaming(engine, "3600") as (child, url), knocker() as client:
        child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            while (await client.get(f"{url}/readyz")).status_code != 503:
                continue
        assert (await client.get(f"{url}/livez")).status_code == 200
        async with knocker() as newcomer:
            assert (await newcomer.post(f"{url}/v1/chat/completions", json=CHAT)).status_code == 200
        assert child.returncode is None
        child.send_signal(signal.SIGTERM)


async def test_D09_the_time_for_balancers_ends_by_itself(engine):
    async with streaming(engine, "0.1") as (child, _):
        child.send_signal(signal.SIGTERM)


async def test_what_outlasts_its_time_is_told_that_the_router_shuts_down(engine):
    async with process(engine, DOVECOTE__SHUTDOWN__GRACE_S="0.1") as child, knocker() as client:
        url = await find_url(child)
        engine.script = hanging
        whole = asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=CHAT))
        await eventually(lambda: len(engine.requests) == 1)
        engine.script = held_until(asyncio.Event())
        async with client.stream("POST", f"{url}/v1/chat/completions", json=CHAT | {"stream": True}) as stream:
            pieces = stream.aiter_text()
            assert '"content"' in await anext(pieces)
            child.send_signal(signal.SIGTERM)
            rest = "".join([piece async for piece in pieces])
        events = [line for line in rest.splitlines() if line]
        assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "shut_down"
        answer = await whole
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shut_down")
        async with asyncio.timeout(PATIENCE_S):
            assert await child.wait() in {0, -signal.SIGTERM}


async def test_D09_sigterm_while_it_starts_ends_it_in_order(engine):
    engine.health_gate.clear()
    async with process(engine, DOVECOTE__PROBES__INTERVAL_S="3600") as child:
        await eventually(lambda: engine.probes)
        child.send_signal(signal.SIGTERM)
        engine.health_gate.set()
        async with asyncio.timeout(PATIENCE_S):
            assert await child.wait() in {0, -signal.SIGTERM}
        assert await child.stdout.read() == b""


async def test_readiness_goes_by_workers_that_take_requests(engine):
    async with in_process([engine.url]) as client:
        assert (await client.get("/readyz")).json() == {"status": "ready", "workers": 1}
        client.router.fleet.drain("w0")
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/livez")).status_code == 200


def test_a_router_waits_for_balancers_that_asked_of_late_and_for_as_long_as_it_is_told(clock):
    readiness = Readiness(clock)
    assert readiness.leave(None) == 0.0
    readiness.ask()
    assert readiness.leave(None) == WAIT_S
    assert not readiness.ask()
    clock.advance(ASKED_WITHIN_S + 1)
    assert readiness.leave(None) == 0.0
    assert readiness.leave(3.0) == 3.0
