"""Everything that can go wrong has one clear answer, counts once, and leaves nothing charged."""

import asyncio
import gzip
import json
from contextlib import ExitStack

import pytest
from fake_engine import DONE, ROLE, answering, chunk, event, hanging, open_stream, raw_server, streaming
from proxy_harness import CHAT, eventually, in_process, move, on_socket, value

from tests.ports import closed_port
from tests.waiting import PATIENCE_S


@pytest.fixture
def dead_url():
    """Makes addresses at which nobody listens."""
    with ExitStack() as stack:
        yield lambda: f"http://127.0.0.1:{stack.enter_context(closed_port())}"


def check_error(response, status, code):
    assert response.status_code == status
    error = response.json()["error"]
    assert error["code"] == code
    assert set(error) == {"message", "type", "param", "code"}
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"nonsense", b'{"model":"toy"}', b'{"messages":NaN}', b"\xef\xbb\xbf{}", b"[" * 100_000]
)
async def test_C17_bad_bodies_are_400(client, engine, body):
    check_error(await client.post("/v1/chat/completions", content=body), 400, "invalid_request")
    assert engine.requests == []
    assert value(client.router, "requests_total", outcome="client_error") == 1
    assert value(client.router, "errors_total", reason="invalid_request") == 1


async def test_C10_half_a_surrogate_pair_is_400_wherever_it_stands(client, engine):
    for body in (
        b'{"messages":[{"role":"user","content":"\\ud83d"}],"model":"toy"}',
        b'{"messages":[],"session_id":"\\ud83d"}',
    ):
        check_error(await client.post("/v1/chat/completions", content=body), 400, "invalid_request")
    headers = {"x-dovecote-session": b"\xed\xa0\xbd"}
    assert (await client.post("/v1/chat/completions", json=CHAT, headers=headers)).status_code == 200


async def test_G03_internal_fields_are_400(client, engine):
    response = await client.chat(bootstrap_host="2.2.2.2")
    check_error(response, 400, "invalid_request")
    assert response.json()["error"]["param"] == "bootstrap_host"


async def test_C18_mistakes_of_clients_are_not_503(client):
    check_error(await client.chat(model="other"), 404, "model_not_found")
    check_error(await client.get("/v1/chat/completions"), 405, "method_not_allowed")
    check_error(await client.get("/nothing/here"), 404, "not_found")
    check_error(await client.post("/v1/chat/completions/", json=CHAT), 404, "not_found")
    check_error(await client.get("/v1/decisions/unknown"), 404, "decision_not_found")
    check_error(await client.get("/v1/decisions?limit=x"), 400, "invalid_request")


async def test_C14_a_body_over_the_limit_is_413_with_a_metric(engine):
    async with in_process([engine.url], limits={"body_bytes": 1_000}) as client:
        check_error(await client.chat(messages=[{"role": "user", "content": "x" * 2_000}]), 413, "body_too_large")
        assert value(client.router, "errors_total", reason="body_too_large") == 1


async def test_C09_compressed_bodies_are_bounded_and_broken_ones_are_the_clients_fault(engine):
    async with in_process([engine.url], limits={"body_bytes": 1_000}) as client:

        async def post(coding, content):
            headers = {"content-encoding": coding, "content-type": "application/json"}
            return await client.post("/v1/chat/completions", content=content, headers=headers)

        check_error(await post("br", b"x"), 415, "unsupported_encoding")
        check_error(await post("gzip, br", b"x"), 415, "unsupported_encoding")
        check_error(await post("gzip", b"x"), 400, "invalid_request")
        check_error(await post("gzip", gzip.compress(b"{")), 400, "invalid_request")
        check_error(await post("gzip", gzip.compress(bytes(100_000))), 413, "body_too_large")
        assert engine.requests == []


async def test_huge_headers_are_431(client):
    headers = {"x-big": "x" * 100_000}
    check_error(await client.post("/v1/chat/completions", json=CHAT, headers=headers), 431, "headers_too_large")


async def test_without_a_healthy_worker_it_is_503_with_retry_after(dead_url):
    async with in_process([dead_url()]) as client:
        response = await client.chat()
        check_error(response, 503, "no_worker")
        assert int(response.headers["retry-after"]) >= 1
        assert (await client.get("/health")).status_code == 503
        assert value(client.router, "requests_total", outcome="rejected") == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
async def test_an_error_of_the_worker_passes_with_its_body(client, engine, status, stream):
    text = json.dumps({"error": {"message": "no", "type": "t", "param": None, "code": None}}).encode()
    engine.script = answering(status, text, **{"Retry-After": "7"})
    response = await client.chat(stream=stream)
    assert response.status_code == status
    assert response.content == text
    assert response.headers["retry-after"] == "7"
    assert len(engine.requests) == 1
    outcome = "error" if status >= 500 else "client_error"
    assert value(client.router, "requests_total", outcome=outcome) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x01\x02 not http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\ncontent-type: application/json\r\n\r\n<html/>",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\ncontent-type: text/event-stream\r\n\r\n<html>",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{}",
        b"",
    ],
)
async def test_garbage_from_a_worker_is_502(answer, stream):
    async with raw_server(answer) as url, in_process([url]) as client:
        response = await client.chat(stream=stream)
        assert response.status_code == 502
        assert response.json()["error"]["type"] == "upstream_error"
        assert value(client.router, "errors_total", reason=response.json()["error"]["code"]) == 1
        assert (await client.get("/health")).status_code == 200


async def test_C12_a_worker_that_dies_in_the_stream_gives_an_error_event_and_no_done(client, engine):
    engine.script = streaming(ROLE, *[chunk("x")] * 5, end="abort")
    response = await client.chat(stream=True)
    assert response.status_code == 200
    sent, _, last = response.content.rstrip(b"\n").rpartition(b"data: ")
    assert sent.startswith(ROLE)
    assert sent.count(chunk("x")) == 5
    assert json.loads(last)["error"]["code"] == "upstream_closed"
    assert b"[DONE]" not in response.content
    assert value(client.router, "requests_total", outcome="worker_lost") == 1
    assert value(client.router, "upstream_errors_total", worker="w0", reason="upstream_closed") == 1


async def test_C12_a_stream_that_ends_politely_but_too_early_is_an_error_too(client, engine):
    engine.script = streaming(ROLE, chunk("x"), b'data: {"cut')
    response = await client.chat(stream=True)
    assert json.loads(response.content.rstrip(b"\n").rpartition(b"data: ")[2])["error"]["code"] == "upstream_closed"


async def test_C12_a_finished_answer_without_done_is_no_error(client, engine):
    engine.script = streaming(ROLE, chunk("x"), chunk("", "stop"))
    response = await client.chat(stream=True)
    assert response.content == ROLE + chunk("x") + chunk("", "stop")
    assert value(client.router, "requests_total", outcome="done") == 1


async def test_an_error_event_of_the_engine_passes_and_counts(client, engine):
    pieces = [ROLE, event({"error": {"message": "out of memory"}}), DONE]
    engine.script = streaming(*pieces)
    response = await client.chat(stream=True)
    assert response.content == b"".join(pieces)
    assert value(client.router, "requests_total", outcome="error") == 1


async def test_a_stream_that_breaks_before_its_first_event_is_502(client, engine):
    engine.script = streaming(end="abort")
    check_error(await client.chat(stream=True), 502, "upstream_closed")


async def test_C19_a_refused_connection_is_tried_once_elsewhere(engines, dead_url):
    class Gone:
        url = dead_url()

    async with in_process([engine.url for engine in engines]) as client:
        # The second worker goes away without the probes having seen it.
        move(client.router.fleet.workers["w1"], Gone.url)
        responses = [await client.chat() for _ in range(4)]
        assert [response.status_code for response in responses] == [200] * 4
        assert {response.headers["x-dovecote-worker"] for response in responses} == {"w0"}
        assert value(client.router, "retries_total") <= 1
        assert len(engines[0].requests) == 4


async def test_C19_when_nobody_else_is_there_a_refused_connection_is_502(client, engine, dead_url):
    worker = client.router.fleet.workers["w0"]
    move(worker, dead_url())
    check_error(await client.chat(), 502, "upstream_unreachable")
    # From then on it is known to be away.
    check_error(await client.chat(), 503, "all_unhealthy")


async def test_C19_a_worker_that_took_the_request_and_broke_off_is_not_asked_again(engines):
    async def breaks(_engine, request, _body):
        request.transport.abort()
        await asyncio.Event().wait()

    for engine in engines:
        engine.script = breaks
    async with in_process([engine.url for engine in engines]) as client:
        check_error(await client.chat(), 502, "upstream_closed")
    assert sum(len(engine.requests) for engine in engines) == 1


async def test_C06_a_hung_worker_times_out_alone(engines):
    hung, well = engines
    hung.script = hanging
    timeouts = {"first_byte_s": 2.0, "idle_s": 2.0}
    async with in_process([hung.url, well.url], timeouts=timeouts, policy={"name": "round_robin"}) as client:
        responses = await asyncio.gather(*(client.chat() for _ in range(40)))
        by_worker = {response.headers["x-dovecote-worker"]: response for response in responses}
        check_error(by_worker["w0"], 504, "upstream_timeout")
        assert by_worker["w1"].status_code == 200
        assert len(well.requests) == 20
        assert value(client.router, "requests_total", outcome="timed_out") == 20


async def test_a_stream_that_stalls_ends_with_an_error_event(engine):
    engine.script = streaming(ROLE, chunk("x"), end="hang")
    async with in_process([engine.url], timeouts={"first_byte_s": 5.0, "idle_s": 0.2}) as client:
        response = await client.chat(stream=True)
        assert (
            json.loads(response.content.rstrip(b"\n").rpartition(b"data: ")[2])["error"]["code"] == "upstream_timeout"
        )
        assert value(client.router, "requests_total", outcome="timed_out") == 1


async def test_C04_a_client_that_leaves_closes_the_upstream_stream(wire_client, engine):
    async def endless(_engine, request, _body):
        response = await open_stream(request)
        while True:
            await response.write(chunk("x"))
            await asyncio.sleep(0.001)

    engine.script = endless
    for path in ("/v1/chat/completions", "/v1/completions"):
        engine.saw_disconnect.clear()
        async with wire_client.stream("POST", path, json=CHAT | {"stream": True, "prompt": "p"}) as response:
            pieces = response.aiter_raw()
            for _ in range(3):
                await anext(pieces)
        async with asyncio.timeout(PATIENCE_S):
            await engine.saw_disconnect.wait()
    assert value(wire_client.router, "requests_total", outcome="cancelled") == 2


async def test_C03_a_client_that_leaves_a_whole_answer_closes_the_upstream(wire_client, engine):
    engine.script = hanging
    request = asyncio.create_task(wire_client.chat())
    await eventually(lambda: engine.requests)
    request.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await engine.saw_disconnect.wait()


async def test_a_slow_reader_slows_the_worker_instead_of_filling_memory(engine):
    sent_bytes = 0

    async def flood(_engine, request, _body):
        nonlocal sent_bytes
        response = await open_stream(request)
        piece = chunk("x" * 60_000)
        for _ in range(1_000):
            await response.write(piece)
            sent_bytes += len(piece)
        await response.write(DONE)
        return response

    engine.script = flood
    body = CHAT | {"stream": True}
    async with on_socket([engine.url]) as client, client.stream("POST", "/v1/chat/completions", json=body) as response:
        # An iterator that nobody holds would close the answer.
        pieces = response.aiter_raw()
        await anext(pieces)
        connections = client.server.server_state.connections
        await eventually(lambda: any(each.is_full for each in connections))
        for _ in range(2_000):
            await asyncio.sleep(0)
        assert sent_bytes < 30_000_000


async def test_E02_gauges_are_zero_after_every_kind_of_end(client, engine):
    for script in (answering(500), streaming(ROLE, end="abort"), streaming(end="abort"), answering(200, b"<")):
        engine.script = script
        await client.chat(stream=True)
    await client.post("/v1/chat/completions", content=b"{")
    assert value(client.router, "inflight_requests", worker="w0", dp_rank="0") == 0
    total = sum(
        value(client.router, "requests_total", outcome=outcome) for outcome in ("error", "worker_lost", "client_error")
    )
    assert total == 5


async def test_E04_only_streamed_output_feeds_time_to_first_token(client, engine):
    await client.chat()
    engine.script = answering(500)
    await client.chat(stream=True)
    assert value(client.router, "ttft_seconds_count") == 0
    engine.script = streaming(ROLE, chunk("a", "stop"), DONE)
    await client.chat(stream=True)
    assert value(client.router, "ttft_seconds_count") == 1
    assert value(client.router, "request_duration_seconds_count") == 3


async def test_E01_names_that_clients_choose_make_no_series(client):
    async def series():
        return {line.partition(" ")[0] for line in (await client.get("/metrics")).text.splitlines() if line[0] != "#"}

    await client.chat(model="warm-up")
    await client.get("/warm/up")
    before = await series()
    for place in range(50):
        await client.post(
            "/v1/chat/completions", json=CHAT | {"model": f"m{place}"}, headers={"x-session-id": f"s{place}"}
        )
        await client.request("GET", f"/path/{place}")
    assert await series() == before
    assert value(client.router, "requests_total", outcome="client_error") == 51


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_dribbles_for_ever_ends_at_the_limit_of_the_whole_request(engine, stream):
    async def dribble(_engine, request, body):
        response = await open_stream(request, **({} if json.loads(body).get("stream") else {"Content-Type": "x/y"}))
        while True:
            await response.write(chunk("x"))
            await asyncio.sleep(0.001)

    engine.script = dribble
    async with on_socket([engine.url], timeouts={"request_s": 1.5}) as client:
        response = await client.chat(stream=stream)
        if stream:
            error = json.loads(response.content.rstrip(b"\n").rpartition(b"data: ")[2])["error"]
        else:
            check_error(response, 504, "upstream_timeout")
            error = response.json()["error"]
        assert (error["code"], error["message"]) == ("upstream_timeout", "the answer was not complete within 1.5 s")
        assert value(client.router, "requests_total", outcome="timed_out") == 1
        async with asyncio.timeout(PATIENCE_S):
            await engine.saw_disconnect.wait()


async def test_an_unknown_model_is_told_what_is_served_and_prepares_nothing(engine):
    engine.models = [f"model-{place}" for place in range(14)]
    async with in_process([engine.url]) as client:
        message = (await client.chat(model="other")).json()["error"]["message"]
        assert message.startswith("the model 'other' does not exist; served here: model-0, model-1, ")
        assert message.endswith("model-9 and 4 more")
        assert value(client.router, "uncredited_prompts_total", reason="no_tokenizer") == 0
        assert value(client.router, "prompt_preparation_seconds_count") == 0


async def test_workers_that_are_well_but_draining_or_refused_are_not_called_unhealthy(engines):
    entries = [{"url": engines[0].url, "id": "w0"}, {"url": engines[1].url, "id": "w1", "dp_size": 7}]
    async with in_process([], workers=entries) as client:
        assert client.router.fleet.drain("w0")
        message = (await client.chat()).json()["error"]["message"]
        assert "(0 of 2 workers ready, 1 draining, 1 refused)" in message


@pytest.mark.parametrize("model", [None, ""])
async def test_a_body_without_a_model_has_the_routers_own_error(client, engine, model):
    response = await client.post("/v1/chat/completions", json={"messages": CHAT["messages"], "model": model})
    check_error(response, 400, "invalid_request")
    assert response.json()["error"]["param"] == "model"
    assert engine.requests == []


async def test_a_fleet_that_cannot_take_a_request_says_how_its_workers_stand(engines, dead_url):
    async with in_process([dead_url(), dead_url()]) as client:
        message = (await client.chat()).json()["error"]["message"]
        assert message == "no worker can take the request (0 of 2 workers ready, 2 unhealthy); try again soon"
        assert value(client.router, "uncredited_prompts_total", reason="no_tokenizer") == 0
    engines[1].models = ["another"]
    async with in_process([engine.url for engine in engines], probes={"interval_s": 0.03}) as client:
        engines[0].health_status = 503
        await eventually(lambda: not client.router.fleet.workers["w0"].is_usable)
        message = (await client.chat()).json()["error"]["message"]
        told = "no worker that serves this model takes requests now (1 of 2 workers ready, 1 unhealthy); try again soon"
        assert message == told
