"""One streamed request: what is sent, what is measured, and every way it can fail."""

import json

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from simulator.demo.client import AgentClient, request_body
from simulator.traces.session import Message, PromptForm, Session, Turn

TURN = Turn(0.0, "m", 0, (), 10, 5, 7)
PROMPT = (Message("system", "policy"), Message("user", "hello"))
CHUNKS = [
    {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
    {"choices": [{"delta": {"content": "one "}, "finish_reason": None}]},
    {"choices": [{"delta": {"content": "two"}, "finish_reason": "length"}]},
    {
        "choices": [],
        "usage": {"prompt_tokens": 12, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 8}},
    },
]
HEADERS = {"x-request-id": "r1", "x-dovecote-worker": "http://w", "x-dovecote-dp-rank": "1"}


def events(*chunks, done=True):
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"] if done else lines)


async def ask(text, *, status=200, form=PromptForm.CHAT, parent=None, content_type="text/event-stream"):
    """Send one turn to a server that answers with `text`; the reply, and what the server got."""
    got = {}

    async def answer(request):
        got.update(path=request.path, headers=request.headers, body=await request.json())
        return web.Response(text=text, status=status, headers=HEADERS, content_type=content_type)

    app = web.Application()
    app.router.add_post("/{tail:.*}", answer)
    ticks = iter(range(100))
    async with TestServer(app) as server, aiohttp.ClientSession() as http:
        client = AgentClient(http, str(server.make_url("")).rstrip("/"), "toy", lambda: float(next(ticks)), 5.0)
        session = Session("s", parent, form, (TURN,))
        return await client.send(session, TURN, PROMPT), got


async def test_an_answer_gives_its_text_its_usage_and_its_rank():
    reply, _ = await ask(events(*CHUNKS))
    assert (reply.text, reply.prompt_tokens, reply.cached_tokens, reply.output_tokens) == ("one two", 12, 8, 7)
    assert (reply.request_id, reply.worker, reply.dp_rank, reply.failure) == ("r1", "http://w", 1, None)


async def test_the_first_token_is_the_first_piece_of_text_and_not_the_role():
    empty_role_first, _ = await ask(events(*CHUNKS))
    text_first, _ = await ask(events(*CHUNKS[1:]))
    assert empty_role_first.ttft_s > text_first.ttft_s > 0


async def test_session_and_parent_travel_as_headers():
    _, top = await ask(events(*CHUNKS))
    _, below = await ask(events(*CHUNKS), parent="p")
    assert top["headers"]["X-Dovecote-Session"] == "s"
    assert "X-Dovecote-Parent" not in top["headers"]
    assert below["headers"]["X-Dovecote-Parent"] == "p"


async def test_chat_and_flat_text_take_their_own_routes():
    _, chat = await ask(events(*CHUNKS))
    _, flat = await ask(events(*CHUNKS), form=PromptForm.TEXT)
    assert chat["path"] == "/v1/chat/completions"
    assert chat["body"]["messages"] == [{"role": "system", "content": "policy"}, {"role": "user", "content": "hello"}]
    assert flat["path"] == "/v1/completions"
    assert flat["body"]["prompt"] == "policyhello"


def test_a_turn_asks_for_its_recorded_length_greedily():
    _, body = request_body(PromptForm.CHAT, "toy", TURN, PROMPT)
    assert (body["model"], body["max_tokens"], body["temperature"], body["ignore_eos"]) == ("toy", 7, 0.0, True)
    assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("text", "status", "failure"),
    [
        (json.dumps({"error": {"message": "no worker"}}), 503, "HTTP 503: no worker"),
        ("<html>oops</html>", 502, "HTTP 502: <html>oops</html>"),
        (events(CHUNKS[1], {"error": {"message": "engine died"}}, done=False), 200, "engine died"),
        (events(*CHUNKS, done=False), 200, "the stream ended without [DONE]"),
        ("data: {broken\n\n", 200, "DecodeError"),
        ("data: [1]\n\n", 200, "TypeError: an event of the stream is no JSON object"),
        ('data: {"choices": [7]}\n\n', 200, "AttributeError"),
    ],
)
async def test_a_failure_is_a_reply_with_its_reason_and_no_first_token(text, status, failure):
    reply, _ = await ask(text, status=status)
    assert reply.failure.startswith(failure)
    assert reply.ttft_s is None


async def test_a_refused_connection_is_a_failed_reply():
    async with aiohttp.ClientSession() as http:
        client = AgentClient(http, "http://127.0.0.1:9", "toy", lambda: 0.0, 5.0)
        reply = await client.send(Session("s", None, PromptForm.CHAT, (TURN,)), TURN, PROMPT)
    assert "ClientConnectorError" in reply.failure
    assert reply.request_id is None
