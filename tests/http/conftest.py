"""A router in front of fake engines: under an ASGI transport, or on a socket of its own."""

from contextlib import AsyncExitStack

import pytest
from fake_engine import FakeEngine, running
from proxy_harness import in_process, on_socket


@pytest.fixture
async def engines():
    """Two fake engines."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(running(FakeEngine())) for _ in range(2)]


@pytest.fixture
async def engine(engines):
    return engines[0]


@pytest.fixture
async def client(engine):
    """A client of a router with one engine, in process."""
    async with in_process([engine.url]) as client:
        yield client


@pytest.fixture
async def wire_client(engine):
    """The same over a socket."""
    async with on_socket([engine.url]) as client:
        yield client
