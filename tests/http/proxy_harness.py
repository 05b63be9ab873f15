"""A router in front of fake engines: under an ASGI transport, or on a socket of its own."""

import asyncio
import socket
import time
from contextlib import asynccontextmanager

import httpx
import uvicorn
from fake_engine import MODEL

from router.app import Router
from router.config.fleet import build_fleet_config
from router.control.registry import Entry
from router.server import uvicorn_config
from tests.waiting import PATIENCE_S, eventually

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


def value(router, name, **labels):
    """A sample of the metrics page, 0 where it is absent."""
    return router.metrics.registry.get_sample_value("dovecote_router_" + name, labels) or 0.0


def check_idle(router):
    """Nothing is charged and nothing runs: every path released exactly once."""
    router.placer.check_invariants()
    assert router.placer.ledger.open_requests() == ()
    assert router.count_running() == 0
    assert router.placer.ignored.late == 0


def move(worker, url):
    """A worker is at another address now, and nobody has seen it yet."""
    worker.entry = Entry(worker.config.model_copy(update={"url": url}))


def config_for(urls, **sections):
    workers = [{"url": url, "id": f"w{place}"} for place, url in enumerate(urls)]
    probes = {"interval_s": 60.0, "unhealthy_after": 3}
    return build_fleet_config({"workers": workers, "probes": probes} | sections, "test")


class Client(httpx.AsyncClient):
    """Client of a router, which it carries along."""

    def __init__(self, router, **arguments):
        super().__init__(**arguments, timeout=PATIENCE_S, trust_env=False)
        self.router = router

    async def chat(self, **fields):
        return await self.post("/v1/chat/completions", json=CHAT | fields)


def leap(by_s):
    """The running event loop's clock leaps: what is due by then comes at once."""
    loop = asyncio.get_running_loop()
    on_time = loop.time
    loop.time = lambda: on_time() + by_s


@asynccontextmanager
async def in_process(urls, *, clock=time.monotonic, **sections):
    """A router under an ASGI transport; what it leaves charged fails the test."""
    router = Router(config_for(urls, **sections), clock=clock)
    async with router.control.router.lifespan_context(router.control):
        transport = httpx.ASGITransport(app=router, raise_app_exceptions=True)
        async with Client(router, transport=transport, base_url="http://router") as client:
            yield client
            check_idle(router)


@asynccontextmanager
async def on_socket(urls, *, tls=None, verify=True, clock=time.monotonic, **sections):
    """A router on a real socket, for what only sockets do: pieces, disconnects, slow readers, TLS."""
    router = Router(config_for(urls, **sections), clock=clock)
    server = uvicorn.Server(uvicorn_config(router, "warning", tls))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server._serve([listener]))
        await eventually(lambda: server.started or task.done())
        base_url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        async with Client(router, base_url=base_url, verify=verify) as client:
            client.server = server
            yield client
            await eventually(lambda: not router.placer.ledger.open_requests())
            check_idle(router)
        server.should_exit = True
        await task
