"""The official clients of OpenAI and Anthropic, a router, and engines that compute: every API, predictions exact."""

import json
from contextlib import AsyncExitStack

import anthropic
import openai
import pytest
from engine_process import engine_processes, read_all_events
from proxy_harness import eventually, on_socket, value

pytest.importorskip("torch", reason="needs the engine extra")

MODEL = "dovecote-toy"
SYSTEM = "You keep a loft of homing birds, and answer in few words. " * 4
HELLO = {"role": "user", "content": "Which of the birds came home from over the hills this morning?"}
PARAMETERS = {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}
CHAT_TOOL = {"type": "function", "function": {"name": "look", "description": "Look", "parameters": PARAMETERS}}
RESPONSE_TOOL = {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False}
MESSAGE_TOOL = {"name": "look", "description": "Look somewhere", "input_schema": PARAMETERS}


class Fleet:
    """Clients of one router in front of two engines.

    Whatever they send is sent once the router knows of all that was answered before, so that it can be exact.
    """

    def __init__(self, client, engines):
        async def settle(_request):
            await read_all_events(client.router, engines)

        hooks = {"request": [settle]}
        self.http, self.router = client, client.router
        client.event_hooks = hooks
        url = str(client.base_url)
        own = {"api_key": "k", "max_retries": 0}
        self.openai = openai.AsyncOpenAI(
            **own, base_url=f"{url}/v1", http_client=openai.DefaultAsyncHttpxClient(event_hooks=hooks)
        )
        self.anthropic = anthropic.AsyncAnthropic(
            **own, base_url=url, http_client=anthropic.DefaultAsyncHttpxClient(event_hooks=hooks)
        )

    def count(self, accuracy):
        return value(self.router, "predictions_total", accuracy=accuracy)


@pytest.fixture
async def fleet():
    async with AsyncExitStack() as stack:
        engines = await stack.enter_async_context(engine_processes(2, forward="torch"))
        client = await stack.enter_async_context(on_socket([engine.url for engine in engines]))
        await eventually(lambda: all(view.trust == "exact" for view in client.router.events.to_views()))
        made = Fleet(client, engines)
        await stack.enter_async_context(made.openai)
        await stack.enter_async_context(made.anthropic)
        yield made


@pytest.mark.stack
async def test_every_api_works_with_the_official_clients_and_is_predicted(fleet, monkeypatch):
    # On a busy machine events come late.
    monkeypatch.setattr("router.proxy.attempt.EVENT_DELAY_S", 5.0)
    await check_models(fleet)
    await check_chats(fleet)
    await check_completions(fleet)
    await check_messages(fleet)
    await check_responses(fleet)
    await check_embeddings(fleet)
    await check_generate(fleet)
    await eventually(lambda: fleet.count("exact") + fleet.count("raced") + fleet.count("n_greater_1") > 20)
    assert fleet.count("unexplained") == 0
    assert fleet.count("exact") > 15


async def check_models(fleet):
    assert [model.id async for model in fleet.openai.models.list()] == [MODEL]


async def check_chats(fleet):
    asked = {"model": MODEL, "messages": [{"role": "system", "content": SYSTEM}, HELLO], "max_tokens": 8}
    create = fleet.openai.chat.completions.create
    whole = await create(**asked)
    chunks = [chunk async for chunk in await create(**asked, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert not any(chunk.usage for chunk in chunks)
    chunks = [chunk async for chunk in await create(**asked, stream=True, stream_options={"include_usage": True})]
    assert [(chunk.choices, chunk.usage.completion_tokens) for chunk in chunks if chunk.usage] == [([], 8)]
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0
    two = await create(**asked, n=2, temperature=1.0, seed=3)
    assert [choice.index for choice in two.choices] == [0, 1]
    called = await create(**asked, tools=[CHAT_TOOL], tool_choice="required")
    (call,) = called.choices[0].message.tool_calls
    assert call.function.name == "look"
    assert set(json.loads(call.function.arguments)) == {"where"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "over the hills"}
    messages = [*asked["messages"], called.choices[0].message.model_dump(exclude_none=True), result]
    assert (await create(**asked | {"messages": messages}, tools=[CHAT_TOOL])).choices[0].message.content
    pieces = [
        call.function.arguments
        async for chunk in await create(**asked, tools=[CHAT_TOOL], tool_choice="required", stream=True)
        for call in chunk.choices[0].delta.tool_calls or ()
    ]
    assert set(json.loads("".join(pieces))) == {"where"}


async def check_completions(fleet):
    whole = await fleet.openai.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=4)
    stream = await fleet.openai.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=4, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == whole.choices[0].text


async def check_messages(fleet):
    before = fleet.count("exact")
    asked = {"model": MODEL, "max_tokens": 8, "system": [{"type": "text", "text": SYSTEM}], "tools": [MESSAGE_TOOL]}
    turns = [HELLO]
    for number in range(3):
        called = await fleet.anthropic.messages.create(**asked, messages=turns, tool_choice={"type": "any"})
        (use,) = called.content
        assert (use.type, use.name, set(use.input)) == ("tool_use", "look", {"where"})
        result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": f"bird {number}"}]}
        more = {"type": "text", "text": "And now?"}
        turns = [
            *turns,
            {"role": "assistant", "content": [use.model_dump()]},
            {"role": "user", "content": [result, more]},
        ]
        async with fleet.anthropic.messages.stream(**asked, messages=turns) as stream:
            final = await stream.get_final_message()
        assert final.usage.cache_read_input_tokens > 0
        counted = await fleet.anthropic.messages.count_tokens(
            model=MODEL, messages=turns, system=asked["system"], tools=[MESSAGE_TOOL]
        )
        assert counted.input_tokens == final.usage.input_tokens + final.usage.cache_read_input_tokens
        turns = [*turns, {"role": "assistant", "content": final.content[0].text}, HELLO]
    newest = fleet.router.placer.decisions.find_latest(1)[0]
    assert newest.decision.credit == "exact"
    assert newest.decision.predicted_cached_tokens > 100
    await eventually(lambda: fleet.count("exact") >= before + 5)


async def check_responses(fleet):
    create = fleet.openai.responses.create
    asked = {"model": MODEL, "instructions": SYSTEM, "max_output_tokens": 8}
    first = await create(**asked, input=HELLO["content"])
    assert first.output_text
    events = [event async for event in await create(**asked, input=[HELLO], stream=True)]
    assert events[-1].response.output_text == first.output_text
    assert events[-1].response.usage.input_tokens_details.cached_tokens > 0
    newest = fleet.router.placer.decisions.find_latest(1)[0].decision
    assert (newest.credit, newest.predicted_cached_tokens > 0) == ("exact", True)
    called = (await create(**asked, input=[HELLO], tools=[RESPONSE_TOOL], tool_choice="required")).output[0]
    output = {"type": "function_call_output", "call_id": called.call_id, "output": "over the hills"}
    items = [HELLO, called.model_dump(exclude_none=True), output]
    assert (await create(**asked, input=items, tools=[RESPONSE_TOOL])).output_text
    second = await create(**asked, input="And now?", previous_response_id=first.id)
    assert (await fleet.openai.responses.retrieve(second.id)).output_text == second.output_text
    await fleet.openai.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        await fleet.openai.responses.retrieve(second.id)


async def check_embeddings(fleet):
    texts = ["birds", "birds", "rain"]
    one, same, other = (await fleet.openai.embeddings.create(model=MODEL, input=texts)).data
    assert one.embedding == same.embedding != other.embedding


async def check_generate(fleet):
    ids = (await fleet.http.post("/tokenize", json={"model": MODEL, "prompt": SYSTEM})).json()["tokens"]
    body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 4}, "rid": "mine"}
    for _ in range(2):
        answer = (await fleet.http.post("/generate", json=body)).json()
    assert answer["meta_info"]["cached_tokens"] > 0
    newest = fleet.router.placer.decisions.find_latest(1)[0].decision
    assert (newest.credit, newest.prompt_tokens) == ("exact", len(ids))
    text = (await fleet.http.post("/detokenize", json={"model": MODEL, "tokens": ids})).json()["prompt"]
    assert text == SYSTEM
    assert (await fleet.http.post("/abort_request", json={"rid": "mine"})).json() == {"aborted": 0}
