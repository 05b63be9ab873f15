"""What the engine says of itself: facts, models, loads, metrics, ids."""

import asyncio
from pathlib import Path

import msgspec
from engine_serving import TOY, chat_body, make_service
from prometheus_client.parser import text_string_to_metric_families

from engine_shim.engine.server import EngineService
from engine_shim.engine.server.info_routes import describe
from engine_shim.engine.tokenizer import Tokenizer
from tests.waiting import eventually
from wire.load import decode_sglang_loads

CHAT = "/v1/chat/completions"


async def scrape(client):
    text = (await client.get("/metrics")).text
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_health_is_an_empty_200_and_503_while_shutting_down(client, service):
    response = await client.get("/health")
    assert (response.status_code, response.content) == (200, b"")
    service.hub.drain()
    assert (await client.get("/health")).status_code == 503
    assert (await client.post(CHAT, json=chat_body())).status_code == 503


async def test_server_info_says_where_events_are_and_where_the_tokenizer_lies(client, service):
    for path in ("/server_info", "/get_server_info"):
        info = (await client.get(path)).json()
        assert info["kv_events"] == {
            "publisher": "zmq",
            "endpoint_host": "127.0.0.1",
            "endpoint_port_base": service.publisher.sockets.live.port_base,
            "topic": "",
            "block_size": 4,
            "dp_size": 2,
            "replay_endpoint_host": "127.0.0.1",
            "replay_endpoint_port_base": service.publisher.sockets.replay.port_base,
            "replay_buffer_steps": 10_000,
        }
        facts = ("served_model_name", "page_size", "dp_size", "max_total_num_tokens", "disaggregation_mode")
        assert [info[name] for name in facts] == ["dovecote-toy", 4, 2, 1_024, "null"]
        folder = Path(info["tokenizer_path"])
        assert folder.is_absolute()
        assert Tokenizer(folder).encode("same ids") == TOY.encode("same ids")


def test_an_engine_without_events_says_null(gate):
    made = make_service(gate)
    settings = msgspec.structs.replace(made.settings, event_sockets=None)
    silent = EngineService(settings, TOY, lambda rank: made.ranks[rank]._engine)
    assert describe(silent)["kv_events"] is None
    assert made.stop()
    assert silent.stop()


async def test_the_model_is_listed_with_its_context(client):
    (model,) = (await client.get("/v1/models")).json()["data"]
    assert (model["id"], model["max_model_len"], model["object"]) == ("dovecote-toy", 512, "model")


async def test_loads_are_in_sglangs_form_for_every_rank(client):
    reports = decode_sglang_loads((await client.get("/v1/loads")).content)
    assert [report.dp_rank for report in reports] == [0, 1]
    assert [report.capacity_tokens for report in reports] == [1_024, 1_024]
    one = decode_sglang_loads((await client.get("/v1/loads?dp_rank=1")).content)
    assert [report.dp_rank for report in one] == [1]
    assert (await client.get("/v1/loads?dp_rank=7")).status_code == 400


async def test_loads_count_what_was_just_handed_over_as_waiting(client, gate, service):
    gate.close()
    steps = gate.steps
    held = [asyncio.ensure_future(client.post(CHAT, json=chat_body(routed_dp_rank=1))) for _ in range(3)]
    await eventually(lambda: service.hub.requests == (0, 3) and gate.steps > steps)
    idle, busy = decode_sglang_loads((await client.get("/v1/loads")).content)
    assert (idle.running_requests, idle.waiting_requests) == (0, 0)
    assert busy.running_requests + busy.waiting_requests == 3
    gate.open()
    await asyncio.gather(*held)
    after = decode_sglang_loads((await client.get("/v1/loads")).content)[1]
    assert (after.running_requests, after.waiting_requests, after.used_tokens) == (0, 0, 0)


async def test_metrics_count_tokens_pages_batches_and_ends(client):
    body = chat_body("count these words, all of them", routed_dp_rank=1)
    usages = [(await client.post(CHAT, json=body)).json()["usage"] for _ in range(2)]
    await client.post(CHAT, json=chat_body(n=1, routed_dp_rank=1, prompt=[]) | {"messages": []})
    found = await scrape(client)
    rank = ("dp_rank", "1")
    prompt_tokens = sum(usage["prompt_tokens"] for usage in usages)
    cached_tokens = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert found["dovecote_engine_prompt_tokens_total", rank] == prompt_tokens
    assert found["dovecote_engine_cached_tokens_total", rank] == cached_tokens > 0
    assert found["dovecote_engine_computed_tokens_total", rank] == prompt_tokens - cached_tokens
    assert found["dovecote_engine_generated_tokens_total", rank] == 8
    assert found["dovecote_engine_requests_total", ("outcome", "done")] == 2
    assert found["dovecote_engine_time_to_first_token_seconds_count", rank] == 2
    assert found["dovecote_engine_kv_event_batches_total", rank] >= 2
    assert found["dovecote_engine_kv_event_replays_total", ("result", "malformed")] == 0
    states = [found["dovecote_engine_pool_pages", rank, ("state", state)] for state in ("free", "cached", "leased")]
    assert sum(states) == 256
    assert states[1] > states[2] == 0
    for name in ("running_requests", "waiting_requests", "evicted_pages_total", "step_failures_total"):
        assert found[f"dovecote_engine_{name}", rank] == 0


async def test_tokenize_gives_the_ids_that_a_completion_uses(client):
    body = chat_body(tools=[{"type": "function", "function": {"name": "f"}}], return_token_ids=True)
    used = (await client.post(CHAT, json=body)).json()["prompt_token_ids"]
    told = (await client.post("/tokenize", json={key: body[key] for key in ("messages", "tools")})).json()
    assert told == {"count": len(used), "max_model_len": 512, "tokens": used, "token_strs": None}


async def test_tokenize_and_detokenize_are_inverse(client):
    body = {"model": "dovecote-toy", "prompt": "grüße 🐦<|im_end|>", "return_token_strs": True}
    told = (await client.post("/tokenize", json=body)).json()
    assert told["token_strs"][-1] == "<|im_end|>"
    back = (await client.post("/detokenize", json={"tokens": told["tokens"]})).json()
    assert back == {"prompt": "grüße 🐦<|im_end|>"}
