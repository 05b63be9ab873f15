"""Flush, abort and hints."""

import asyncio
import json

import httpx
import pytest
import zmq
import zmq.asyncio
from engine_serving import chat_body, read_events

from tests.waiting import eventually
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared
from wire.frames import parse_live, parse_replay
from wire.hints import HintStatus, decode_outcome

CHAT = "/v1/chat/completions"


def hints_body(actions: int = 2) -> dict[str, object]:
    words = [{"action_id": f"a{index}", "action_type": "kv.pin", "payload": {}} for index in range(actions)]
    return {"protocol_version": "0.1", "message_id": "m1", "actions": words}


async def replay(address: str) -> list[bytes]:
    """Every payload a replay from 0 gives."""
    context = zmq.asyncio.Context()
    dealer = context.socket(zmq.DEALER)
    try:
        dealer.connect(address)
        await dealer.send_multipart([b"", bytes(8)])
        payloads = []
        while payload := getattr(parse_replay(await dealer.recv_multipart()), "payload", None):
            payloads.append(payload)
        return payloads
    finally:
        context.destroy(linger=0)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_flush_empties_every_rank_and_says_so_in_the_events(client, service, method):
    for rank in (0, 1):
        await client.post(CHAT, json=chat_body("words to be cached here", routed_dp_rank=rank))
    assert all(rank.snapshot.pages.cached for rank in service.ranks)
    assert (await client.request(method, "/flush_cache")).status_code == 200
    for rank in (0, 1):
        batches = [decode_batch(payload) for payload in await replay(service.publisher.sockets.replay.address(rank))]
        assert batches[-1].events == (AllBlocksCleared(),)
        assert service.ranks[rank].snapshot.pages.cached == 0
    answer = (await client.post(CHAT, json=chat_body("words to be cached here", routed_dp_rank=0))).json()
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_flush_is_refused_while_a_request_runs_and_drops_nothing(client, gate, service):
    await client.post(CHAT, json=chat_body("words to be cached here", routed_dp_rank=0))
    gate.close()
    running = asyncio.ensure_future(client.post(CHAT, json=chat_body(routed_dp_rank=1)))
    await eventually(lambda: service.hub.requests == (0, 1))
    assert (await client.post("/flush_cache")).status_code == 400
    gate.open()
    await running
    assert service.ranks[0].snapshot.pages.cached


async def test_C05_an_abort_ends_exactly_the_request_of_that_name(client, gate, service):
    gate.close()
    named = {
        rid: asyncio.ensure_future(client.post("/generate", json={"text": "x", "rid": rid})) for rid in ("abc", "abcd")
    }
    await eventually(lambda: sum(service.hub.requests) == 2)
    assert (await client.post("/abort_request", json={"rid": "ab"})).json() == {"aborted": 0}
    assert (await client.post("/abort_request", json={"rid": "abc"})).json() == {"aborted": 1}
    assert (await named["abc"]).json()["meta_info"]["finish_reason"]["type"] == "abort"
    assert sum(service.hub.requests) == 1
    gate.open()
    assert (await named["abcd"]).json()["meta_info"]["finish_reason"]["type"] == "length"


async def test_an_abort_of_all_ends_streams_with_finish_reason_abort(client, gate, service):
    gate.close()
    names = ("one", "two")
    tasks = [
        asyncio.ensure_future(client.post(CHAT, json=chat_body(stream=True), headers={"X-Request-Id": name}))
        for name in names
    ]
    await eventually(lambda: sum(service.hub.requests) == 2)
    assert (await client.post("/abort_request", json={"abort_all": True})).json() == {"aborted": 2}
    for response in await asyncio.gather(*tasks):
        *_, last, done = read_events(response)
        assert json.loads(last)["choices"][0]["finish_reason"] == "abort"
        assert done == "[DONE]"


async def test_a_running_rid_may_not_be_used_twice(client, gate, service):
    gate.close()
    first = asyncio.ensure_future(client.post("/generate", json={"text": "x", "rid": "r"}))
    await eventually(lambda: sum(service.hub.requests) == 1)
    assert (await client.post("/generate", json={"text": "x", "rid": "r"})).status_code == 400
    gate.open()
    assert (await first).status_code == 200
    assert (await client.post("/generate", json={"text": "x", "rid": "r"})).status_code == 200


async def test_every_action_of_an_envelope_is_rejected_as_not_supported(client):
    response = await client.post("/v1/kv_hints", json=hints_body())
    assert response.json() == {
        "protocol_version": "0.1",
        "message_id": "m1",
        "outcomes": [
            {"message_id": "m1", "action_id": f"a{index}", "status": "rejected", "reason": "not supported"}
            for index in (0, 1)
        ],
    }


async def read_outcomes(client: httpx.AsyncClient) -> list[str]:
    place = (await client.get("/server_info")).json()["kv_hints"]
    payloads = await replay(f"tcp://127.0.0.1:{place['replay_endpoint_port']}")
    outcomes = [decode_outcome(payload) for payload in payloads]
    assert all(outcome.status is HintStatus.REJECTED for outcome in outcomes)
    return [outcome.action_id for outcome in outcomes]


async def test_outcomes_are_published_with_numbers_and_replay(client):
    place = (await client.get("/server_info")).json()["kv_hints"]
    context = zmq.asyncio.Context()
    sub = context.socket(zmq.SUB)
    sub.setsockopt(zmq.SUBSCRIBE, place["topic"].encode())
    sub.connect(f"tcp://127.0.0.1:{place['endpoint_port']}")
    try:
        sent = 0
        while not await sub.poll(20):
            await client.post("/v1/kv_hints", json=hints_body(1))
            sent += 1
        frame = parse_live(await sub.recv_multipart())
    finally:
        context.destroy(linger=0)
    assert frame.topic == "kv_hint_outcomes"
    assert 0 <= frame.seq < sent
    assert decode_outcome(frame.payload).reason == "not supported"
    assert len(await read_outcomes(client)) == sent


async def test_hints_that_come_with_a_request_are_answered_on_the_topic(client):
    assert (await client.post(CHAT, json=chat_body(kv_hints=hints_body(2)))).status_code == 200
    assert (await client.post(CHAT, json=chat_body(kv_hints={"nonsense": 1}))).status_code == 200
    assert await read_outcomes(client) == ["a0", "a1"]
