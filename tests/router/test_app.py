"""The composition root: the parts fit, start and stop, and a process says where it listens."""

import asyncio
import json
import os
import signal
import socket
import sys

import httpx
import pytest

from router.app import Router
from router.config.fleet import build_fleet_config
from router.server import bind, serve_router
from tests.waiting import PATIENCE_S

CONFIG = {"workers": [{"url": "http://127.0.0.1:1", "id": "nobody"}]}


async def test_the_lifespan_starts_and_ends_every_part():
    router = Router(build_fleet_config(CONFIG, "test"))
    async with router.control.router.lifespan_context(router.control):
        assert router.events.is_alive
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=router), base_url="http://r") as client:
            assert (await client.get("/health")).status_code == 503
            page = (await client.get("/metrics")).text
            assert 'dovecote_router_worker_healthy{worker="nobody"} 0.0' in page
    assert not router.events.is_alive


async def test_a_request_before_the_start_is_an_error_and_no_crash():
    router = Router(build_fleet_config(CONFIG, "test"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=router), base_url="http://r") as client:
        response = await client.post("/v1/chat/completions", json={"model": "toy", "messages": []})
        assert response.status_code == 503
    router.prompts.close()
    router.events.stop()


async def test_the_process_prints_where_it_listens_and_ends_on_a_signal():
    command = (sys.executable, "-m", "router", "serve", "--port", "0", "--workers", "http://127.0.0.1:1")
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"DOVECOTE__LOGS__FORMAT": "json"},
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stdout.readline()).decode()
            assert line.startswith("listening on http://127.0.0.1:")
            async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
                assert (await client.get(line.split()[-1] + "/health")).status_code == 503
                assert (
                    "dovecote_router_collector_pause_seconds_count"
                    in (await client.get(line.split()[-1] + "/metrics")).text
                )
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode in {0, -signal.SIGTERM}
    assert b"Traceback" not in errors
    events = [json.loads(line)["event"] for line in errors.splitlines()]
    assert "worker_unhealthy" in events


@pytest.fixture
def own_sigterm():
    """A router that is begun in this process takes SIGTERM over."""
    kept = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, kept)


@pytest.mark.usefixtures("own_sigterm")
def test_a_taken_port_and_an_unknown_log_level_are_said():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit, match="cannot listen"):
        bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(SystemExit, match="log level"):
        serve_router(build_fleet_config(CONFIG, "test"), "loud")
