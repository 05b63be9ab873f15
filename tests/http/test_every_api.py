"""What holds for every form of request: bytes arrive as sent, broken bodies are the client's fault, nothing is left."""

import json

import pytest
from api_engine import ApiEngine, generated, stream
from fake_engine import event, running
from proxy_harness import in_process, value

from router.proxy.api import PATHS, Api

CHAT = [{"role": "user", "content": "hello"}]
MINIMAL = {
    Api.CHAT: {"messages": CHAT},
    Api.COMPLETION: {"prompt": "x"},
    Api.RESPONSE: {"input": "x"},
    Api.MESSAGES: {"messages": CHAT, "max_tokens": 1},
    Api.GENERATE: {"text": "x"},
    Api.EMBEDDING: {"input": "x"},
    Api.RERANK: {"query": "x", "documents": ["y"]},
    Api.SCORE: {"text_1": "x", "text_2": "y"},
    Api.POOLING: {"input": "x"},
    Api.CLASSIFICATION: {"input": "x"},
}
#: Members that no engine needs and none may lose: an unknown one, numbers that JSON readers spell anew.
VENDOR = b'"vendor": {"a" :1.0 , "b":1e400}, "big":9223372036854775808, "zero":-0.0, "none":null'


@pytest.fixture
async def engine():
    async with running(ApiEngine()) as engine:
        yield engine


@pytest.fixture
async def client(engine):
    async with in_process([engine.url]) as client:
        yield client


def body_of(api, **more):
    model = {} if api is Api.GENERATE else {"model": "toy"}
    return json.dumps(model | MINIMAL[api] | more).encode()


@pytest.mark.parametrize("path", PATHS)
async def test_C15_an_engine_receives_exactly_what_the_client_sent(client, engine, path):
    for body in (body_of(PATHS[path]), body_of(PATHS[path])[:-1] + b", " + VENDOR + b" }"):
        response = await client.post(path, content=body)
        assert response.status_code == 200
        assert engine.requests[-1][1] == body
    streamed = body_of(PATHS[path], stream=True)
    await client.post(path, content=streamed)
    added = json.loads(engine.requests[-1][1]).keys() - json.loads(streamed).keys()
    assert added == ({"stream_options"} if PATHS[path] in {Api.CHAT, Api.COMPLETION} else set())


@pytest.mark.parametrize("path", [*PATHS, "/v1/messages/count_tokens", "/tokenize", "/abort_request", "/close_session"])
async def test_C17_broken_bodies_are_the_clients_fault(client, engine, path):
    bodies = [b"", b"{", b"[1]", b"nonsense", b'{"model":NaN}', b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"model": "toy'
              ]  # fmt: skip
    for body in bodies:
        response = await client.post(path, content=body)
        assert response.status_code == 400, body[:20]
        assert "error" in response.json()
    assert engine.requests == []
    assert value(client.router, "requests_total", outcome="client_error") == len(bodies)


@pytest.mark.parametrize("path", [*PATHS, "/v1/messages/count_tokens", "/tokenize", "/abort_request", "/open_session"])
async def test_C18_a_wrong_method_is_405_and_says_which_is_right(client, engine, path):
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        response = await client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        assert response.json()["error"]["code"] == "method_not_allowed"
    assert (await client.post(path + "/")).status_code in {404, 405}
    assert engine.requests == []


@pytest.mark.parametrize("api", Api)
async def test_C18_a_model_that_nobody_serves_is_404_on_every_form(client, engine, api):
    response = await client.post(api.value, content=body_of(api, model="nope"))
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    assert "served here: toy" in response.json()["error"]["message"]
    assert engine.requests == []


@pytest.mark.parametrize("path", PATHS)
async def test_G04_an_engine_sees_the_routers_rank_alone(client, engine, path):
    headers = [("X-Data-Parallel-Rank", "99"), ("x-data-parallel-rank", "98"), ("X-Override-Routed-Dp-Rank", "7")]
    body = body_of(PATHS[path], routed_dp_rank=5, data_parallel_rank=6)
    assert (await client.post(path, content=body, headers=headers)).status_code == 200
    assert {text for name, text in engine.headers() if "rank" in name} <= {"0"}
    assert not {"routed_dp_rank", "data_parallel_rank"} & engine.body().keys() or engine.body()["routed_dp_rank"] == 0


@pytest.mark.parametrize("api", Api)
async def test_C17_a_name_twice_is_refused(client, engine, api):
    response = await client.post(api.value, content=body_of(api)[:-1] + b', "x": 1, "x": 2}')
    assert response.status_code == 400
    assert engine.requests == []


@pytest.mark.parametrize("api", Api)
async def test_C10_half_a_surrogate_pair_is_no_fault_of_the_router(client, engine, api):
    for text in (b'"\\ud83d"', b'["\\ud83d"]', b'[{"role":"user","content":"\\ud83d"}]', b'{"\\ud83d": 1}'):
        for name in (
            b"messages",
            b"input",
            b"text",
            b"system",
            b"tools",
            b"session_id",
            b"cache_salt",
            b"rid",
            b"user",
        ):
            body = body_of(api)[:-1] + b', "' + name + b'": ' + text + b"}"
            assert (await client.post(api.value, content=body)).status_code in {200, 400}
    before = len(engine.requests)
    whole = body_of(api)[:-1] + b', "user": "\\ud83d\\udc26"}'
    assert (await client.post(api.value, content=whole)).status_code == 200
    assert engine.requests[before][1] == whole


async def test_C12_an_answer_of_several_is_complete_when_all_of_them_are(client, engine):
    stop = {"type": "stop", "matched": None}
    first, second = generated("a", made=1, finish=stop, index=0), generated("b", made=1, finish=stop, index=1)
    for events, is_whole in (((first, second), True), ((first,), False), ((first, first), False)):

        async def script(_engine, request, _body, events=events):
            return await stream(request, [event(each) for each in events])

        engine.script = script
        body = {"text": "x", "stream": True, "sampling_params": {"n": 2}}
        assert (b'"error"' not in (await client.post("/generate", json=body)).content) == is_whole
