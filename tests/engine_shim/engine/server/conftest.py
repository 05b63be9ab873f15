"""A served engine: in memory for what is about answers, on a port for what is about connections."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from engine_serving import Gate, Served, is_idle, make_service

from engine_shim.engine.server import EngineService, build_app
from tests.waiting import eventually, wait_until


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def service(gate: Gate) -> EngineService:
    return make_service(gate)


@pytest.fixture
async def client(gate: Gate, service: EngineService) -> AsyncIterator[httpx.AsyncClient]:
    """Requests go straight to the application; at the end nothing may be left running or held."""
    app = build_app(service)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as opened:
            yield opened
        gate.open()
        await eventually(lambda: is_idle(service))
        for rank in service.ranks:
            pages = rank.snapshot.pages
            assert pages.free + pages.cached == pages.total


@pytest.fixture
def served(gate: Gate, service: EngineService) -> Iterator[Served]:
    """A real port; at the end nothing may be left running or held."""
    opened = Served(gate, service)
    try:
        yield opened
        gate.open()
        wait_until(lambda: is_idle(service))
    finally:
        opened.stop()
