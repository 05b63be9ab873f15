"""A forward that raises fails the requests of its rank; the process and the other rank go on."""

import asyncio
import json

import httpx
import msgspec
from engine_serving import chat_body, is_idle, make_service, read_events
from test_engine_control import replay

from engine_shim.engine.server import build_app
from tests.waiting import eventually
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared

CHAT = "/v1/chat/completions"


async def test_a_broken_step_is_500_for_its_rank_and_nobody_else(client, gate, service):
    gate.close()
    doomed = [asyncio.ensure_future(client.post(CHAT, json=chat_body(n=2, routed_dp_rank=1))) for _ in range(2)]
    await eventually(lambda: service.hub.requests == (0, 4))
    gate.break_next_step()
    gate.open()
    for response in await asyncio.gather(*doomed):
        if response.status_code == 200:
            continue
        assert response.status_code == 500
        assert "the device fell over" in response.json()["error"]["message"]
    assert service.ranks[1].failures == 1
    for rank in (0, 1):
        assert (await client.post(CHAT, json=chat_body(routed_dp_rank=rank))).status_code == 200


async def test_a_broken_step_clears_the_cache_and_publishes_that(client, gate, service):
    body = chat_body("words that are cached by now", routed_dp_rank=0)
    await client.post(CHAT, json=body)
    before = service.publisher.topics[0].published_batches
    gate.break_next_step()
    assert (await client.post(CHAT, json=chat_body(routed_dp_rank=0))).status_code == 500
    payloads = await replay(service.publisher.sockets.replay.address(0))
    assert decode_batch(payloads[before]).events == (AllBlocksCleared(),)
    answer = (await client.post(CHAT, json=body)).json()
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_broken_step_keeps_the_counters_from_going_back(client, gate, service):
    await client.post(CHAT, json=chat_body(routed_dp_rank=0))
    before = dict(service.ranks[0].snapshot.counters)
    gate.break_next_step()
    await client.post(CHAT, json=chat_body(routed_dp_rank=0))
    after = service.ranks[0].snapshot.counters
    assert all(after[name] >= value for name, value in before.items())


async def test_C12_a_stream_that_breaks_ends_with_an_error_and_no_done(client, gate, service):
    gate.close()
    streaming = asyncio.ensure_future(client.post(CHAT, json=chat_body(stream=True, max_tokens=50)))
    await eventually(lambda: sum(service.hub.requests) == 1 and gate.steps > 0)
    gate.break_next_step()
    gate.open()
    events = read_events(await streaming)
    assert json.loads(events[-1])["error"]["code"] == 500
    assert "[DONE]" not in events


async def test_a_server_that_shuts_down_ends_its_streams_with_an_error(client, gate, service):
    gate.close()
    streaming = asyncio.ensure_future(client.post(CHAT, json=chat_body(stream=True, max_tokens=50)))
    waiting = asyncio.ensure_future(client.post(CHAT, json=chat_body(max_tokens=50)))
    await eventually(lambda: sum(service.hub.requests) == 2 and gate.steps > 1)
    service.hub.drain()
    service.hub.fail_all()
    events = read_events(await streaming)
    assert json.loads(events[-1])["error"]["code"] == 503
    assert "[DONE]" not in events
    assert (await waiting).status_code == 503


async def test_a_full_queue_is_429(gate):
    service = make_service(gate, dp_size=1, max_waiting_requests=1, max_running_requests=1)
    app = build_app(service)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://e") as client:
        gate.close()
        tasks = [asyncio.ensure_future(client.post(CHAT, json=chat_body(max_tokens=2)))]
        await eventually(lambda: gate.steps == 1)
        tasks += [asyncio.ensure_future(client.post(CHAT, json=chat_body(max_tokens=1))) for _ in range(5)]
        await eventually(lambda: service.hub.requests == (6,))
        gate.open()
        statuses = [response.status_code for response in await asyncio.gather(*tasks)]
        await eventually(lambda: is_idle(service))
    assert statuses[0] == 200
    assert sorted(statuses[1:]) == [200, 429, 429, 429, 429]


async def test_a_rank_that_cannot_start_over_fails_everything_and_health_says_so(gate):
    """Its engine breaks and no new one can be built: nobody waits for it, the other rank serves on."""
    service = make_service(gate)
    build_engine = service.ranks[1]._ports.build_engine

    def refuse():
        raise MemoryError("no room for another engine")

    service.ranks[1]._ports = msgspec.structs.replace(service.ranks[1]._ports, build_engine=refuse)
    app = build_app(service)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://e") as client:
        gate.close()
        first = asyncio.ensure_future(client.post(CHAT, json=chat_body(routed_dp_rank=1)))
        await eventually(lambda: gate.steps == 1)
        second = asyncio.ensure_future(client.post(CHAT, json=chat_body(routed_dp_rank=1)))
        await eventually(lambda: service.hub.requests == (0, 2))
        gate.break_next_step()
        gate.open()
        assert [(await task).status_code for task in (first, second)] == [500, 500]
        await eventually(lambda: not service.ranks[1].is_alive)
        assert (await client.get("/health")).status_code == 503
        assert (await client.post(CHAT, json=chat_body(routed_dp_rank=1))).status_code == 503
        assert (await client.post(CHAT, json=chat_body(routed_dp_rank=0))).status_code == 200
        assert (await client.post("/flush_cache")).status_code == 400
    assert build_engine().pages.leased == 0
