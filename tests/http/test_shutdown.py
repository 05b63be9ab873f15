"""A router that is told to end leaves its balancers first, serves on meanwhile, and finishes what runs."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import httpx
import pytest
from fake_engine import held_until
from proxy_harness import CHAT, eventually, in_process

from router.control.readiness import ASKED_WITHIN_S, WAIT_S, Readiness


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
    async with asyncio.timeout(30):
        return (await child.stdout.readline()).decode().split()[-1]


async def knock_until_nobody_answers(url):
    async with asyncio.timeout(30):
        while True:
            async with httpx.AsyncClient(trust_env=False) as newcomer:
                await newcomer.get(f"{url}/livez")
            await asyncio.sleep(0.05)


async def test_D09_after_sigterm_it_is_not_ready_serves_on_and_finishes_its_streams(engine):
    release = asyncio.Event()
    async with process(engine, DOVECOTE__SHUTDOWN__WAIT_S="2.0") as child, httpx.AsyncClient(trust_env=False) as client:
        url = await find_url(child)
        assert (await client.get(f"{url}/readyz")).status_code == 200
        script, engine.script = engine.script, held_until(release)
        stream = asyncio.create_task(
            client.post(f"{url}/v1/chat/completions", json=CHAT | {"stream": True}, timeout=30)
        )
        await eventually(lambda: engine.requests)
        engine.script = script
        child.send_signal(signal.SIGTERM)
        statuses = set()
        while 503 not in statuses:
            statuses.add((await client.get(f"{url}/readyz")).status_code)
            assert (await client.get(f"{url}/livez")).status_code == 200
        async with httpx.AsyncClient(trust_env=False) as newcomer:
            answer = await newcomer.post(f"{url}/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200
        assert child.returncode is None
        with pytest.raises(httpx.ConnectError):
            await knock_until_nobody_answers(url)
        release.set()
        assert (await stream).text.endswith("data: [DONE]\n\n")
        async with asyncio.timeout(20):
            assert await child.wait() in {0, -signal.SIGTERM}


async def test_D09_sigterm_while_it_starts_ends_it_in_order(engine):
    engine.hangs_at_health = True
    async with process(engine) as child:
        async with asyncio.timeout(60):
            while not engine.probes:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
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
