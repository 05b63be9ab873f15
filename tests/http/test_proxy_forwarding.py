"""What the engine receives and what the client gets back, when all goes well."""

import asyncio
import gzip
import json
import socket
import zlib

import pytest
from fake_engine import DONE, ROLE, USAGE, USAGE_CHUNK, WHOLE, answering, chunk, open_stream, streaming
from proxy_harness import CHAT, eventually, in_process, value

STREAM = b"".join([ROLE, chunk("a"), chunk("b"), chunk("c", "stop"), DONE])


async def test_a_whole_answer_comes_back_with_its_worker_and_rank(client, engine):
    response = await client.chat()
    assert response.status_code == 200
    assert response.json() == WHOLE
    assert response.headers["x-dovecote-worker"] == "w0"
    assert response.headers["x-dovecote-dp-rank"] == "0"
    assert response.headers["content-length"] == str(len(response.content))
    assert engine.requests[0][1] == response.request.content
    assert value(client.router, "requests_total", outcome="done") == 1
    assert value(client.router, "actual_cached_tokens_total", worker="w0", dp_rank="0") == 0


async def test_C15_the_engine_receives_the_clients_bytes(client, engine):
    body = b'{ "messages":[{"role":"user","content":"\\u00e9"}] ,"model":"toy","x":1e400,"big":9223372036854775808}'
    response = await client.post("/v1/chat/completions", content=body)
    assert response.status_code == 200
    assert engine.requests[0][1] == body


async def test_completions_are_routed_like_chats(client, engine):
    response = await client.post("/v1/completions", json={"model": "toy", "prompt": "once", "stream": True})
    assert response.content == STREAM
    assert engine.requests[0][0].path == "/v1/completions"


async def test_C13_the_usage_chunk_that_the_router_asked_for_is_not_the_clients_to_see(client, engine):
    response = await client.chat(stream=True)
    assert response.content == STREAM
    assert engine.body()["stream_options"] == {"include_usage": True}
    assert value(client.router, "predictions_total", accuracy="exact") == 0  # no tokenizer, no prediction
    assert client.router.placer.decisions.find_latest(1)[0].actual_cached_tokens == 0


async def test_C13_a_client_that_asks_for_usage_gets_it_once(client, engine):
    response = await client.chat(stream=True, stream_options={"include_usage": True})
    assert response.content == STREAM.replace(DONE, USAGE_CHUNK + DONE)
    assert response.content.count(b'"usage"') == 1


async def test_C11_multibyte_text_in_broken_pieces_arrives_as_it_was(client, engine):
    data = b"".join(
        [
            ROLE,
            chunk("日本語🐦"),
            'data: {"choices":[{"index":0,"delta":{"content":"é"}}]}\n\n'.encode(),
            chunk("", "stop"),
            DONE,
        ]
    )
    for step in (1, 2, 3, 7):
        engine.script = streaming(*[data[start : start + step] for start in range(0, len(data), step)])
        assert (await client.chat(stream=True)).content == data


async def test_G04_the_engine_sees_the_routers_rank_alone(client, engine):
    for name in ("X-Data-Parallel-Rank", "x-data-parallel-rank", "X-DATA-PARALLEL-RANK", "X-Override-Routed-Dp-Rank"):
        headers = [(name, "99"), (name, "98")]
        await client.post(
            "/v1/chat/completions", json=CHAT | {"routed_dp_rank": 5, "data_parallel_rank": 6}, headers=headers
        )
        seen = [value for header, value in engine.headers() if "rank" in header]
        assert seen == ["0"]
        assert "routed_dp_rank" not in engine.body()
        assert "data_parallel_rank" not in engine.body()


async def test_headers_of_the_client_pass_and_those_of_its_connection_do_not(client, engine):
    headers = {
        "Authorization": "Bearer k",
        "Connection": "x-mine",
        "X-Mine": "1",
        "X-Session-ID": "s",
        "Accept-Encoding": "gzip, br",
    }
    await client.post("/v1/chat/completions", json=CHAT, headers=headers)
    seen = dict(engine.headers())
    assert seen["authorization"] == "Bearer k"
    assert seen["x-session-id"] == "s"
    assert seen["accept-encoding"] == "identity"
    assert "x-mine" not in seen
    assert seen["host"] == engine.url.removeprefix("http://")


async def test_a_usable_request_id_is_kept_and_an_odd_one_is_replaced(client, engine):
    response = await client.post("/v1/chat/completions", json=CHAT, headers={"X-Request-Id": "my-id.1"})
    assert response.headers["x-request-id"] == "my-id.1"
    assert dict(engine.headers())["x-request-id"] == "my-id.1"
    response = await client.post("/v1/chat/completions", json=CHAT, headers={"X-Request-Id": "bad id\t" + "x" * 300})
    assert len(response.headers["x-request-id"]) == 32


async def test_C08_a_compressed_answer_passes_with_both_its_headers(client, engine):
    packed = gzip.compress(json.dumps(WHOLE).encode())
    engine.script = answering(body=packed, **{"Content-Encoding": "gzip", "Content-Length": str(len(packed))})
    response = await client.chat()
    assert response.json() == WHOLE
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["content-length"] == str(len(packed))
    assert (
        client.router.placer.decisions.find_latest(1)[0].actual_cached_tokens
        == USAGE["prompt_tokens_details"]["cached_tokens"]
    )


@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("X-GZIP", gzip.compress)]
)
@pytest.mark.parametrize("words", [1, 40_000])
async def test_C09_a_compressed_body_is_forwarded_plain_with_lines_that_say_so(client, engine, coding, pack, words):
    plain = json.dumps(CHAT | {"messages": [{"role": "user", "content": "word " * words}]}).encode()
    headers = {"content-encoding": coding, "content-type": "application/json"}
    response = await client.post("/v1/chat/completions", content=pack(plain), headers=headers)
    assert response.status_code == 200
    assert engine.requests[0][1] == plain
    seen = dict(engine.headers())
    assert "content-encoding" not in seen
    assert seen["content-length"] == str(len(plain))


async def test_C14_a_body_of_20_megabytes_is_taken(client, engine):
    response = await client.chat(messages=[{"role": "user", "content": "x" * 20_000_000}])
    assert response.status_code == 200
    assert len(engine.requests[0][1]) > 20_000_000


async def test_the_pieces_of_a_stream_are_forwarded_as_they_come(wire_client, engine):
    gate = asyncio.Event()

    async def script(_engine, request, _body):
        response = await open_stream(request)
        await response.write(ROLE)
        await gate.wait()
        await response.write(chunk("a", "stop") + DONE)
        return response

    engine.script = script
    async with wire_client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        pieces = response.aiter_raw()
        assert await anext(pieces) == ROLE
        gate.set()
        assert b"".join([piece async for piece in pieces]) == chunk("a", "stop") + DONE


async def test_sockets_to_engines_do_not_wait_to_fill_packets(wire_client, engine):
    seen = []

    async def script(engine, request, body):
        # A tiny first write after the head is what Nagle's algorithm would hold back.
        seen.append(request.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return await streaming(ROLE, chunk("a", "stop"), DONE)(engine, request, body)

    engine.script = script
    await wire_client.chat(stream=True)
    origins = wire_client.router._upstream.inner._origins.values()
    sockets = [each._transport.get_extra_info("socket") for origin in origins for each in origin.idle]
    assert sockets
    assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets)


async def test_a_router_that_ended_keeps_no_connection_to_an_engine(engine, monkeypatch):
    monkeypatch.setattr("router.proxy.pool.POOL_IDLE_S", 3_600.0)
    async with in_process([engine.url]) as client:
        await client.chat()
        ((request, _),) = engine.requests
        assert request.transport is not None
    await eventually(lambda: request.transport is None)


async def test_sessions_of_a_client_stay_with_one_worker(engines):
    async with in_process([engine.url for engine in engines]) as client:
        for _ in range(6):
            await client.post("/v1/chat/completions", json=CHAT, headers={"x-dovecote-session": "one"})
    assert sorted(len(engine.requests) for engine in engines) == [0, 6]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_decision_can_be_asked_for_by_the_id_in_the_answer(client, path):
    body = CHAT | {"prompt": "p"}
    response = await client.post(path, json=body)
    decision = (await client.get("/v1/decisions/" + response.headers["x-request-id"])).json()
    assert decision["decision"]["target"] == {"worker": "w0", "dp_rank": 0}
    assert decision["outcome"] == "done"
