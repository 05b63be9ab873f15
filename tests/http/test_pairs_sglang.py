"""SGLang pairs: two legs at once in one room, one answer, and nothing left anywhere whichever way it ends."""

import asyncio
import json
import re
from contextlib import AsyncExitStack

import pytest
from fake_engine import MODEL
from pair_engines import SglangEngine, SglangFabric
from proxy_harness import CHAT, eventually, in_process, on_socket, value

PROMPTS = {"model": MODEL, "prompt": ["one", "two", "three"], "n": 2, "max_tokens": 4}


class Pair:
    """A prefill engine and a decode engine, or several of each."""

    def __init__(self, prefills, decodes, fabric):
        self.prefills, self.decodes, self.fabric = prefills, decodes, fabric
        self.prefill, self.decode = prefills[0], decodes[0]

    @property
    def urls(self):
        return [engine.url for engine in (*self.prefills, *self.decodes)]


@pytest.fixture
async def make_pair():
    """Builds pairs; one that was not told what its protocol wants fails the test."""
    async with AsyncExitStack() as stack:
        made = []

        async def make(*, prefill_dp=1, decode_dp=1, prefills=1, decodes=1, missing_leg_s=30.0):
            fabric = SglangFabric(missing_leg_s)
            engines = [SglangEngine(fabric, "prefill", prefill_dp) for _ in range(prefills)]
            others = [SglangEngine(fabric, "decode", decode_dp) for _ in range(decodes)]
            for engine in (*engines, *others):
                await engine.start()
                stack.push_async_callback(engine.stop)
            made.append(Pair(engines, others, fabric))
            return made[-1]

        yield make
        for pair in made:
            assert pair.fabric.violations == []


async def test_a_stream_comes_from_the_decode_engine_and_both_were_told_of_each_other(make_pair):
    pair = await make_pair(prefill_dp=4, decode_dp=2)
    async with in_process(pair.urls) as client:
        for _ in range(12):
            response = await client.chat(stream=True, temperature=0.5)
            assert response.status_code == 200
            assert b"[DONE]" in response.content
            assert response.headers["x-dovecote-worker"] == "w1"
        sent = [(pair.prefill.body(n), pair.decode.body(n)) for n in range(12)]
    for prefill, decode in sent:
        assert prefill["bootstrap_room"] == decode["bootstrap_room"]
        assert prefill["bootstrap_room"] % 4 == prefill["routed_dp_rank"] == decode["disagg_prefill_dp_rank"]
        assert (prefill["bootstrap_host"], prefill["bootstrap_port"]) == ("127.0.0.1", 8_998)
        assert prefill["rid"] == decode["rid"]
        assert prefill["temperature"] == decode["temperature"] == 0.5
        assert prefill["messages"] == CHAT["messages"]
    assert len({prefill["bootstrap_room"] for prefill, _ in sent}) == 12
    assert {prefill["routed_dp_rank"] for prefill, _ in sent} > {0}
    assert {decode["routed_dp_rank"] for _, decode in sent} == {0, 1}


async def test_a_batch_gets_a_room_for_each_item_and_choice(make_pair):
    pair = await make_pair(prefill_dp=3)
    async with in_process(pair.urls) as client:
        response = await client.post("/v1/completions", json=PROMPTS)
        assert response.status_code == 200
    rooms = pair.prefill.body()["bootstrap_room"]
    assert len(set(rooms)) == 6
    assert {room % 3 for room in rooms} == {pair.prefill.body()["routed_dp_rank"]}


async def test_a_fake_pair_that_is_misled_says_so(make_pair):
    pair = await make_pair(prefill_dp=2)
    fabric = pair.fabric
    for fields in (
        {"bootstrap_room": 3, "routed_dp_rank": 0, "bootstrap_host": "h", "bootstrap_port": 1},
        {"bootstrap_room": 0, "routed_dp_rank": 0, "bootstrap_host": "h", "bootstrap_port": 1},
    ):
        with pytest.raises(ValueError, match="room"):
            fabric.join(pair.prefill, fields)
    assert len(fabric.violations) == 2
    fabric.violations.clear()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failing", [200, 400, 503, 500])
async def test_C01_a_prefill_that_refuses_is_the_answer_and_frees_the_decode_engine(make_pair, failing, stream):
    pair = await make_pair()
    pair.prefill.failing = failing
    async with in_process(pair.urls) as client:
        response = await client.chat(stream=stream)
        assert response.status_code == failing
        assert response.json()["error"]["message"] == "no room"
        assert response.headers["x-dovecote-worker"] == "w0"
        await eventually(pair.decode.saw_disconnect.is_set)
        await eventually(lambda: pair.decode.aborted)
        assert value(client.router, "upstream_errors_total", worker="w1", reason="status_5xx") == 0
        breakers = client.router.placer.breakers
        assert not any(breakers.knows(target) for target in client.router.fleet.find_ranks("w1"))


@pytest.mark.parametrize("stream", [False, True])
async def test_C01_a_prefill_whose_connection_breaks_is_an_error_at_once(make_pair, stream):
    pair = await make_pair()
    pair.prefill.failing = "reset"
    async with in_process(pair.urls) as client:
        response = await client.chat(stream=stream)
        assert response.status_code == 502
        assert "prefill leg" in response.json()["error"]["message"]
        await eventually(pair.decode.saw_disconnect.is_set)
        assert value(client.router, "upstream_errors_total", worker="w0", reason="upstream_closed") == 1
        assert len(pair.prefill.requests) == 1


async def test_C02_the_first_token_does_not_wait_for_the_prefills_answer(make_pair):
    pair = await make_pair()
    pair.prefill.hold("answer")
    async with on_socket(pair.urls) as client, client.stream("POST", "/v1/chat/completions", json=CHAT | STREAM) as got:
        pieces = got.aiter_bytes()
        text = b""
        while b'"content":"b"' not in text.replace(b" ", b""):
            text += await anext(pieces)
        # B10: its rank is free although its answer has not come.
        assert value(client.router, "inflight_requests", worker="w0", dp_rank="0") == 0
        pair.prefill.release("answer")
        async for _ in pieces:
            pass
    assert not pair.prefill.saw_disconnect.is_set()


STREAM = {"stream": True}


async def test_a_prefill_that_fails_behind_the_output_changes_nothing(make_pair):
    pair = await make_pair()
    pair.prefill.hold("answer")
    pair.decode.hold("rest")
    async with on_socket(pair.urls) as client:
        async with client.stream("POST", "/v1/chat/completions", json=CHAT | STREAM) as got:
            pieces = got.aiter_bytes()
            text = await anext(pieces)
            while b'"a"' not in text:
                text += await anext(pieces)
            (room,) = pair.fabric.rooms.values()
            room.failed = "late"
            pair.prefill.release("answer")
            await eventually(lambda: len(client.router._sending.background) == 0)
            pair.decode.release("rest")
            async for piece in pieces:
                text += piece
        assert text.endswith(b"data: [DONE]\n\n")


async def test_a_prefill_that_fails_before_the_output_ends_a_stream_with_an_error(make_pair):
    pair = await make_pair()
    pair.prefill.hold("answer")
    pair.decode.hold("output")
    async with on_socket(pair.urls) as client:
        async with client.stream("POST", "/v1/chat/completions", json=CHAT | STREAM) as got:
            pieces = got.aiter_bytes()
            text = await anext(pieces)
            (room,) = pair.fabric.rooms.values()
            room.failed = "lost connection"
            pair.prefill.release("answer")
            async for piece in pieces:
                text += piece
        assert json.loads(text.rstrip(b"\n").rpartition(b"data: ")[2])["error"]["code"] == "prefill_failed"
        assert b"[DONE]" not in text
        assert value(client.router, "upstream_errors_total", worker="w0", reason="prefill_failed") == 1
        await eventually(pair.decode.saw_disconnect.is_set)


@pytest.mark.parametrize("failing", [500, "reset"])
async def test_a_decode_leg_that_fails_frees_the_prefill_engine(make_pair, failing):
    pair = await make_pair()
    pair.decode.failing = failing
    pair.prefill.hold("answer")
    async with in_process(pair.urls) as client:
        response = await client.chat()
        assert response.status_code == (502 if failing == "reset" else failing)
        await eventually(pair.prefill.saw_disconnect.is_set)
        await eventually(lambda: pair.prefill.aborted)


@pytest.mark.parametrize("stream", [False, True])
async def test_C03_C04_a_client_that_leaves_ends_both_legs(make_pair, stream):
    pair = await make_pair()
    pair.prefill.hold("prefill")
    async with on_socket(pair.urls) as client:
        call = asyncio.create_task(client.chat(stream=stream))
        await pair.prefill.saw_request.wait()
        await pair.decode.saw_request.wait()
        call.cancel()
        await eventually(lambda: pair.prefill.saw_disconnect.is_set() and pair.decode.saw_disconnect.is_set())
        await eventually(lambda: pair.prefill.aborted and pair.decode.aborted)
        # Engines end all whose names begin alike: no client chooses one.
        assert re.fullmatch("[0-9a-f]{32}", pair.prefill.body()["rid"])
        assert pair.prefill.aborted == pair.decode.aborted == [pair.prefill.body()["rid"]]


async def test_C03_C04_a_client_that_leaves_in_the_stream_ends_both_legs(make_pair):
    pair = await make_pair()
    pair.prefill.hold("answer")
    pair.decode.hold("rest")
    async with on_socket(pair.urls) as client:
        async with client.stream("POST", "/v1/chat/completions", json=CHAT | STREAM) as got:
            async for piece in got.aiter_bytes():
                if b'"a"' in piece:
                    break
        await eventually(lambda: pair.prefill.saw_disconnect.is_set() and pair.decode.saw_disconnect.is_set())
        await eventually(lambda: pair.decode.aborted)


async def test_C19_a_prefill_that_took_the_request_and_is_silent_is_not_asked_again(make_pair):
    pair = await make_pair(prefills=2, decodes=2)
    for engine in pair.prefills:
        engine.hold("prefill")
    async with in_process(pair.urls, timeouts={"prefill_s": 0.2}) as client:
        response = await client.chat()
        assert response.status_code == 504
        assert "prefill worker was not done within 0.2 s" in response.json()["error"]["message"]
        assert sum(len(engine.requests) for engine in pair.prefills) == 1
        await eventually(lambda: sum(engine.saw_disconnect.is_set() for engine in (*pair.prefills, *pair.decodes)) == 2)


async def test_a_decode_engine_that_never_begins_its_stream_is_an_error_within_the_limit(make_pair):
    pair = await make_pair()
    pair.decode.failing = "silent"
    async with in_process(pair.urls, timeouts={"handoff_s": 0.2}) as client:
        response = await client.chat(stream=True)
        assert response.status_code == 504
        assert "decode worker gave nothing within 0.2 s" in response.json()["error"]["message"]
        await eventually(pair.decode.saw_disconnect.is_set)


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_leg_that_nobody_accepts_is_placed_anew_in_a_new_room(make_pair, role):
    pair = await make_pair(prefills=2, decodes=2)
    engines = pair.prefills if role == "prefill" else pair.decodes
    async with in_process(pair.urls) as client:
        await engines[0].stop()
        answers = [await client.chat() for _ in range(24)]
        assert {answer.status_code for answer in answers} == {200}
        assert value(client.router, "retries_total") == 1
        dead = f"w{pair.urls.index(engines[0].url)}"
        assert value(client.router, "upstream_errors_total", worker=dead, reason="upstream_unreachable") == 1
    rids = [engine.body(n)["rid"] for engine in pair.prefills for n in range(len(engine.requests))]
    assert len(set(rids)) == len(rids)


async def test_G03_G04_a_client_cannot_name_rooms_or_ranks(make_pair):
    pair = await make_pair(prefill_dp=2)
    async with in_process(pair.urls) as client:
        for field in ("bootstrap_room", "bootstrap_host", "kv_transfer_params", "kv_hints", "disagg_prefill_dp_rank"):
            refused = await client.chat(**{field: 7})
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == field
        headers = [("X-Data-Parallel-Rank", "99"), ("x-data-parallel-rank", "98"), ("X-Override-Bootstrap-Room", "4")]
        response = await client.post("/v1/chat/completions", json=CHAT | {"routed_dp_rank": 9}, headers=headers)
        assert response.status_code == 200
    for engine in (pair.prefill, pair.decode):
        lines = engine.headers()
        assert len([line for line in lines if line[0] == "x-data-parallel-rank"]) == 1
        assert not [line for line in lines if line[0].startswith("x-override-")]
        assert engine.body().get("routed_dp_rank", 0) < 2


async def test_E07_cached_tokens_of_both_legs_are_counted_once(make_pair):
    pair = await make_pair()
    pair.prefill.cached = pair.decode.cached = 8
    async with in_process(pair.urls) as client:
        for stream in (False, True):
            response = await client.chat(stream=stream, stream_options={"include_usage": True} if stream else None)
            assert response.text.count('"cached_tokens": 8') == 1
            record = client.router.placer.decisions.find(response.headers["x-request-id"])
            assert record.actual_cached_tokens == 8
        cached = [
            value(client.router, "actual_cached_tokens_total", worker=worker, dp_rank="0") for worker in ("w0", "w1")
        ]
        assert sum(cached) == 16


async def test_what_only_one_engine_can_do_is_refused_by_a_fleet_of_pairs(make_pair):
    pair = await make_pair()
    async with in_process(pair.urls) as client:
        response = await client.post("/v1/embeddings", json={"model": MODEL, "input": "text"})
        assert response.status_code == 503
        assert "only pairs" in response.json()["error"]["message"]
    assert pair.prefill.requests == pair.decode.requests == []


async def test_a_fleet_without_one_leg_says_which_is_missing(make_pair):
    pair = await make_pair()
    async with in_process([pair.prefill.url]) as client:
        response = await client.chat()
        assert response.status_code == 503
        assert "none of the other" in response.json()["error"]["message"]
        (worker,) = (await client.get("/v1/workers")).json()["workers"]
        assert (worker["role"], worker["engine"]) == ("prefill", "sglang")
