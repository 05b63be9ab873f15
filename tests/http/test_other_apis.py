"""Messages, /generate, embeddings, ranking: placed, forwarded as received, counted, and wrong in their own words."""

import asyncio
import json

import anthropic
import pytest
from api_engine import (
    EMBEDDINGS,
    GENERATED_EVENTS,
    MESSAGE,
    MESSAGE_EVENTS,
    RANKED,
    STOP,
    ApiEngine,
    generated,
    named_event,
    stream,
)
from fake_engine import answering, hanging, running
from proxy_harness import eventually, in_process, on_socket, value

HELLO = [{"role": "user", "content": "hello"}]
MESSAGES = {"model": "toy", "max_tokens": 9, "messages": HELLO}


@pytest.fixture
async def engine():
    async with running(ApiEngine()) as engine:
        yield engine


def last_record(client):
    return client.router.placer.decisions.find_latest(1)[0]


async def test_messages_come_back_as_they_are_with_their_counts(client, engine):
    response = await client.post("/v1/messages", json=MESSAGES, headers={"x-api-key": "k"})
    assert response.json() == MESSAGE
    assert response.headers["x-dovecote-worker"] == "w0"
    assert engine.requests[0][1] == response.request.content
    assert last_record(client).actual_cached_tokens == 4
    response = await client.post("/v1/messages", json=MESSAGES | {"stream": True})
    assert response.content == b"".join(MESSAGE_EVENTS)
    assert engine.body() == MESSAGES | {"stream": True}
    assert last_record(client).actual_cached_tokens == 4
    assert value(client.router, "requests_total", outcome="done") == 2


async def test_generate_comes_back_as_it_is_with_its_counts(client, engine):
    body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 3}}
    assert (await client.post("/generate", json=body)).json() == generated("abc", made=3, finish=STOP)
    assert engine.body() == body
    response = await client.post("/generate", json={"text": "once", "stream": True, "model": "toy"})
    assert response.content == b"".join(GENERATED_EVENTS)
    assert engine.body() == {"text": "once", "stream": True}
    assert last_record(client).actual_cached_tokens == 4


async def test_several_generated_answers_are_counted_once_a_prompt(client, engine):
    answers = [generated(text, made=2, finish=STOP) for text in ("a", "b", "c", "d")]
    engine.script = answering(200, json.dumps(answers).encode())
    body = {"text": ["x", "y"], "sampling_params": {"n": 2}}
    assert (await client.post("/generate", json=body)).json() == answers
    assert last_record(client).actual_cached_tokens == 8

    async def script(_engine, request, _body):
        pieces = [f"data: {json.dumps(each | {'index': place})}\n\n".encode() for place, each in enumerate(answers)]
        return await stream(request, pieces)

    engine.script = script
    assert (await client.post("/generate", json=body | {"stream": True})).status_code == 200
    assert last_record(client).actual_cached_tokens == 8


async def test_generate_without_a_model_needs_a_fleet_of_one():
    async with running(ApiEngine()) as one, running(ApiEngine()) as other:
        other.models = ["other"]
        async with in_process([one.url, other.url]) as client:
            response = await client.post("/generate", json={"text": "x"})
            assert response.status_code == 400
            assert "different ones" in response.json()["error"]["message"]
            assert (await client.post("/generate", json={"text": "x", "model": "other"})).status_code == 200
            assert len(other.requests) == 1


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        ("/v1/embeddings", {"model": "toy", "input": ["a", "b"]}, EMBEDDINGS),
        ("/v1/rerank", {"model": "toy", "query": "a", "documents": ["b"]}, RANKED),
        ("/rerank", {"model": "toy", "query": "a", "documents": ["b"]}, RANKED),
        ("/v2/rerank", {"model": "toy", "query": "a", "documents": ["b"]}, RANKED),
        ("/v1/score", {"model": "toy", "text_1": "a", "text_2": ["b"]}, RANKED),
        ("/score", {"model": "toy", "queries": "a", "documents": ["b"]}, RANKED),
        ("/pooling", {"model": "toy", "input": "a"}, RANKED),
        ("/encode", {"text": "a"}, RANKED),
        ("/classify", {"model": "toy", "input": "a"}, RANKED),
    ],
)
async def test_C15_what_is_pooled_is_placed_and_forwarded_as_it_is(client, engine, path, body, answer):
    response = await client.post(path, json=body)
    assert response.json() == answer
    assert (engine.requests[0][0].path, engine.requests[0][1]) == (path, response.request.content)
    assert response.headers["x-dovecote-worker"] == "w0"
    missing = await client.post(path, json={"model": "toy"})
    assert missing.status_code == 400
    assert "is missing" in missing.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/messages"])
async def test_errors_of_messages_have_anthropics_form(client, engine, path):
    async def post(**fields):
        response = await client.post(path, json=MESSAGES | fields)
        assert response.json()["type"] == "error"
        return response.status_code, response.json()["error"]["type"], response.json()["error"]["code"]

    assert await post(model="other") == (404, "not_found_error", "model_not_found")
    assert await post(messages=None) == (400, "invalid_request_error", "invalid_request")
    engine.script = answering(200, b"<")
    response = await client.post("/v1/messages", json=MESSAGES)
    assert (response.status_code, response.json()["error"]["type"]) == (502, "api_error")
    wrong = await client.get(path)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def test_C12_a_broken_stream_of_messages_ends_with_anthropics_error_event(client, engine):
    async def script(_engine, request, _body):
        response = await stream(request, MESSAGE_EVENTS[:5])
        request.transport.abort()
        return response

    engine.script = script
    response = await client.post("/v1/messages", json=MESSAGES | {"stream": True})
    head, _, tail = response.content.partition(b"\n\nevent: error\ndata: ")
    assert head == b"".join(MESSAGE_EVENTS[:5])
    assert json.loads(tail)["error"]["type"] == "api_error"


async def test_C12_messages_whose_stop_arrived_are_complete_and_those_without_are_not(client, engine):
    for events, is_whole in ((MESSAGE_EVENTS, True), (MESSAGE_EVENTS[:-1], False), (GENERATED_EVENTS[:2], False)):

        async def script(_engine, request, _body, events=events):
            return await stream(request, events)

        engine.script = script
        response = await client.post("/v1/messages", json=MESSAGES | {"stream": True})
        assert (b'"error"' not in response.content) == is_whole


async def test_an_error_event_of_the_engine_passes_and_counts(client, engine):
    failed = named_event({"type": "error", "error": {"type": "api_error", "message": "out of memory"}})

    async def script(_engine, request, _body):
        return await stream(request, (*MESSAGE_EVENTS[:4], failed))

    engine.script = script
    response = await client.post("/v1/messages", json=MESSAGES | {"stream": True})
    assert response.content == b"".join((*MESSAGE_EVENTS[:4], failed))
    assert value(client.router, "requests_total", outcome="error") == 1


@pytest.mark.parametrize("path", ["/v1/messages", "/generate", "/v1/embeddings"])
async def test_C03_C04_a_client_that_leaves_ends_the_request_at_the_engine(engine, path):
    engine.script = hanging
    async with on_socket([engine.url]) as client:
        body = MESSAGES | {"text": "x", "input": "x"}
        call = asyncio.create_task(client.post(path, json=body))
        await eventually(lambda: engine.requests)
        call.cancel()
        await eventually(engine.saw_disconnect.is_set)


async def test_the_official_client_has_its_own_kinds_of_errors(engine):
    async with on_socket([engine.url]) as client:
        official = anthropic.AsyncAnthropic(api_key="k", base_url=str(client.base_url), max_retries=0)
        async with official:
            assert (await official.messages.create(**MESSAGES)).content[0].text == "abc"
            async with official.messages.stream(**MESSAGES) as events:
                assert (await events.get_final_message()).usage.cache_read_input_tokens == 4
            with pytest.raises(anthropic.NotFoundError, match="does not exist"):
                await official.messages.create(**MESSAGES | {"model": "other"})
            refused = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
            engine.script = answering(429, json.dumps(refused).encode())
            with pytest.raises(anthropic.RateLimitError, match="slow down"):
                await official.messages.create(**MESSAGES)


async def test_models_of_all_workers_are_listed_with_their_adapters_and_read_one_by_one():
    async with running(ApiEngine()) as one, running(ApiEngine()) as other:
        one.models = ["toy", {"id": "org/adapter", "parent": "toy"}]
        other.models = ["toy", "second"]
        async with in_process([one.url, other.url]) as client:
            listed = (await client.get("/v1/models")).json()["data"]
            assert [(model["id"], model["parent"]) for model in listed] == [
                ("toy", None), ("org/adapter", "toy"), ("second", None),
            ]  # fmt: skip
            assert (await client.get("/v1/models/org/adapter")).json() == listed[1]
            missing = await client.get("/v1/models/nope")
            assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
