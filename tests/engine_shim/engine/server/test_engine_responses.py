"""`/v1/responses`, forced calls in chats, and embeddings, as the official client sees them."""

import json

import httpx
import pytest
from engine_serving import LOCAL, TOY
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.toy import build_torch_embedder, build_torch_forward
from engine_shim.engine.publish import EventSockets
from engine_shim.engine.server import EngineService, ServiceSettings, build_app
from engine_shim.engine.spec import EngineSpec, ModelSpec

PARAMETERS = {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}
FUNCTION = {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False}
TOOL = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
HELLO = [{"role": "user", "content": "Hello there"}]


def official_of(client):
    return AsyncOpenAI(api_key="k", base_url="http://engine/v1", max_retries=0, http_client=client)


@pytest.fixture
def official(client):
    return official_of(client)


async def test_a_response_says_the_same_whole_and_streamed_and_is_kept(official):
    asked = {"model": "dovecote-toy", "input": "Hello there", "max_output_tokens": 6, "instructions": "Be brief."}
    whole = await official.responses.create(**asked)
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    ids = TOY.encode(TOY.template.render([{"role": "system", "content": "Be brief."}, *HELLO]))
    assert whole.usage.input_tokens == len(ids)
    events = [event async for event in await official.responses.create(**asked, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.output_text == whole.output_text
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert (await official.responses.retrieve(events[-1].response.id)).output_text == whole.output_text


async def test_a_response_goes_on_from_the_one_before_it_without_its_instructions(official):
    first = await official.responses.create(
        model="dovecote-toy", input="Hello there", max_output_tokens=4, instructions="Be brief."
    )
    second = await official.responses.create(
        model="dovecote-toy", input="go on", max_output_tokens=4, previous_response_id=first.id
    )
    chat = [*HELLO, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "go on"}]
    assert second.usage.input_tokens == len(TOY.encode(TOY.template.render(chat)))
    await official.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        await official.responses.retrieve(first.id)
    with pytest.raises(NotFoundError):
        await official.responses.create(model="dovecote-toy", input="x", previous_response_id=first.id)
    unkept = await official.responses.create(model="dovecote-toy", input="x", max_output_tokens=2, store=False)
    with pytest.raises(NotFoundError):
        await official.responses.retrieve(unkept.id)
    with pytest.raises(BadRequestError, match="synchronous"):
        await official.responses.cancel(second.id)


async def test_a_function_that_is_forced_is_called_with_what_the_model_writes(official):
    asked = {"model": "dovecote-toy", "input": "Hello there", "max_output_tokens": 6, "tools": [FUNCTION]}
    text = (await official.responses.create(**asked)).output_text
    choice = {"type": "function", "name": "look"}
    call = (await official.responses.create(**asked, tool_choice=choice)).output[0]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "look", {"where": text})
    events = [event async for event in await official.responses.create(**asked, tool_choice="required", stream=True)]
    deltas = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert json.loads(deltas) == {"where": text}
    assert json.loads(events[-1].response.output[0].arguments) == {"where": text}
    items = [
        {"role": "user", "content": "Hello there"},
        call.model_dump(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "sky"},
    ]
    told = await official.responses.create(model="dovecote-toy", input=items, max_output_tokens=2, tools=[FUNCTION])
    assert told.usage.input_tokens > 20


async def test_a_chat_that_is_forced_calls_its_tool_in_pieces_too(official):
    asked = {"model": "dovecote-toy", "messages": HELLO, "max_tokens": 6, "tools": [TOOL], "n": 2, "seed": 1}
    texts = [choice.message.content for choice in (await official.chat.completions.create(**asked)).choices]
    forced = {"type": "function", "function": {"name": "look"}}
    whole = await official.chat.completions.create(**asked, tool_choice=forced)
    assert [choice.finish_reason for choice in whole.choices] == ["tool_calls", "tool_calls"]
    arguments = [json.loads(choice.message.tool_calls[0].function.arguments) for choice in whole.choices]
    assert arguments == [{"where": text} for text in texts]
    pieces = {0: "", 1: ""}
    async for chunk in await official.chat.completions.create(**asked, tool_choice="required", stream=True):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or ():
                pieces[choice.index] += call.function.arguments
    assert [json.loads(pieces[index]) for index in (0, 1)] == arguments


async def test_what_no_model_of_this_kind_can_call_is_refused(official):
    for fields in (
        {"tool_choice": "required"},
        {"tool_choice": "odd", "tools": [TOOL]},
        {"tool_choice": {"type": "function", "function": {"name": "other"}}, "tools": [TOOL]},
        {"tool_choice": "required", "tools": [TOOL, TOOL]},
    ):
        with pytest.raises(BadRequestError):
            await official.chat.completions.create(model="dovecote-toy", messages=HELLO, **fields)
    for fields in ({"input": [{"type": "computer_call"}]}, {"tools": [{"type": "web_search"}]}, {"background": True}):
        with pytest.raises(BadRequestError):
            await official.responses.create(**({"model": "dovecote-toy", "input": "x"} | fields))


async def test_without_hidden_states_there_are_no_embeddings(official):
    with pytest.raises(BadRequestError, match="torch forward"):
        await official.embeddings.create(model="dovecote-toy", input="x")


async def test_embeddings_are_the_models_own_and_equal_for_equal_texts():
    pytest.importorskip("torch", reason="needs the engine extra")
    spec = EngineSpec(pool_pages=16, max_model_len=64, eos_token_ids=(TOY.eos_id,), model=ModelSpec(layers=2))
    settings = ServiceSettings(spec=spec, event_sockets=EventSockets(live=LOCAL, replay=LOCAL))
    service = EngineService(
        settings,
        TOY,
        lambda rank: Engine(spec, build_torch_forward(spec, 0), dp_rank=rank),
        embed=build_torch_embedder(spec, 0),
    )
    app = build_app(service)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://e") as client:
        official = official_of(client)
        one, same, other = (
            await official.embeddings.create(model="dovecote-toy", input=["birds", "birds", "rain"])
        ).data
        as_floats = await official.embeddings.create(model="dovecote-toy", input="birds", encoding_format="float")
        for fields in ({"input": ""}, {"input": "x " * 200}, {"encoding_format": "odd"}, {"dimensions": 4}):
            with pytest.raises(BadRequestError):
                await official.embeddings.create(**({"model": "dovecote-toy", "input": "x"} | fields))
    assert one.embedding == same.embedding != other.embedding
    assert sum(value * value for value in one.embedding) == pytest.approx(1.0, abs=1e-5)
    assert as_floats.data[0].embedding == pytest.approx(one.embedding, abs=1e-6)
    assert as_floats.usage.prompt_tokens == len(TOY.encode("birds"))
