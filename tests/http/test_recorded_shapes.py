"""Answers of a real vLLM 0.32, as recorded, come through the router byte for byte."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from fake_engine import DONE, FakeEngine, event, running
from proxy_harness import on_socket

from router.access.keys import hash_key

RECORDING = Path(__file__).parents[1] / "fixtures/recordings/vllm032_http_shapes.jsonl"
#: Paths of the recording that are no API of the router's.
PREFIXES = ["/version", "/ping", "/load", "/v1/chat/completions/render", "/v1/completions/render", "/inference/v1"]
#: Requests that the router answers itself, with why.
OWN = {
    0: "its own health",
    3: "the models of all workers",
    17: "nobody serves the model",
    20: "there are no messages",
    22: "only the router pairs prefill and decode",
}


def encode(value):
    """JSON as the engine writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def compact(chunk):
    return event(encode(chunk))


class Recorded:
    """One request and its answer."""

    def __init__(self, request, answer):
        self.number, self.method, self.path = request["i"], request["method"], request["path"]
        self.headers, self.body = request["headers"], request["body"]
        self.status, self.answer = answer["status"], answer
        self.answer_headers = answer["headers"]

    @property
    def is_stream(self):
        return "first" in self.answer and self.status == 200

    @property
    def pieces(self):
        """The events of a stream: those that the recording kept, which is all but the middle of long ones."""
        return [*(compact(chunk) for chunk in (*self.answer["first"], *self.answer["tail"])), DONE]

    @property
    def content(self):
        if self.is_stream:
            return b"".join(self.pieces)
        # Of a stream that was refused the recording kept no body; the same request without one has it.
        body = self.answer["body"] if "body" in self.answer else find_answer(self.number - 1)["body"]
        return body.encode() if isinstance(body, str) else encode(body)


LINES = [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]


def find_answer(number):
    return next(line for line in LINES if line["k"] == "response" and line["i"] == number)


CALLS = [Recorded(line, find_answer(line["i"])) for line in LINES if line["k"] == "request"]
WITH_USAGE = next(call for call in CALLS if call.number == 12)


class RecordedEngine(FakeEngine):
    """Answers as the recording does, and like the engine with a chunk of usage where the router asks for one."""

    def __init__(self):
        super().__init__()
        self.models = ["tiny"]
        self.script = replay
        #: The call that is under way.
        self.call = None
        self.tells_load_like_vllm = False

    async def complete(self, request):
        # What the router asks of its own accord before the first call is not of the recording.
        return await super().complete(request) if self.call is not None else web.Response(status=404)

    def app(self):
        async def absent(_request):
            return web.Response(status=404)

        app = super().app()
        app.router.add_get("/kv_event_sources", absent)
        app.router.add_route("*", "/{tail:.*}", self.complete)
        return app


def check_is_asked_for_usage(call, request, body):
    """Whether usage is asked for that the client did not ask for; all else has to be what the client sent."""
    fields = json.loads(body) if body else None
    assert (request.method, request.path) == (call.method, call.path)
    if fields == call.body:
        return False
    assert fields == call.body | {"stream_options": {"include_usage": True}}
    return True


async def replay(engine, request, body):
    call = engine.call
    adds_usage = check_is_asked_for_usage(call, request, body)
    headers = {name: text for name, text in call.answer_headers.items() if name not in {"date", "transfer-encoding"}}
    if not call.is_stream:
        return web.Response(status=call.status, body=call.content, headers=headers)
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    for piece in call.pieces[:-1]:
        await response.write(piece)
        await asyncio.sleep(0)
    if adds_usage:
        await response.write(compact(WITH_USAGE.answer["tail"][-1]))
    await response.write(DONE)
    return response


@pytest.fixture
async def client():
    async with running(RecordedEngine()) as engine, on_socket([engine.url], forward={"prefixes": PREFIXES}) as client:
        client.engine = engine
        yield client


async def ask(client, call):
    client.engine.call = call
    content = None if call.body is None else json.dumps(call.body).encode()
    headers = call.headers | ({"content-type": "application/json"} if content else {})
    return await client.request(call.method, call.path, content=content, headers=headers)


@pytest.mark.parametrize("call", [call for call in CALLS if call.number not in OWN], ids=lambda call: f"{call.number}")
async def test_a_recorded_answer_comes_through_byte_for_byte(client, call):
    response = await ask(client, call)
    assert response.status_code == call.status
    assert response.content == call.content
    for name in ("content-type", "content-length", "vary"):
        assert response.headers.get(name) == call.answer_headers.get(name)
    assert response.headers["x-dovecote-worker"] == "w0"


async def test_a_trusted_clients_answer_comes_through_byte_for_byte_with_its_transfer():
    key = "k" * 32
    keys = [{"name": "pairs", "hash": hash_key(key), "trusted": True}]
    access = {"keys": keys, "isolation": "shared"}
    call = next(call for call in CALLS if call.number == 22)
    async with running(RecordedEngine()) as engine, on_socket([engine.url], access=access) as client:
        engine.call = call
        headers = {"authorization": f"Bearer {key}"}
        response = await client.post(call.path, content=json.dumps(call.body).encode(), headers=headers)
        assert (response.status_code, response.content) == (call.status, call.content)


@pytest.mark.parametrize("number", [11, 12, 13])
def test_the_recording_keeps_what_a_client_sees_of_a_stream(number):
    call = next(call for call in CALLS if call.number == number)
    assert call.is_stream
    assert call.answer["done"]


def test_whole_answers_of_the_recording_are_as_long_as_the_engine_said():
    # The list of models holds numbers that were spelled otherwise; the router does not pass it on.
    wholes = [call for call in CALLS if not call.is_stream and call.number != 3]
    assert [len(call.content) for call in wholes] == [int(call.answer_headers["content-length"]) for call in wholes]


@pytest.mark.parametrize("number", sorted(OWN), ids=lambda number: OWN[number].replace(" ", "_"))
async def test_what_the_router_answers_itself_has_the_engines_status_and_form(client, number):
    call = next(call for call in CALLS if call.number == number)
    response = await ask(client, call)
    if number == 22:
        assert (response.status_code, response.json()["error"]["param"]) == (400, "kv_transfer_params")
        return
    assert response.status_code == call.status
    if call.status >= 400:
        assert set(response.json()["error"]) == set(call.answer["body"]["error"])
