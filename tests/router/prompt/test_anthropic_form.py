"""Bodies of the Messages API become the chats that vLLM and SGLang render, or are left alone."""

import json

import pytest

from router.prompt.anthropic_form import MessagesForm, convert_messages, convert_tools

VLLM, SGLANG, ORDERED = MessagesForm.VLLM, MessagesForm.SGLANG, MessagesForm.SGLANG_ORDERED
USE = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "é"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": "é"})}}


def text(said):
    return {"type": "text", "text": said}


def result(content):
    return {"type": "tool_result", "tool_use_id": "c1", "content": content}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize("form", MessagesForm)
def test_plain_turns_are_the_same_in_every_form(form):
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, user(text("c"))]
    assert convert_messages("s", turns, form) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert convert_messages(None, turns, form)[0]["role"] == "user"


@pytest.mark.parametrize(("form", "joined"), [(VLLM, "ab"), (SGLANG, "a\nb"), (ORDERED, "a\nb")])
def test_texts_of_a_system_prompt_are_joined_as_the_engine_joins_them(form, joined):
    assert convert_messages([text("a"), text("b")], [], form) == [{"role": "system", "content": joined}]


def test_a_header_that_changes_with_every_request_is_left_out_where_the_engine_does():
    blocks = [text("x-anthropic-billing-header: cc_version=1; cch=abc"), text("You are an agent.")]
    assert convert_messages(blocks, [], VLLM) == [{"role": "system", "content": "You are an agent."}]
    assert convert_messages(blocks, [], SGLANG)[0]["content"].startswith("x-anthropic")


def test_a_system_turn_among_the_messages_stays_in_sglang_and_is_the_templates_to_place_in_others():
    turns = [{"role": "user", "content": "a"}, {"role": "system", "content": "later"}]
    assert convert_messages("s", turns, VLLM) is None
    assert convert_messages("s", turns, SGLANG)[2] == {"role": "system", "content": "later"}
    assert convert_messages("s", turns, ORDERED) is None


def test_calls_of_tools_and_their_results_are_messages_of_their_own():
    turns = [{"role": "assistant", "content": [text("I read."), USE]}, user(result([text("x"), text("y")]), text("go"))]
    called, told, said = convert_messages(None, turns, VLLM)
    assert called == {"role": "assistant", "content": "I read.", "tool_calls": [CALL]}
    assert told == {"role": "tool", "tool_call_id": "c1", "content": "x\ny"}
    assert said == {"role": "user", "content": "go"}
    assert convert_messages(None, turns, SGLANG)[1]["content"] == [text("x"), text("y")]


def test_a_result_after_text_stands_where_the_form_puts_it():
    turns = [user(text("first"), result("x"), text("last"))]
    roles = {form: [message["role"] for message in convert_messages(None, turns, form)] for form in MessagesForm}
    assert roles == {VLLM: ["tool", "user"], SGLANG: ["tool", "user"], ORDERED: ["user", "tool", "user"]}


@pytest.mark.parametrize("form", MessagesForm)
def test_a_turn_of_results_alone_leaves_no_empty_message(form):
    assert [message["role"] for message in convert_messages(None, [user(result("x"))], form)] == ["tool"]


def test_thinking_is_reasoning_in_vllm_and_gone_in_sglang():
    turns = [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, text("b")]}]
    assert convert_messages(None, turns, VLLM)[0]["reasoning"] == "hm"
    assert convert_messages(None, turns, SGLANG) == [{"role": "assistant", "content": "b"}]
    assert convert_messages(None, turns, ORDERED) is None


def test_images_become_parts_that_a_chat_has():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert convert_messages(None, [user(text("see"), image)], VLLM)[0]["content"] == [text("see"), part]
    assert [message["role"] for message in convert_messages(None, [user(result([image]))], VLLM)] == ["tool", "user"]


@pytest.mark.parametrize("form", MessagesForm)
@pytest.mark.parametrize(
    "turn",
    [
        user({"type": "document", "source": {}}),
        user({"type": "server_tool_use"}),
        user("text"),
        {"role": "user", "content": 5},
        {"role": "assistant", "content": [result("x")]},
        user(text(None)),
        user(result([{"type": "search_result"}])),
        "turn",
    ],
)
def test_what_no_engine_is_known_to_render_is_not_converted(form, turn):
    assert convert_messages(None, [turn], form) is None


def test_definitions_of_tools_are_those_of_a_chat():
    tools = [{"name": "f", "input_schema": {"properties": {}}}]
    function = {"name": "f", "parameters": {"properties": {}, "type": "object"}}
    assert convert_tools(tools, VLLM) == [{"type": "function", "function": function}]
    assert convert_tools(tools, SGLANG)[0]["function"]["description"] == ""
    assert convert_tools([tools[0] | {"strict": True}], VLLM)[0]["function"]["strict"] is True
    assert convert_tools([{"type": "web_search_20250305", "name": "web_search"}], VLLM) is None
    assert convert_tools([{"name": "f", "input_schema": {}, "defer_loading": True}], VLLM) is None


@pytest.mark.parametrize("form", MessagesForm)
def test_a_longer_conversation_begins_with_the_chat_of_the_shorter_one(form):
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [text("b"), USE]}, user(result("x"))]
    whole = convert_messages("s", turns, form)
    for count in range(len(turns)):
        part = convert_messages("s", turns[:count], form)
        assert whole[: len(part)] == part
