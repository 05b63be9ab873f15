"""The official OpenAI client talks to an engine through the router, streamed and not, and gets its errors."""

from contextlib import AsyncExitStack

import openai
import pytest
from fake_engine import ROLE, answering, chunk, running, streaming
from keeping_engine import KeepingEngine
from proxy_harness import on_socket


@pytest.fixture
async def official(wire_client):
    async with openai.AsyncOpenAI(api_key="k", base_url=f"{wire_client.base_url}/v1", max_retries=0) as client:
        yield client


MESSAGES = [{"role": "user", "content": "hello"}]


async def test_whole_answers_and_streams_arrive(official, engine):
    whole = await official.chat.completions.create(model="toy", messages=MESSAGES)
    assert whole.choices[0].message.content == "abc"
    assert whole.usage.prompt_tokens_details.cached_tokens == 0
    stream = await official.chat.completions.create(model="toy", messages=MESSAGES, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "abc"
    stream = await official.chat.completions.create(
        model="toy", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [3]


async def test_errors_are_the_clients_own_kinds(official, engine):
    with pytest.raises(openai.NotFoundError):
        await official.chat.completions.create(model="other", messages=MESSAGES)
    engine.script = answering(429, b'{"error":{"message":"slow down","type":"t","param":null,"code":null}}')
    with pytest.raises(openai.RateLimitError, match="slow down"):
        await official.chat.completions.create(model="toy", messages=MESSAGES)
    engine.script = answering(200, b"<")
    with pytest.raises(openai.InternalServerError):
        await official.chat.completions.create(model="toy", messages=MESSAGES)


async def test_C12_a_stream_that_breaks_raises_in_the_client(official, engine):
    engine.script = streaming(ROLE, chunk("a"), end="abort")
    stream = await official.chat.completions.create(model="toy", messages=MESSAGES, stream=True)
    with pytest.raises(openai.APIError):
        [piece async for piece in stream]


async def test_models_are_listed(official):
    assert [model.id async for model in official.models.list()] == ["toy"]


async def test_responses_are_created_followed_up_read_and_deleted():
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(running(KeepingEngine())) for _ in range(3)]
        client = await stack.enter_async_context(on_socket([engine.url for engine in engines]))
        official = await stack.enter_async_context(
            openai.AsyncOpenAI(api_key="k", base_url=f"{client.base_url}/v1", max_retries=0)
        )
        first = await official.responses.create(model="toy", input="hello")
        stream = await official.responses.create(model="toy", input="go on", previous_response_id=first.id, stream=True)
        events = [event async for event in stream]
        assert [event.delta for event in events if event.type == "response.output_text.delta"]
        second = events[-1].response
        assert second.usage.input_tokens_details.cached_tokens == 4
        assert (await official.responses.retrieve(second.id)).id == second.id
        await official.responses.cancel(second.id)
        await official.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError, match="no worker here"):
            await official.responses.create(model="toy", input="go on", previous_response_id=second.id)
