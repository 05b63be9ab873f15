"""Ranks that fail get no requests for a while; those that are full, or whose clients err, go on."""

import asyncio
import json
import socket
from itertools import count

import pytest
from aiohttp import web
from api_engine import ApiEngine, generated, stream
from fake_engine import DONE, ROLE, answering, chunk, event, hanging, open_stream, running, streaming, well_behaved
from proxy_harness import CHAT, eventually, in_process, on_socket, value

from router.access.keys import hash_key

FAST = {"failures": 3, "open_s": 60.0}
PROBES = {"interval_s": 0.05, "unhealthy_after": 3}
NUMBERS = count(1)


def other(client, **fields):
    """Another conversation each time: failures of one and the same count once."""
    return client.chat(messages=[{"role": "user", "content": f"hello {next(NUMBERS)}"}], **fields)


def state(client, worker="w0"):
    return next(
        word
        for word in ("closed", "open", "half_open")
        if value(client.router, "breaker_state", worker=worker, dp_rank="0", state=word)
    )


async def test_D01_twenty_mistakes_of_clients_leave_the_worker_in_service(engine):
    async with in_process([engine.url], breaker=FAST) as client:
        engine.script = answering(400, b'{"error": {"message": "too long"}}')
        assert {(await client.chat()).status_code for _ in range(20)} == {400}
        engine.script = well_behaved
        assert (await client.chat()).status_code == 200
        assert state(client) == "closed"


TOO_LONG = {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400}


@pytest.mark.parametrize("is_stream", [True, False])
async def test_D01_a_mistake_of_a_client_that_is_told_with_status_200_leaves_the_worker_in_service(engine, is_stream):
    async with in_process([engine.url], breaker=FAST) as client:
        told = {"error": TOO_LONG}
        engine.script = streaming(event(told), DONE) if is_stream else answering(200, json.dumps(told).encode())
        assert {(await client.chat(stream=is_stream)).status_code for _ in range(20)} == {200}
        assert state(client) == "closed"
        assert value(client.router, "requests_total", outcome="client_error") == 20


async def test_an_error_told_with_status_200_that_is_the_engines_counts_as_a_failure(engine):
    async with in_process([engine.url], breaker=FAST) as client:
        engine.script = answering(200, b'{"error": {"message": "out of memory", "code": 500}}')
        for _ in range(3):
            assert (await other(client)).json()["error"]["message"] == "out of memory"
        assert state(client) == "open"
        assert value(client.router, "requests_total", outcome="error") == 3


async def test_after_output_no_error_is_a_mistake_of_the_client(engine):
    async with in_process([engine.url], breaker=FAST) as client:
        engine.script = streaming(ROLE, chunk("a"), event({"error": TOO_LONG}), DONE)
        for _ in range(3):
            await other(client, stream=True)
        assert state(client) == "open"


async def endless(_engine, request, _body):
    response = await open_stream(request)
    while True:
        await response.write(chunk("a" * 10_000))


async def test_D01_clients_that_stop_reading_leave_the_worker_in_service(engine):
    engine.script = endless
    timeouts = {"idle_s": 0.2, "first_byte_s": 5.0, "request_s": 30.0}
    async with on_socket([engine.url], breaker=FAST, timeouts=timeouts) as client:
        loop, address = asyncio.get_running_loop(), (client.base_url.host, client.base_url.port)
        body = json.dumps(CHAT | {"stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body)
        readers = [socket.socket() for _ in range(4)]
        for reader in readers:
            reader.setblocking(False)
            await loop.sock_connect(reader, address)
            await loop.sock_sendall(reader, head + body)
        await eventually(lambda: value(client.router, "requests_total", outcome="cancelled") == 4)
        assert state(client) == "closed"
        assert value(client.router, "upstream_errors_total", worker="w0", reason="upstream_timeout") == 0
        for reader in readers:
            reader.close()


async def test_D02_a_full_single_worker_is_asked_again_as_soon_as_it_has_room(engine):
    async with in_process([engine.url], breaker=FAST) as client:
        engine.script = answering(503, b'{"error": {"message": "queue full"}}', **{"Retry-After": "30"})
        assert {(await client.chat()).status_code for _ in range(10)} == {503}
        assert len(engine.requests) == 10
        engine.script = well_behaved
        assert (await client.chat()).status_code == 200


async def test_D02_a_full_worker_is_left_alone_while_another_takes_the_requests(engines, clock):
    full, other = engines
    full.script = answering(429, b"{}", **{"Retry-After": "9"})
    async with in_process([each.url for each in engines], policy={"name": "round_robin"}, clock=clock) as client:
        statuses = [(await client.chat()).status_code for _ in range(8)]
        assert statuses.count(429) == 1
        assert len(full.requests) == 1
        assert len(other.requests) == 7


async def test_a_worker_that_fails_is_out_and_a_probe_brings_it_back(engine, clock):
    async with in_process([engine.url], breaker=FAST, probes=PROBES, clock=clock) as client:
        engine.script = answering(500)
        assert [(await other(client)).status_code for _ in range(4)] == [500, 500, 500, 503]
        assert len(engine.requests) == 3
        assert state(client) == "open"
        assert value(client.router, "breaker_openings_total", worker="w0", dp_rank="0") == 1
        engine.script = well_behaved
        clock.advance(FAST["open_s"])
        await eventually(lambda: state(client) == "closed")
        assert (await client.chat()).status_code == 200


async def test_streams_that_break_and_answers_that_do_not_come_count_as_failures(engine):
    async with in_process([engine.url], breaker=FAST, timeouts={"first_byte_s": 1.0}) as client:
        engine.script = streaming(ROLE, chunk("a"), end="abort")
        await other(client, stream=True)
        engine.script = hanging
        assert (await other(client)).status_code == 504
        engine.script = answering(200, b"no JSON")
        assert (await other(client)).status_code == 502
        assert state(client) == "open"


async def test_an_answer_that_only_takes_longer_than_the_router_allows_is_no_failure(engine):
    async def dripping(_engine, request, _body):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(chunk("a"))
            await asyncio.sleep(0.01)

    engine.script = dripping
    async with in_process([engine.url], breaker={"failures": 1}, timeouts={"request_s": 0.1}) as client:
        await client.chat(stream=True)
        assert state(client) == "closed"


async def ask(client):
    return await client.post("/v1/chat/completions", json=CHAT, headers={"x-session-id": "s"})


async def test_D12_a_worker_that_holds_the_session_and_fails_is_not_asked_again_and_again(engines):
    async with in_process([each.url for each in engines], breaker={"failures": 5}) as client:
        home = engines[int((await ask(client)).headers["x-dovecote-worker"][1])]
        home.script = answering(500)
        before = len(home.requests)
        for _ in range(50):
            await ask(client)
        assert len(home.requests) - before <= 5


async def poisoned(_engine, request, body):
    """Fails what has the word in it, whoever sends it."""
    if b"poison" in body:
        return web.Response(status=500, body=b'{"error": {"message": "CUDA error"}}')
    return await well_behaved(_engine, request, body)


POISON = {"messages": [{"role": "user", "content": "poison"}]}


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_request_that_fails_again_and_again_leaves_the_worker_in_service_for_others(engine, is_stream):
    async with in_process([engine.url], breaker=FAST) as client:
        engine.script = poisoned
        assert {(await client.chat(stream=is_stream, **POISON)).status_code for _ in range(40)} == {500}
        assert state(client) == "closed"
        assert (await client.chat()).status_code == 200


@pytest.mark.parametrize("error", [b'{"error": {"message": "out of memory", "code": 500}}', b"no JSON"])
async def test_nor_does_it_where_the_failure_is_told_in_another_way(engine, error):
    async with in_process([engine.url], breaker=FAST) as client:
        engine.script = answering(200, error)
        for _ in range(10):
            await client.chat(**POISON)
        assert state(client) == "closed"


async def test_turns_of_one_conversation_are_one_cause_however_they_differ(engine):
    async with in_process([engine.url], breaker=FAST) as client:
        engine.script = answering(500)
        for number in range(10):
            turn = CHAT | {"messages": [{"role": "user", "content": f"turn {number}"}]}
            await client.post("/v1/chat/completions", json=turn, headers={"x-session-id": "one"})
        assert state(client) == "closed"


async def test_what_failed_twice_on_a_rank_is_tried_on_another_and_a_broken_rank_is_found_out(engines):
    """So that one client that repeats itself is not sent to the one broken rank for ever."""
    async with in_process([each.url for each in engines], breaker=FAST) as client:
        first = (await client.chat()).headers["x-dovecote-worker"]
        broken = engines[int(first[1])]
        broken.script = answering(500)
        statuses = [(await client.chat()).status_code for _ in range(10)]
        assert statuses.count(500) <= 2
        assert statuses[-1] == 200


async def test_the_poison_of_one_tenant_bars_no_rank_from_another_whom_it_serves(engine):
    secrets = {name: f"{name}-{'k' * 40}" for name in ("a", "b")}
    keys = [{"name": name, "hash": hash_key(secret)} for name, secret in secrets.items()]
    breaker = {"failures": 5, "window": 10, "window_failures": 4, "open_s": 60.0}
    async with in_process([engine.url], breaker=breaker, access={"keys": keys}) as client:
        engine.script = poisoned

        async def send(name, content):
            body = CHAT | {"messages": [{"role": "user", "content": content}]}
            lines = {"authorization": f"Bearer {secrets[name]}"}
            return (await client.post("/v1/chat/completions", json=body, headers=lines)).status_code

        for number in range(30):
            assert await send("a", f"poison {number}") == 500
            assert await send("b", "hello") == 200
        assert state(client) == "closed"


async def test_connections_that_do_not_come_about_are_nobodys_doing(engine):
    """However often the same request meets them."""
    async with in_process([engine.url], breaker=FAST, probes={"interval_s": 60.0}) as client:
        worker = client.router.fleet.workers["w0"]
        for site in engine.sites:
            await site.stop()
        for _ in range(3):
            # As if a probe had found it well in between.
            worker.gate.record(True)
            client.router.fleet._tell_placement(None)
            assert (await client.chat()).status_code == 502
        assert state(client) == "open"


async def test_calls_that_are_not_placed_count_by_their_path(engine):
    async with in_process([engine.url], breaker=FAST, forward={"prefixes": ["/v1/audio"]}) as client:
        engine.script = answering(500)
        for _ in range(10):
            await client.get("/v1/audio/voices")
        assert state(client) == "closed"


def ended(status, text="", **more):
    """How SGLang's `/generate` ends an answer that its scheduler gave up."""
    reason = {"type": "abort", "message": "odd"} | ({} if status is None else {"status_code": status})
    return event(generated(text, made=len(text), finish=reason, **more))


PLAIN_ERROR = event({"error": {"message": "The input is longer than the model's context length."}})


@pytest.mark.parametrize(
    ("events", "stands", "outcome"),
    [
        ((PLAIN_ERROR, DONE), "closed", "client_error"),
        ((ended(400), DONE), "closed", "client_error"),
        ((ended(None), DONE), "closed", "done"),
        ((ended(500), DONE), "open", "error"),
        ((ended(503), DONE), "closed", "error"),
        ((event(generated("a", made=1)), PLAIN_ERROR, DONE), "open", "error"),
        ((event(generated("a", made=1)), ended(500, "a"), DONE), "open", "error"),
        ((ended(400, index=0), ended(500, index=1), DONE), "open", "error"),
        ((ended(500, index=0), ended(400, index=1), DONE), "open", "error"),
    ],
)
async def test_D01_what_a_stream_of_generate_says_of_its_end_is_the_clients_or_the_engines(events, stands, outcome):
    async def script(_engine, request, _body):
        return await stream(request, events)

    async with running(ApiEngine()) as engine, in_process([engine.url], breaker=FAST) as client:
        engine.script = script
        for number in range(FAST["failures"]):
            body = {"text": f"hello {number}", "stream": True}
            answer = await client.post("/generate", json=body)
            assert answer.content == b"".join(events)
        assert state(client) == stands
        assert value(client.router, "requests_total", outcome=outcome) == FAST["failures"]


async def test_an_error_without_a_code_is_the_engines_on_every_other_path(engine):
    async with in_process([engine.url], breaker=FAST) as client:
        engine.script = streaming(PLAIN_ERROR, DONE)
        for _ in range(3):
            await other(client, stream=True)
        assert state(client) == "open"
