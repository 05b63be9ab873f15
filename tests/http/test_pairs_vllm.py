"""vLLM pairs: one token first, then the client's own request with where the cache is."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest
from fake_engine import MODEL
from pair_engines import GONE, VllmEngine, VllmFabric
from proxy_harness import CHAT, eventually, in_process, on_socket, value


class Pair:
    """One prefill engine and some decode engines."""

    def __init__(self, prefill, decodes, fabric):
        self.prefill, self.decodes, self.decode, self.fabric = prefill, decodes, decodes[0], fabric

    def config(self):
        engines = (("prefill", self.prefill), *(("decode", each) for each in self.decodes))
        return [{"url": engine.url, "id": f"w{n}", "role": role} for n, (role, engine) in enumerate(engines)]


@pytest.fixture
async def make_pair():
    """Builds pairs; a cache that nobody pulled is told by the tests themselves."""
    async with AsyncExitStack() as stack:

        async def make(decodes=1):
            fabric = VllmFabric()
            engines = [VllmEngine(fabric, "both") for _ in range(1 + decodes)]
            for engine in engines:
                await engine.start()
                stack.push_async_callback(engine.stop)
            return Pair(engines[0], engines[1:], fabric)

        yield make


@pytest.fixture
async def pair(make_pair):
    return await make_pair()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 500, "min_tokens": 20},
        {"max_completion_tokens": 300, "max_tokens": None, "n": 3, "best_of": 3},
        {"stream": None, "stream_options": None, "min_tokens": 2},
    ],
)
async def test_C16_the_prefill_gets_a_one_token_copy_and_the_decode_engine_the_original(pair, fields):
    async with in_process([], workers=pair.config()) as client:
        data = json.dumps(CHAT | {"seed": 1e2} | fields).encode()
        response = await client.post("/v1/chat/completions", content=data)
        assert response.status_code == 200
        assert response.headers["x-dovecote-worker"] == "w1"
    prefill, decode = pair.prefill.body(), pair.decode.body()
    assert prefill["max_tokens"] == 1
    assert prefill.get("max_completion_tokens", 1) == 1
    assert prefill["messages"] == CHAT["messages"]
    assert not {"min_tokens", "stream_options", "n", "best_of"} & prefill.keys()
    assert prefill.get("stream") in (None, False)
    params = decode.pop("kv_transfer_params")
    assert params["remote_block_ids"] == [[7, 8]]
    assert params["remote_engine_id"] == pair.prefill.engine_id
    original = json.loads(data)
    if original.get("stream") and not original.get("stream_options"):
        decode.pop("stream_options")
    assert decode == original
    assert pair.fabric.held == {}


async def test_a_response_is_served_by_a_pair_too(pair):
    async with in_process([], workers=pair.config()) as client:
        body = {"model": MODEL, "input": "hello", "max_output_tokens": 64}
        assert (await client.post("/v1/responses", json=body)).status_code == 200
    assert pair.prefill.body()["max_output_tokens"] == 1
    assert "max_tokens" not in pair.prefill.body()
    assert pair.decode.body()["max_output_tokens"] == 64


@pytest.mark.parametrize("failing", [400, 503])
async def test_C01_a_prefill_that_refuses_is_the_answer_and_no_decode_engine_is_asked(pair, failing):
    pair.prefill.failing = failing
    async with in_process([], workers=pair.config()) as client:
        response = await client.chat(stream=True)
        assert response.status_code == failing
        assert response.json()["error"]["message"] == "no room"
    assert pair.decode.requests == []


async def test_C01_a_killed_prefill_engine_is_a_clear_error(pair):
    pair.prefill.failing = "reset"
    async with in_process([], workers=pair.config()) as client:
        response = await client.chat(stream=True)
        assert response.status_code == 502
        assert "(prefill leg)" in response.json()["error"]["message"]
        assert value(client.router, "upstream_errors_total", worker="w0", reason="upstream_closed") == 1
    assert pair.decode.requests == []
    assert len(pair.prefill.requests) == 1


async def test_a_prefill_engine_without_a_connector_is_told_of(pair):
    pair.prefill.tells_params = False
    async with in_process([], workers=pair.config()) as client:
        response = await client.chat()
        assert response.status_code == 502
        assert response.json()["error"]["code"] == "no_kv_transfer_params"
    assert pair.decode.requests == []


async def test_a_decode_engine_that_waits_for_one_that_is_gone_is_an_error_within_the_limit(pair):
    pair.prefill.engine_id = GONE
    async with in_process([], workers=pair.config(), timeouts={"handoff_s": 0.2}) as client:
        response = await client.chat(stream=True)
        assert response.status_code == 504
        assert "decode worker gave nothing within 0.2 s" in response.json()["error"]["message"]
        await eventually(pair.decode.saw_disconnect.is_set)


async def test_C19_a_decode_rank_that_nobody_accepts_is_chosen_anew_and_the_prefill_is_not_repeated(make_pair):
    pair = await make_pair(decodes=2)
    async with in_process([], workers=pair.config()) as client:
        await pair.decodes[0].stop()
        answers = [await client.chat(stream=True) for _ in range(24)]
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["x-dovecote-worker"] for answer in answers} == {"w2"}
        assert value(client.router, "retries_total") == 1
    assert len(pair.prefill.requests) == 24
    assert len(pair.decodes[1].requests) == 24
    assert pair.fabric.held == {}


async def test_C03_C04_a_client_that_leaves_in_either_phase_leaves_nothing_running(pair):
    async with on_socket([], workers=pair.config()) as client:
        pair.prefill.hold("prefill")
        call = asyncio.create_task(client.chat(stream=True))
        await pair.prefill.saw_request.wait()
        call.cancel()
        await eventually(pair.prefill.saw_disconnect.is_set)
        assert pair.decode.requests == []
        pair.prefill.release("prefill")
        pair.decode.hold("role")
        call = asyncio.create_task(client.chat())
        await pair.decode.saw_request.wait()
        call.cancel()
        await eventually(pair.decode.saw_disconnect.is_set)


async def test_several_prompts_are_computed_by_the_decode_engine_alone(pair):
    async with in_process([], workers=pair.config()) as client:
        body = {"model": MODEL, "prompt": ["one", "two"], "max_tokens": 4}
        assert (await client.post("/v1/completions", json=body)).status_code == 200
    assert pair.prefill.requests == []
    assert pair.decode.body() == body


async def test_E07_what_the_prefill_engine_found_counts_though_the_decode_engine_says_none(pair):
    pair.prefill.cached = 6
    async with in_process([], workers=pair.config()) as client:
        response = await client.chat()
        record = client.router.placer.decisions.find(response.headers["x-request-id"])
        assert record.actual_cached_tokens == 6
        assert value(client.router, "actual_cached_tokens_total", worker="w0", dp_rank="0") == 6
        assert value(client.router, "actual_cached_tokens_total", worker="w1", dp_rank="0") == 0


async def test_B10_the_prefill_rank_is_free_while_the_decode_rank_generates(pair):
    pair.decode.hold("rest")
    body = CHAT | {"stream": True}
    async with (
        on_socket([], workers=pair.config()) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as got,
    ):
        pieces = got.aiter_bytes()
        while b'"a"' not in await anext(pieces):
            pass
        counts = [value(client.router, "inflight_requests", worker=name, dp_rank="0") for name in ("w0", "w1")]
        assert counts == [0, 1]
        assert len(client.router.placer.ledger.open_requests()) == 1
        pair.decode.release("rest")
        async for _ in pieces:
            pass
