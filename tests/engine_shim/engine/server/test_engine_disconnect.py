"""A client that goes away frees its request at once: pages, counts and rank."""

import asyncio

import httpx
import pytest
from engine_serving import chat_body, is_idle

from tests.waiting import PATIENCE_S, eventually

CHAT = "/v1/chat/completions"
LONG = {"max_tokens": 400}
BODIES = [
    (CHAT, chat_body(**LONG)),
    (CHAT, chat_body(stream=True, **LONG)),
    (CHAT, chat_body(stream=True, n=3, **LONG)),
    ("/v1/completions", {"prompt": ["a", "b"], **LONG}),
    ("/v1/completions", {"prompt": "a", "stream": True, **LONG}),
    ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 400}}),
    ("/generate", {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 400}}),
]


async def scrape_cancelled(client):
    lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if 'requests_total{outcome="cancelled"}' in line)


@pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda value: str(value)[:30])
async def test_C03_C04_hanging_up_before_the_first_token_frees_the_request(served, path, body):
    served.gate.close()
    async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as client:
        task = asyncio.ensure_future(client.post(path, json=body))
        await eventually(lambda: served.gate.steps > 0 and sum(served.service.hub.requests) > 0)
        task.cancel()
        await asyncio.wait((task,))
        await eventually(lambda: not any(served.service.hub.requests))
        served.gate.open()
        await eventually(lambda: is_idle(served.service))
        assert await scrape_cancelled(client) == 1


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
async def test_C04_hanging_up_in_the_middle_of_a_stream_frees_the_request(served, path):
    async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as client:
        body = chat_body(prompt="a", stream=True, **LONG)
        async with client.stream("POST", path, json=body) as response:
            lines = response.aiter_lines()
            for _ in range(3):
                await anext(lines)
            served.gate.close()
        await eventually(lambda: not any(served.service.hub.requests))
        served.gate.open()
        await eventually(lambda: is_idle(served.service))
        finished = [rank.snapshot.counters["aborted_requests"] for rank in served.service.ranks]
        assert sum(finished) in (0, 1)


async def test_B04_many_clients_hanging_up_leave_every_count_at_zero(served):
    async with httpx.AsyncClient(
        base_url=served.url, limits=httpx.Limits(max_connections=None), timeout=PATIENCE_S
    ) as client:
        for wave in range(4):
            tasks = [
                asyncio.ensure_future(
                    client.post(CHAT, json=chat_body(f"number {index}", stream=index % 2 == 0, **LONG))
                )
                for index in range(10)
            ]
            wanted = served.gate.steps + wave
            await eventually(lambda wanted=wanted: served.gate.steps > wanted)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await eventually(lambda: is_idle(served.service))
        assert (await client.post(CHAT, json=chat_body())).status_code == 200


async def test_a_request_that_was_hung_up_on_leaves_its_computed_pages_cached(served):
    prompt = list(range(100, 140))
    async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as client:
        body = {"prompt": prompt, "stream": True, "routed_dp_rank": 0, **LONG}
        async with client.stream("POST", "/v1/completions", json=body) as response:
            await anext(response.aiter_lines())
        await eventually(lambda: is_idle(served.service))
        again = (await client.post("/v1/completions", json={"prompt": prompt, "routed_dp_rank": 0})).json()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 36
