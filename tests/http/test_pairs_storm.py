"""Pairs whose engines fail at random under many clients: each gets a whole answer or a clear error, nothing is left."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from pair_engines import SglangEngine, SglangFabric, VllmEngine, VllmFabric
from proxy_harness import eventually, in_process

REQUESTS, AT_ONCE = 120, 24
FAULTS = {"prefill": (500, 503, 400, "reset", "silent"), "decode": (500, 503, 400, "reset", "silent", "broken")}


def make_engines(dialect):
    if dialect == "sglang":
        fabric = SglangFabric()
        return [(role, SglangEngine(fabric, role, 2)) for role in ("prefill", "decode") for _ in range(2)]
    fabric = VllmFabric()
    return [(role, VllmEngine(fabric, "both")) for role in ("prefill", "decode") for _ in range(2)]


def failing(rng, role):
    return lambda: rng.choice(FAULTS[role]) if rng.random() < 0.15 else None


async def ask(client, limit, counts, number):
    stream = number % 3 != 0
    async with limit:
        call = asyncio.ensure_future(client.chat(stream=stream))
        if number % 11 == 0:
            for _ in range(number % 7):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            counts["left"] += 1
            return
        response = await call
    text = response.text
    is_whole = text.endswith("data: [DONE]\n\n") if stream else '"finish_reason"' in text
    assert (response.status_code == 200 and is_whole) or '"error"' in text
    assert not (is_whole and '"error"' in text)
    counts["whole" if is_whole else "error"] += 1


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
async def test_every_client_gets_a_whole_answer_or_a_clear_error_and_nothing_is_left(dialect):
    engines, rng, counts = make_engines(dialect), random.Random(7), Counter()
    async with AsyncExitStack() as stack:
        for role, engine in engines:
            engine.failing = failing(rng, role)
            await engine.start()
            stack.push_async_callback(engine.stop)
        workers = [{"url": engine.url, "id": f"w{n}", "role": role} for n, (role, engine) in enumerate(engines)]
        timeouts = {"prefill_s": 2.0, "handoff_s": 2.0, "first_byte_s": 3.0}
        breaker = {"failures": 1_000, "window": 64, "window_failures": 64}
        async with in_process([], workers=workers, timeouts=timeouts, breaker=breaker) as client:
            limit = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(ask(client, limit, counts, number) for number in range(REQUESTS)))
            assert counts["whole"] > REQUESTS / 4
            assert counts["error"] > 5
            await eventually(lambda: len(client.router._sending.background) == 0)
            assert client.router.count_running() == 0
            # check_idle looks at what is charged.
    if dialect == "sglang":
        assert engines[0][1].fabric.violations == []
