"""Spans of requests arrive at a collector, engines are told of them, and without tracing nothing is made up."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from fake_engine import answering
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from proxy_harness import CHAT, in_process
from test_access import ACCESS, KEYS, bearer

from router.config.watching import TracingConfig
from router.errors import ConfigError
from router.tracing import make_tracing
from tests.ports import closed_port, take_port
from tests.waiting import PATIENCE_S

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-1] + "0"


@asynccontextmanager
async def collector():
    """An OTLP collector, and the spans it got."""
    spans, port = [], take_port()

    async def take(request):
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource in message.resource_spans:
            spans.extend(span for scope in resource.scope_spans for span in scope.spans)
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}", spans
    finally:
        await runner.cleanup()


def attributes(span):
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


async def test_a_request_is_a_span_and_the_engine_is_told_its_parent(engine):
    async with collector() as (url, spans):
        async with in_process([engine.url], tracing={"endpoint": url}) as client:
            await client.post("/v1/chat/completions", json=CHAT, headers={"traceparent": PARENT})
            told = dict(engine.headers())["traceparent"]
            engine.script = answering(500)
            await client.chat()
        first, second = spans
        assert first.trace_id.hex() == PARENT.split("-")[1]
        assert first.parent_span_id.hex() == PARENT.split("-")[2]
        assert told == f"00-{first.trace_id.hex()}-{first.span_id.hex()}-01"
        assert first.name == "POST /v1/chat/completions"
        assert [event.name for event in first.events] == ["placed"]
        assert attributes(first)["dovecote.outcome"] == "done"
        assert attributes(first)["dovecote.worker"] == "w0"
        assert second.trace_id != first.trace_id
        assert second.parent_span_id == b""
        assert (attributes(second)["dovecote.outcome"], second.status.code) == ("error", 2)


async def test_who_does_not_want_to_be_traced_is_not(engine):
    async with collector() as (url, spans):
        async with in_process([engine.url], tracing={"endpoint": url, "sample_ratio": 0.0}) as client:
            await client.post("/v1/chat/completions", json=CHAT, headers={"traceparent": UNSAMPLED})
            assert dict(engine.headers())["traceparent"].startswith(UNSAMPLED[:36])
            assert dict(engine.headers())["traceparent"].endswith("-00")
            await client.chat()
        assert spans == []


async def test_without_tracing_a_clients_parent_goes_on_and_none_is_made(client, engine):
    await client.post("/v1/chat/completions", json=CHAT, headers={"traceparent": PARENT, "tracestate": "a=b"})
    assert dict(engine.headers())["traceparent"] == PARENT
    assert dict(engine.headers())["tracestate"] == "a=b"
    await client.chat()
    assert "traceparent" not in dict(engine.headers())


async def test_no_key_and_no_word_of_a_prompt_is_in_a_span(engine):
    async with collector() as (url, spans):
        async with in_process([engine.url], tracing={"endpoint": url}, access=ACCESS) as client:
            await client.post("/v1/chat/completions", json=CHAT, headers=bearer("client"))
            await client.get("/v1/responses/secret-path-id", headers=bearer("client"))
        text = "".join(map(str, spans))
        assert KEYS["client"] not in text
        assert "hello" not in text
        assert {span.name for span in spans} == {"POST /v1/chat/completions", "GET"}
        assert attributes(spans[0])["dovecote.tenant"] == "client"


async def test_a_collector_that_is_away_costs_no_request(engine, caplog):
    caplog.set_level("CRITICAL", logger="opentelemetry")
    with closed_port() as port:
        async with in_process([engine.url], tracing={"endpoint": f"http://127.0.0.1:{port}"}) as client:
            async with asyncio.timeout(PATIENCE_S):
                assert (await client.chat()).status_code == 200


def test_without_the_extra_it_is_said_what_brings_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(ConfigError, match=r"pip install 'dovecote\[otel\]'"):
        make_tracing(TracingConfig(endpoint="http://127.0.0.1:1"))
    assert make_tracing(TracingConfig()) is None
