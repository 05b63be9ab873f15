"""`/v1/messages`: what the official client makes of it, its counts, its errors, and the prompt behind it."""

import httpx
import pytest
from anthropic import AsyncAnthropic, BadRequestError, NotFoundError
from engine_serving import TOY

from tests.waiting import PATIENCE_S

HELLO = [{"role": "user", "content": "Hello there"}]
TOOL = {
    "name": "look",
    "description": "Look somewhere",
    "input_schema": {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]},
}


@pytest.fixture
async def official(served):
    async with AsyncAnthropic(api_key="k", base_url=served.url, max_retries=0) as client:
        yield client


async def test_a_message_has_text_and_counts_and_its_stream_says_the_same(official):
    asked = {"model": "dovecote-toy", "max_tokens": 6, "messages": HELLO, "system": "Be brief."}
    whole = await official.messages.create(**asked)
    assert whole.stop_reason == "max_tokens"
    ids = TOY.encode(TOY.template.render([{"role": "system", "content": "Be brief."}, *HELLO]))
    assert whole.usage.input_tokens == len(ids)
    assert (await official.messages.count_tokens(model="dovecote-toy", messages=HELLO, system="Be brief.")) == (
        await official.messages.count_tokens(
            model="dovecote-toy", messages=HELLO, system=[{"type": "text", "text": "Be brief."}]
        )
    )
    async with official.messages.stream(**asked) as stream:
        final = await stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert final.usage.cache_read_input_tokens + final.usage.input_tokens == len(ids)


async def test_a_tool_that_is_forced_is_called_with_what_the_model_writes(official):
    asked = {"model": "dovecote-toy", "max_tokens": 6, "messages": HELLO, "tools": [TOOL]}
    text = (await official.messages.create(**asked)).content[0].text
    for choice in ({"type": "tool", "name": "look"}, {"type": "any"}):
        called = await official.messages.create(**asked, tool_choice=choice)
        assert called.stop_reason == "tool_use"
        assert (called.content[0].name, called.content[0].input) == ("look", {"where": text})
        async with official.messages.stream(**asked, tool_choice=choice) as stream:
            assert (await stream.get_final_message()).content[0].input == {"where": text}


async def test_a_conversation_with_tools_is_the_chat_that_it_stands_for(official):
    turns = [
        *HELLO,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {"where": "up"}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}]}],
        },
    ]
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"where": "up"}'}}
    chat = [*HELLO, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "x"}]
    function = {"name": "look", "description": "Look somewhere", "parameters": TOOL["input_schema"]}
    ids = TOY.encode(TOY.template.render(chat, tools=[{"type": "function", "function": function}]))
    counted = await official.messages.count_tokens(model="dovecote-toy", messages=turns, tools=[TOOL])
    assert counted.input_tokens == len(ids)


async def test_mistakes_are_told_in_anthropics_form(official, served):
    with pytest.raises(NotFoundError, match="does not exist"):
        await official.messages.create(model="other", max_tokens=5, messages=HELLO)
    many = TOOL["input_schema"] | {"required": ["where", "when"]}
    for fields in (
        {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
        {"tool_choice": {"type": "tool", "name": "other"}, "tools": [TOOL]},
        {"tool_choice": {"type": "any"}, "tools": [TOOL | {"input_schema": many}]},
        {"tool_choice": {"type": "odd"}},
        {"tools": [{"name": "web_search"}]},
        {"system": [{"type": "image"}]},
        {"max_tokens": 0},
    ):
        with pytest.raises(BadRequestError):
            await official.messages.create(**({"model": "dovecote-toy", "max_tokens": 5, "messages": HELLO} | fields))
    async with httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=PATIENCE_S) as client:
        missing = await client.post("/v1/messages", json={"messages": HELLO})
    assert missing.json()["error"]["type"] == "invalid_request_error"
