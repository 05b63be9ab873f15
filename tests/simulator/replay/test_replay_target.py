"""What is sent to the target, and what is said of one that cannot be used."""

import json
import re
import ssl

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace
from replay_endpoints import CHUNKS, Endpoint, refusal, serve, stream_of
from replay_traces import conversations

from simulator.replay.prompts import PromptWriter
from simulator.replay.target import (
    Api,
    PromptAs,
    Target,
    TargetError,
    TargetPlan,
    find_model,
    make_tls,
    parse_target,
    read_key,
)
from tests.waiting import PATIENCE_S

TRACE = conversations(2, 2)


async def send(answer=None, request=TRACE.requests[1], **plan):
    """One request to an endpoint; the exchange and the endpoint."""
    endpoint = Endpoint(answer)
    async with serve(endpoint) as url, aiohttp.ClientSession() as http:
        ticks = iter(range(1_000))
        made_plan = TargetPlan(base_url=parse_target(url), model="toy", **{"timeout_s": PATIENCE_S, **plan})
        target = Target(http, made_plan, PromptWriter(TRACE, seed=1), lambda: float(next(ticks)))
        return await target.send(request, target.write_body(request)), endpoint


async def test_a_chat_request_carries_messages_lengths_and_its_conversation():
    made, endpoint = await send(fields={"top_p": 0.5}, headers={"Authorization": "Bearer k"})
    (body,) = endpoint.bodies
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user"]
    assert (body["model"], body["max_tokens"], body["stream"], body["ignore_eos"]) == ("toy", 8, True, True)
    assert (body["stream_options"], body["top_p"]) == ({"include_usage": True}, 0.5)
    (request,) = endpoint.requests
    assert (request.path, request.headers["X-Dovecote-Session"]) == ("/v1/chat/completions", "s0")
    assert request.headers["Authorization"] == "Bearer k"
    assert (made.failure, made.cached_tokens, len(made.piece_times_s)) == (None, 10, 2)


async def test_completions_take_text_or_ids():
    _, as_text = await send(api=Api.COMPLETIONS, ignores_eos=False)
    _, as_ids = await send(api=Api.COMPLETIONS, prompt_as=PromptAs.IDS)
    assert as_text.requests[0].path == "/v1/completions"
    assert len(as_text.bodies[0]["prompt"].split()) == len(as_ids.bodies[0]["prompt"]) == 51
    assert "ignore_eos" not in as_text.bodies[0]


async def test_headers_of_the_conversation_can_be_renamed_or_left_out():
    agent = replace(TRACE.requests[1], session="s/\u00e9\n", parent="s")
    _, renamed = await send(request=agent, session_header="X-Session")
    _, without = await send(request=agent, session_header=None, parent_header=None)
    headers = renamed.requests[0].headers
    assert (headers["X-Session"], headers["X-Dovecote-Parent"]) == ("s/\\xe9\\n", "s")
    assert not [name for name in without.requests[0].headers if name.startswith("X-")]


def streaming(text):
    async def answer(request, serial):
        return web.Response(text=text, content_type="text/event-stream")

    return answer


def refusing(*arguments, **headers):
    async def answer(request, serial):
        return refusal(*arguments, **headers)

    return answer


async def breaking(request, serial):
    response = web.StreamResponse()
    response.content_type = "text/event-stream"
    await response.prepare(request)
    await response.write(stream_of(*CHUNKS[:2], done=False).encode())
    request.transport.close()
    return response


async def redirecting(request, serial):
    return web.Response(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"})


UNENDED = [{"choices": [{"delta": {"content": "one"}}]}]


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (refusing(500, "engine died"), "http_500", "HTTP 500: engine died"),
        (refusing(404, "no such model"), "http_404", "no such model"),
        (refusing(429, "busy", **{"Retry-After": "7"}), "http_429", "busy"),
        (streaming(stream_of(*CHUNKS, done=False)), "truncated", r"without \[DONE\]"),
        (streaming(stream_of(*UNENDED)), "truncated", "without a finish_reason"),
        (streaming('{"choices": []}'), "truncated", r"without \[DONE\]"),
        (streaming(stream_of(CHUNKS[1], {"error": {"message": "cut"}})), "error_event", "cut"),
        (streaming("data: {broken\n\n"), "malformed", "DecodeError"),
        (streaming(stream_of({"choices": [{"text": 7}]})), "malformed", "no text"),
        (breaking, "disconnected", "ClientPayloadError"),
        (redirecting, "http_307", "HTTP 307"),
    ],
)
async def test_every_failure_has_its_kind(answer, kind, text):
    made, _ = await send(answer)
    assert made.failure.kind == kind
    assert re.search(text, made.failure.text)
    assert made.failure.retry_after == ("7" if kind == "http_429" else None)


async def test_an_answer_that_takes_too_long_is_a_timeout():
    made, _ = await send(timeout_s=1e-9)
    assert made.failure.kind == "timeout"


async def look(url, **plan):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=plan.pop("tls", True))) as http:
        return await find_model(http, TargetPlan(base_url=parse_target(url), **plan))


async def test_the_first_model_listed_is_taken_unless_one_is_named():
    async with serve(Endpoint(models=("first", "second"))) as url:
        assert await look(url) == "first"
        assert await look(url, model="other") == "other"


async def test_a_target_without_a_list_of_models_needs_a_name():
    async with serve(Endpoint(models_status=404)) as url:
        with pytest.raises(TargetError, match=r"lists no model \(HTTP 404\).*--model"):
            await look(url)
        assert await look(url, model="other") == "other"
    async with serve(Endpoint(models=())) as url:
        with pytest.raises(TargetError, match="lists no model"):
            await look(url)


@pytest.mark.parametrize(
    ("headers", "words"), [({}, "without a key: --api-key-env"), ({"Authorization": "Bearer k"}, "the key that was")]
)
async def test_a_refused_key_is_said_before_any_request(headers, words):
    async with serve(Endpoint(models_status=401)) as url:
        with pytest.raises(TargetError, match=words):
            await look(url, headers=headers)


async def test_an_unreachable_target_is_named():
    with pytest.raises(TargetError, match=r"http://127\.0\.0\.1:9/v1/models cannot be reached"):
        await look("http://127.0.0.1:9")


async def test_https_where_http_is_served_says_how_tls_failed():
    async with serve(Endpoint()) as url:
        with pytest.raises(TargetError, match=r"no TLS connection.*--ca FILE"):
            await look(url.replace("http:", "https:"))


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h", "http://h/v1"),
        ("https://h:8000/", "https://h:8000/v1"),
        ("http://h/v1/", "http://h/v1"),
        ("http://[::1]:80/a", "http://[::1]:80/a/v1"),
    ],
)
def test_a_target_may_be_given_with_or_without_v1(url, base):
    assert parse_target(url) == base


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "no URL"), ("ftp://h", "no URL"), ("h:80", "no URL"), ("http://", "no URL"), ("http://h:x", "no URL"),
        ("http://[h", "no URL"), ("http://u:secret@h", "credentials"), ("http://h?key=secret", "a query"),
    ],
)  # fmt: skip
def test_a_target_that_is_none_is_refused_without_its_secrets(url, complaint):
    with pytest.raises(TargetError, match=complaint) as raised:
        parse_target(url)
    assert "secret" not in str(raised.value)


def test_a_key_comes_from_the_variable_named_and_is_never_said():
    assert read_key(None, {}) is None
    assert read_key("K", {"K": " sk-1\n"}) == "sk-1"
    with pytest.raises(TargetError, match="K is not set"):
        read_key("K", {})
    with pytest.raises(TargetError, match="no header can carry") as raised:
        read_key("K", {"K": "sk-1\r\nX: y"})
    assert "sk-1" not in str(raised.value)


def test_a_file_without_authorities_is_refused(tmp_path):
    (tmp_path / "ca.pem").write_text(json.dumps("none"))
    with pytest.raises(TargetError, match=r"ca\.pem holds no usable certificates"):
        make_tls(tmp_path / "ca.pem", verifies=True)
    assert make_tls(None, verifies=False).verify_mode is ssl.CERT_NONE
