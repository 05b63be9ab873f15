"""Questions to an engine end within their limit, however its answer comes."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from router.control.engine_client import EngineClient


class Dripping(httpx.AsyncByteStream):
    """An answer of which one byte is there, and the next is always still to come."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()


@pytest.fixture
async def client():
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Dripping()))
    async with httpx.AsyncClient(transport=transport) as http:
        yield EngineClient(http, "http://engine", 0.05)


async def test_an_engine_that_drips_its_health_is_not_well(client):
    assert "TimeoutError" in await client.probe()


async def test_an_engine_that_drips_says_nothing_of_itself(client):
    assert await client.read_facts() is None
    assert await client.read_loads() is None
    assert await client.tokenize({"prompt": "x"}) is None
