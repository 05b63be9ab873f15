"""Events of a step are out before its tokens are; a fresh engine starts at 0 with a cleared cache."""

import pytest
from engine_serving import TOY, chat_body
from test_engine_control import replay

from tests.waiting import eventually
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared, BlockStored

CHAT = "/v1/chat/completions"


async def test_the_events_of_a_step_are_published_before_its_tokens_are_handed_over(client, service):
    order = []
    topic, hub = service.publisher.topics[0], service.hub
    publish, deliver = topic.publish, service.ranks[0]._ports.deliver

    def record_publish(events, ts_s):
        publish(events, ts_s)
        order.append("events")

    def record_deliver(signals):
        order.extend("token" for signal in signals if getattr(signal, "token_id", None) is not None)
        deliver(signals)

    topic.publish = record_publish
    service.ranks[0]._ports = type(service.ranks[0]._ports)(
        build_engine=service.ranks[0]._ports.build_engine,
        publish=service.ranks[0]._ports.publish,
        deliver=record_deliver,
        clock=service.ranks[0]._ports.clock,
    )
    await client.post(CHAT, json=chat_body("enough words to fill a page or two", max_tokens=1, routed_dp_rank=0))
    await eventually(lambda: hub.requests == (0, 0))
    assert order == ["events", "token"]


async def test_when_an_answer_is_there_its_blocks_can_already_be_replayed(client, service):
    body = chat_body("enough words to fill a page or two", max_tokens=1, routed_dp_rank=1, return_token_ids=True)
    prompt_ids = (await client.post(CHAT, json=body)).json()["prompt_token_ids"]
    stored = []
    for payload in await replay(service.publisher.sockets.replay.address(1)):
        batch = decode_batch(payload)
        assert batch.dp_rank == 1
        stored += [token for event in batch.events if isinstance(event, BlockStored) for token in event.token_ids]
    assert stored == prompt_ids[: len(prompt_ids) // 4 * 4]


@pytest.mark.parametrize("start", ["first", "second"])
async def test_A03_a_started_engine_counts_from_zero_and_says_its_cache_is_empty(client, service, start):
    await client.post(CHAT, json=chat_body(routed_dp_rank=0))
    for rank in (0, 1):
        topic = service.publisher.topics[rank]
        await eventually(lambda topic=topic: topic.published_batches > 0)
        payloads = await replay(service.publisher.sockets.replay.address(rank))
        assert len(payloads) == topic.published_batches
        assert decode_batch(payloads[0]).events[0] == AllBlocksCleared()


@pytest.mark.parametrize("requests", [12])
async def test_events_rebuild_exactly_the_cache_that_answers_report(client, service, requests):
    """What was stored and not removed predicts each later hit, page by page."""
    prompts = [
        TOY.encode(f"shared head of all prompts {'tail ' * (index % 4)}{index % 3}") for index in range(requests)
    ]
    for prompt in prompts:
        payloads = await replay(service.publisher.sockets.replay.address(0))
        chains, known = set(), {}
        for event in (event for payload in payloads for event in decode_batch(payload).events):
            if isinstance(event, BlockStored):
                prefix = known.get(event.parent_block_hash, ())
                for index, name in enumerate(event.block_hashes):
                    prefix += tuple(event.token_ids[index * 4 : index * 4 + 4])
                    known[name] = prefix
                    chains.add(prefix)
        body = {"prompt": prompt, "max_tokens": 2, "routed_dp_rank": 0}
        usage = (await client.post("/v1/completions", json=body)).json()["usage"]
        lengths = [end for end in range(4, len(prompt), 4) if tuple(prompt[:end]) in chains]
        assert usage["prompt_tokens_details"]["cached_tokens"] == max(lengths, default=0)
