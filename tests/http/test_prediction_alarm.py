"""First predictions, predictions that an engine contradicts, and those that rest on more than the device cache."""

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import zmq
from aiohttp import web
from fake_engine import USAGE, WHOLE, FakeEngine, running
from proxy_harness import eventually, in_process, value

from router.fleet.agreement import RUN
from router.policy.prefill import prefill_s
from tests.router.events.publisher_fake import Publisher, stored
from wire.events import BlockStored, Medium

TOY = Path(__file__).parents[2] / "engine_shim/engine/tokenizer/toy"
PROMPT = [{"role": "user", "content": "a question about many things " * 20}]


def answering(cached_tokens):
    async def script(_engine, _request, _body):
        return web.json_response(WHOLE | {"usage": USAGE | {"prompt_tokens_details": {"cached_tokens": cached_tokens}}})

    return script


@pytest.fixture
async def publisher():
    context = zmq.Context()
    publisher = Publisher(context)
    yield publisher
    publisher.close()
    context.destroy(linger=0)


@asynccontextmanager
async def router_before(engine, publisher, cache=None, **info):
    """A router that follows an engine's events, once these stand."""
    ports = {
        "endpoint_port_base": int(publisher.endpoint.rpartition(":")[2]),
        "replay_endpoint_port_base": int(publisher.replay_endpoint.rpartition(":")[2]),
    }
    engine.server_info |= {"kv_events": {"endpoint_host": "127.0.0.1", **ports}} | info
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(engine))
        workers = [{"url": engine.url, "id": "w0", "cache": cache or {}}]
        client = await stack.enter_async_context(in_process([], workers=workers, tokenizer={"path": str(TOY)}))
        (target,) = client.router.fleet.workers["w0"].targets
        await eventually(lambda: client.router.events.find_trust(target) == "exact")
        yield client


async def rank(client):
    return (await client.get("/v1/workers")).json()["workers"][0]["ranks"][0]


def accuracies(client):
    return [record.accuracy for record in client.router.placer.decisions.find_latest(99)]


async def test_a_first_request_is_predicted_exactly_before_the_engine_told_anything(publisher):
    engine = FakeEngine()
    engine.script = answering(0)
    del engine.server_info["page_size"]
    async with router_before(engine, publisher) as client:
        assert client.router.events.block_sizes() == set()
        await client.chat(messages=PROMPT)
        assert accuracies(client) == ["exact"]
        assert (await rank(client))["trust"] == "exact"


async def test_a_first_request_that_found_more_than_nothing_is_not_explained_away(publisher):
    engine = FakeEngine()
    engine.script = answering(16)
    del engine.server_info["page_size"]
    async with router_before(engine, publisher) as client:
        await client.chat(messages=PROMPT)
        await eventually(lambda: accuracies(client) == ["unexplained"])


async def test_A19_predictions_of_nothing_that_the_engine_contradicts_time_after_time_raise_an_alarm(publisher, caplog):
    publisher.publish(stored(0, 100))
    engine = FakeEngine()
    engine.script = answering(48)
    caplog.set_level(logging.WARNING)
    async with router_before(engine, publisher) as client:
        for _ in range(RUN):
            await client.chat(messages=PROMPT)
        await eventually(lambda: accuracies(client) == ["unexplained"] * RUN)
        shown = await rank(client)
        assert (shown["index_blocks"], shown["disagreement"]) == (100, "blind")
        assert value(client.router, "prediction_disagreement", worker="w0", dp_rank="0", kind="blind") == 1
        told = [record for record in caplog.records if "prediction_disagreement" in record.getMessage()]
        assert len(told) == 1


async def hold(client, publisher, **fields):
    """The engine holds a prompt of ids, in blocks of four; the ids."""
    ids = list(range(100, 125))
    event = BlockStored(
        block_hashes=tuple(range(1, 7)), parent_block_hash=None, token_ids=tuple(ids[:24]), block_tokens=4, **fields
    )
    await eventually(publisher.has_subscriber)
    publisher.publish(event)
    await eventually(lambda: client.router.events.to_views()[0].batches)
    return ids


async def complete(client, ids):
    answer = await client.post("/v1/completions", json={"model": "toy", "prompt": ids})
    request_id = answer.headers["x-request-id"]
    await eventually(lambda: client.router.placer.decisions.find(request_id).accuracy is not None)
    return (await client.get(f"/v1/decisions/{request_id}")).json()


async def test_A19_an_engine_with_keys_of_pairs_is_looked_up_by_pairs(publisher):
    engine = FakeEngine()
    engine.script = answering(20)
    async with router_before(engine, publisher, speculative_algorithm="EAGLE3", page_size=4) as client:
        ids = await hold(client, publisher)
        told = await complete(client, ids)
        assert (told["accuracy"], told["actual_cached_tokens"]) == ("exact", 20)
        engine.script = answering(16)
        assert (await complete(client, ids))["accuracy"] == "upper_bound"


async def test_blocks_in_host_memory_are_a_way_to_serve_that_decisions_show(publisher):
    engine = FakeEngine()
    cache = {"layout": [{"kind": "full_attention", "bytes_per_token": 10}]}
    async with router_before(engine, publisher, cache, page_size=4) as client:
        ids = await hold(client, publisher, medium=Medium.HOST)
        (candidate,) = (await complete(client, ids))["decision"]["candidates"]
        (way,) = candidate["options"]
        assert (way["reach"], way["reuse_tokens"], way["host_tokens"], way["host_bytes"]) == ("host", 24, 24, 240)
        assert candidate["overlap_tokens"] == 0
        everything_anew = prefill_s(25, 25, client.router.config.policy.coefficients)
        assert 0 < candidate["terms"]["reuse"] < everything_anew


async def test_an_answer_corrects_what_is_believed_of_a_declared_window(publisher):
    engine = FakeEngine()
    engine.script = answering(8)
    cache = {"layout": [{"kind": "full_attention"}, {"kind": "sliding_window", "window_tokens": 8}]}
    async with router_before(engine, publisher, cache, page_size=4) as client:
        ids = await hold(client, publisher)
        told = await complete(client, ids)
        assert (told["decision"]["predicted_cached_tokens"], told["accuracy"]) == (24, "believed")
        told = await complete(client, ids)
        assert (told["decision"]["predicted_cached_tokens"], told["accuracy"]) == (8, "exact")
