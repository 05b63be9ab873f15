"""Fake engines whose cache events go out over real sockets, and what the router makes of a prompt then."""

from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from fake_engine import FakeEngine, running
from proxy_harness import eventually, in_process

from engine_shim.engine.publish import Endpoint, EventDialect, EventPublisher, EventSockets
from prefix_index.trust import Trust
from wire.events import BlockRemoved, BlockStored
from wire.ids import Target, WorkerId

TOY = Path(__file__).parents[2] / "engine_shim/engine/tokenizer/toy"
LOCAL = Endpoint("127.0.0.1", 0)
PROMPT = tuple(range(100, 165))  # 64 tokens in blocks, and the one that is always computed


def blocks(first, last, *, tokens=PROMPT, size=4, parent=..., **fields):
    """Blocks `first` to `last` of a prompt, named 1, 2, 3, ... by the engine."""
    return BlockStored(
        block_hashes=tuple(range(first, last + 1)),
        parent_block_hash=(first - 1 or None) if parent is ... else parent,
        token_ids=tuple(tokens[size * (first - 1) : size * last]),
        block_tokens=size,
        **fields,
    )


def removed(*names, **fields):
    return BlockRemoved(block_hashes=names, **fields)


class TellingEngine(FakeEngine):
    """An engine that publishes what a test says, numbered and kept for replay, one socket a rank."""

    def __init__(self, *, dialect=EventDialect.VLLM_MAP, dp_size=1, page_tokens=4, keeps=10_000, encode=None):
        super().__init__()
        self.publisher = EventPublisher(
            EventSockets(live=LOCAL, replay=LOCAL, topic="kv", buffer_steps=keeps),
            dp_size=dp_size,
            encode=encode or dialect.encoder(),
            replays_topic=dialect.replays_topic,
        )
        self.publisher.start()
        self.server_info |= {
            "dp_size": dp_size,
            "page_size": page_tokens,
            "kv_events": self.publisher.describe(block_tokens=page_tokens),
        }

    def tell(self, *events, rank=0):
        """One batch."""
        self.publisher.topics[rank].publish(events, 1.0)


class RawEngine(TellingEngine):
    """An engine that sends bytes as they are given to it."""

    def __init__(self, **arguments):
        super().__init__(encode=lambda batch: batch.events[0], **arguments)

    def tell_objects(self, *events, rank=0):
        """A batch in vLLM's outer form whose events may be anything."""
        self.tell(msgspec.msgpack.encode([1.0, list(events), rank]), rank=rank)


class Asker:
    """A client that waits until the router has read everything, and asks for prompts given as ids."""

    def __init__(self, client, engines):
        self.client, self.engines, self.router = client, engines, client.router
        #: Other ways to reuse, by rank, as the last decision lists them.
        self.options = {}

    def view(self, place=0, rank=0):
        """What the router knows of a rank's stream."""
        target = Target(WorkerId(f"w{place}"), rank)
        return next((view for view in self.router.events.to_views() if view.target == target), None)

    async def read_all(self, trust=Trust.EXACT):
        """Until every batch that was told has come in, or come again, and the streams are in a state."""
        told = [
            (place, rank, topic.published_batches - 1)
            for place, engine in enumerate(self.engines)
            for rank, topic in enumerate(engine.publisher.topics)
            if topic.published_batches
        ]

        def is_read():
            views = [(self.view(place, rank), newest) for place, rank, newest in told]
            return all(view is not None and view.last_seq == newest and view.trust is trust for view, newest in views)

        await eventually(is_read)

    async def credit(self, tokens=PROMPT, *, trust=Trust.EXACT, **fields):
        """Tokens that each rank is credited with for a prompt, ranks without any left out."""
        await self.read_all(trust)
        body = {"model": "toy", "prompt": list(tokens), "max_tokens": 1} | fields
        answer = await self.client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        newest = (await self.client.get("/v1/decisions")).json()["decisions"][0]["decision"]
        self.options = {name_rank(each["target"]): each["options"] for each in newest["candidates"]}
        found = {name_rank(each["target"]): each["overlap_tokens"] for each in newest["candidates"]}
        return {name: count for name, count in found.items() if count}


def name_rank(target):
    return f"{target['worker']}/{target['dp_rank']}"


@asynccontextmanager
async def fleet_of(*engines, **sections):
    """A router in front of engines, which it follows."""
    try:
        async with AsyncExitStack() as stack:
            for engine in engines:
                await stack.enter_async_context(running(engine))
            urls = [engine.url for engine in engines]
            client = await stack.enter_async_context(in_process(urls, tokenizer={"path": str(TOY)}, **sections))
            yield Asker(client, engines)
    finally:
        for engine in engines:
            engine.publisher.close()
