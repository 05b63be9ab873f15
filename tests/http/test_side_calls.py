"""Calls that are not placed: counting and tokenizing, ending a request, paths that the configuration lets through."""

import asyncio
import json
import re

import pytest
from api_engine import GENERATED_EVENTS, ApiEngine
from fake_engine import answering, open_stream, running
from proxy_harness import CHAT, eventually, in_process, on_socket, value

from router.errors import ConfigError
from tests.ports import closed_port

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def engine():
    async with running(ApiEngine()) as engine:
        yield engine


@pytest.fixture
async def other():
    async with running(ApiEngine()) as engine:
        yield engine


def paths(engine):
    return [request.path_qs for request, _ in engine.requests]


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize"])
async def test_tokens_are_asked_of_ranks_in_turn_with_nothing_charged(engine, other, path):
    async with in_process([engine.url, other.url]) as client:
        for _ in range(4):
            response = await client.post(path, json={"model": "toy", "prompt": "x"})
            assert response.status_code == 200
        assert [len(each.requests) for each in (engine, other)] == [2, 2]
        assert engine.requests[0][1] == response.request.content
        assert client.router.placer.decisions.find_latest(1) == []
        assert (await client.post(path, json={"model": "nope"})).status_code == 404
        assert (await client.post(path, json={"model": 5})).status_code == 400
        assert (await client.post(path, content=b"[]")).status_code == 400


async def test_tokens_are_asked_only_of_workers_that_serve_the_model(engine, other):
    other.models = ["other"]
    async with in_process([engine.url, other.url]) as client:
        for _ in range(3):
            await client.post("/tokenize", json={"model": "other", "prompt": "x"})
    assert (len(engine.requests), len(other.requests)) == (0, 3)


async def test_a_conversation_is_counted_where_its_next_turn_would_go(engine, other):
    async with in_process([engine.url, other.url]) as client:
        headers = {"x-claude-code-session-id": "one"}
        body = {"model": "toy", "max_tokens": 5, "messages": HELLO}
        home = (await client.post("/v1/messages", json=body, headers=headers)).headers["x-dovecote-worker"]
        for _ in range(4):
            counted = await client.post("/v1/messages/count_tokens", json=body, headers=headers)
            assert counted.json() == {"input_tokens": 9}
            assert counted.headers["x-dovecote-worker"] == home
        assert value(client.router, "placements_total", worker=home, dp_rank="0") == 1


async def test_D10_calls_that_are_not_placed_never_go_to_an_unhealthy_worker(engine):
    with closed_port() as port:
        async with in_process([f"http://127.0.0.1:{port}", engine.url], forward={"prefixes": ["/v1/audio"]}) as client:
            for _ in range(4):
                assert (await client.get("/v1/audio/voices")).status_code == 200
                assert (await client.post("/tokenize", json={"prompt": "x"})).status_code == 200
    assert len(engine.requests) == 8


async def test_D10_a_worker_that_answers_and_is_not_healthy_gets_none_of_them(engine, other):
    probes = {"interval_s": 0.05, "unhealthy_after": 1}
    sections = {"forward": {"prefixes": ["/v1/audio"]}, "probes": probes}
    async with in_process([other.url, engine.url], **sections) as client:
        other.health_status = 503
        await eventually(lambda: sum(client.router.fleet.find_health().values()) == 1)
        for _ in range(3):
            assert (await client.get("/v1/audio/voices")).status_code == 200
            assert (await client.post("/tokenize", json={"prompt": "x"})).status_code == 200
    assert (len(engine.requests), other.requests) == (6, [])


async def test_a_worker_that_refuses_the_connection_is_passed_over(engine):
    async with running(ApiEngine()) as gone, in_process([gone.url, engine.url]) as client:
        gone_url = client.router.fleet.workers["w0"].config.url
        assert gone_url == gone.url
        for site in list(gone.sites):
            await site.stop()
        answers = [(await client.post("/tokenize", json={"prompt": "x"})).status_code for _ in range(3)]
    assert answers == [200, 200, 200]


async def test_without_any_healthy_worker_they_are_503_with_retry_after(engine):
    with closed_port() as port:
        async with in_process([f"http://127.0.0.1:{port}"], forward={"prefixes": ["/v1/audio"]}) as client:
            for response in (await client.post("/tokenize", json={}), await client.get("/v1/audio/voices")):
                assert response.status_code == 503
                assert "retry-after" in response.headers


async def test_paths_below_a_configured_prefix_go_through_as_they_are(engine):
    async with in_process([engine.url], forward={"prefixes": ["/v1/audio", "/version"]}) as client:
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            engine.script = answering(200, b"\x00\xff", **{"X-Of-The-Worker": "1"})
            headers = {"content-type": "audio/wav", "authorization": "Bearer k"}
            response = await client.request(method, "/v1/audio/x.y?a=1&b=%20", content=b"\x01\x02", headers=headers)
            assert (response.status_code, response.content) == (200, b"\x00\xff")
            assert response.headers["x-of-the-worker"] == "1"
            request, body = engine.requests[-1]
            assert (request.method, request.raw_path, body) == (method, "/v1/audio/x.y?a=1&b=%20", b"\x01\x02")
            assert request.headers["content-type"] == "audio/wav"
        engine.script = answering(404, b"no")
        assert (await client.get("/version")).content == b"no"
        assert value(client.router, "requests_total", outcome="client_error") == 1


@pytest.mark.parametrize(
    "path",
    ["/v1/audios", "/v1/audio/flush_cache", "/v1/audio/%2e%2e/x", "/v1/audio//x", "/v1/audio/a%00b",
     "/v1/audio%2fflush_cache", "/v1/audio/Update_Weights", "/version", "/flush_cache", "/v1/audio/a b"],
)  # fmt: skip
async def test_no_other_path_reaches_a_worker_whatever_its_spelling(engine, path):
    async with in_process([engine.url], forward={"prefixes": ["/v1/audio"]}) as client:
        for method in ("GET", "POST"):
            response = await client.request(method, path, content=b"{}")
            assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert engine.requests == []


async def test_nothing_is_passed_on_unless_it_is_configured(engine):
    async with in_process([engine.url]) as client:
        for path in ("/v1/audio/speech", "/version", "/server_info", "/flush_cache"):
            assert (await client.get(path)).status_code == 404
    assert engine.requests == []


async def test_the_routers_own_paths_stay_its_own(engine):
    async with in_process([engine.url], forward={"prefixes": ["/v1/models", "/health", "/v1/workers"]}) as client:
        assert (await client.get("/v1/models")).json()["data"][0]["owned_by"] == "dovecote"
        assert "workers" in (await client.get("/v1/workers")).json()
        assert (await client.get("/health")).json()["status"] == "ok"
        assert (await client.post("/v1/workers")).status_code in {401, 403, 404, 405, 422, 400}
    assert engine.requests == []


@pytest.mark.parametrize(
    "prefix", ["/", "/v1", "/v1/", "flush", "/flush_cache", "/a/../b", "/a//b", "/a%20", "/metrics"]
)
async def test_prefixes_that_would_open_too_much_are_refused(engine, prefix):
    with pytest.raises(ConfigError, match=r"forward\.prefixes"):
        async with in_process([engine.url], forward={"prefixes": [prefix]}):
            pass


async def test_G03_fields_of_the_router_do_not_pass_below_a_prefix(engine):
    async with in_process([engine.url], forward={"prefixes": ["/v1/audio"]}) as client:
        for fields in ({"kv_transfer_params": {}}, {"sampling_params": [{"n": 1}, {"bootstrap_host": "x"}]}):
            for kind in ("application/json", "APPLICATION/JSON; charset=utf-8", "application/x+json", "text/json", ""):
                headers = {"content-type": kind} if kind else {}
                response = await client.post("/v1/audio/speech", content=json.dumps(fields), headers=headers)
                assert response.status_code == 400
        twice = b'{"model": "nope", "model": "toy"}'
        response = await client.post("/v1/audio/speech", content=twice, headers={"content-type": "application/json"})
        assert response.status_code == 400
        assert (await client.post("/v1/audio/speech", json={"model": "nope"})).status_code == 404
        assert (await client.post("/v1/audio/speech", json={"model": "toy"})).status_code == 200
    assert len(engine.requests) == 1


async def test_an_unknown_stream_below_a_prefix_passes_and_its_end_is_believed(engine):
    async def script(_engine, request, _body):
        response = await open_stream(request)
        await response.write(b"data: of a form that nobody knows\n\n")
        return response

    engine.script = script
    async with in_process([engine.url], forward={"prefixes": ["/v1/audio"]}) as client:
        response = await client.post("/v1/audio/speech", content=b"x")
        assert response.content == b"data: of a form that nobody knows\n\n"
        assert value(client.router, "requests_total", outcome="done") == 1


class AbortableEngine(ApiEngine):
    """Ends a stream when it is told to, by exactly the name it was given."""

    def __init__(self, *, knows_abort=True):
        super().__init__()
        self.running, self.aborts = {}, []
        self.knows_abort = knows_abort
        self.script = abortable


async def abortable(engine, request, body):
    fields = json.loads(body)
    if request.path == "/abort_request":
        engine.aborts.append(fields)
        if not engine.knows_abort:
            return await answering(404, b"{}")(engine, request, body)
        if fields["rid"] in engine.running:
            engine.running[fields["rid"]].set()
        return await answering(200, b"")(engine, request, body)
    ended = engine.running.setdefault(str(fields.get("rid")), asyncio.Event())
    response = await open_stream(request)
    await response.write(GENERATED_EVENTS[0])
    await ended.wait()
    await response.write(b"".join(GENERATED_EVENTS[2:]))
    return response


async def abort(client, **fields):
    response = await client.post("/abort_request", json=fields)
    return response.status_code, response.json()


def start(client, rid, path="/generate"):
    body = CHAT | {"text": "x", "stream": True} | ({} if rid is None else {"rid": rid})
    return asyncio.create_task(client.post(path, json=body, headers={"x-request-id": f"id-of-{rid}"}))


async def test_C05_a_request_is_ended_by_its_name_at_the_engine_that_has_it(other):
    async with running(AbortableEngine()) as engine, on_socket([engine.url]) as client:
        first, longer = start(client, "ab"), start(client, "abc")
        await eventually(lambda: len(engine.running) == 2)
        assert await abort(client, rid="ab") == (200, {"aborted": 1})
        assert (await first).content.endswith(b"data: [DONE]\n\n")
        assert not longer.done()
        names = [json.loads(body)["rid"] for _, body in engine.requests if b'"text"' in body]
        assert engine.aborts == [{"rid": names[0]}]
        assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)
        assert await abort(client, rid="id-of-abc") == (200, {"aborted": 1})
        await longer
        assert await abort(client, rid="abc") == (200, {"aborted": 0})
        assert len(client.router._app._named) == 0


async def test_C05_names_that_nobody_has_are_no_error_and_reach_no_engine():
    async with running(AbortableEngine()) as engine, in_process([engine.url]) as client:
        assert await abort(client, rid="unknown") == (200, {"aborted": 0})
        assert engine.aborts == []
        assert await abort(client, rid="0" * 32) == (200, {"aborted": 0})
        assert engine.aborts == [{"rid": "0" * 32}]


async def test_C05_all_requests_at_once_are_not_a_clients_to_end():
    async with running(AbortableEngine()) as engine, in_process([engine.url]) as client:
        for fields in ({"abort_all": True}, {"abort_all": True, "rid": "x"}, {}, {"rid": 5}, {"rid": ""}):
            assert (await abort(client, **fields))[0] == 400
        assert engine.aborts == []


@pytest.mark.parametrize(("rid", "knows_abort"), [(None, True), ("x", False)])
async def test_C05_a_request_that_its_engine_cannot_end_by_name_loses_its_connection(rid, knows_abort):
    async with running(AbortableEngine(knows_abort=knows_abort)) as engine, on_socket([engine.url]) as client:
        task = start(client, rid)
        await eventually(lambda: engine.running)
        assert await abort(client, rid=f"id-of-{rid}") == (200, {"aborted": 1})
        assert b'"request_aborted"' in (await task).content
        await eventually(engine.saw_disconnect.is_set)
        assert len(engine.aborts) == (rid is not None)


async def test_G03_a_clients_rid_never_reaches_an_engine():
    async with running(AbortableEngine()) as engine, on_socket([engine.url]) as client:
        task = start(client, ["a", "b"], path="/v1/chat/completions")
        await eventually(lambda: engine.requests)
        first, second = json.loads(engine.requests[0][1])["rid"]
        assert (first[:32], first[32:], second[32:]) == (second[:32], "-0", "-1")
        assert await abort(client, rid="b") == (200, {"aborted": 1})
        assert sorted(each["rid"] for each in engine.aborts) == [first, second]
        engine.running.popitem()[1].set()
        await task
        for rid in (5, "", {}, [["a"]], "x" * 257):
            assert (await client.post("/generate", json={"text": "x", "rid": rid})).status_code == 400
