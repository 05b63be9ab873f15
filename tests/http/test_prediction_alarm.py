"""First predictions, and predictions that an engine contradicts time after time."""

import logging
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import zmq
from aiohttp import web
from fake_engine import USAGE, WHOLE, FakeEngine, running
from proxy_harness import eventually, in_process, value

from router.fleet.agreement import RUN
from tests.router.events.publisher_fake import Publisher, stored

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
async def router_before(engine, publisher, **info):
    """A router that follows an engine's events, once these stand."""
    ports = {
        "endpoint_port_base": int(publisher.endpoint.rpartition(":")[2]),
        "replay_endpoint_port_base": int(publisher.replay_endpoint.rpartition(":")[2]),
    }
    engine.server_info |= {"kv_events": {"endpoint_host": "127.0.0.1", **ports}} | info
    async with running(engine), in_process([engine.url], tokenizer={"path": str(TOY)}) as client:
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


async def test_A19_an_engine_with_keys_of_pairs_is_looked_up_by_pairs(publisher):
    engine = FakeEngine()
    async with router_before(engine, publisher, speculative_algorithm="EAGLE3", page_size=4) as client:
        catalogue = client.router.prompts
        prompter = catalogue.find("toy").prompter
        ids = prompter.tokenizer.encode(PROMPT[0]["content"]).tolist()
        blocks = len(ids) // 4
        event = stored(0, blocks)
        publisher.publish(type(event)(
            block_hashes=event.block_hashes, parent_block_hash=None, token_ids=tuple(ids[: 4 * blocks]), block_tokens=4
        ))  # fmt: skip
        await eventually(lambda: client.router.events.to_views()[0].blocks == blocks)
        engine.script = answering((len(ids) - 2) // 4 * 4)
        await client.post("/v1/completions", json={"model": "toy", "prompt": ids})
        assert accuracies(client) == ["exact"]
        assert client.router.placer.decisions.find_latest(1)[0].actual_cached_tokens > 0
