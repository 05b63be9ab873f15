"""Bodies of the Responses API become the chats that engines render, or are left alone."""

import pytest

from router.prompt.responses_form import convert_input, convert_tools

CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
CALLED = {"id": "c1", "function": {"name": "read", "arguments": "{}"}, "type": "function"}


def said(role, *texts, kind="input_text"):
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def test_a_text_is_a_users_message_after_the_instructions():
    assert convert_input("s", "hi") == [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    assert convert_input(None, "hi") == [{"role": "user", "content": "hi"}]
    assert convert_input([{}], "hi") is None


def test_messages_keep_their_texts():
    items = [{"role": "user", "content": "a"}, said("assistant", "b", "c", kind="output_text"), said("user", "d", "e")]
    parts = [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}]
    assert convert_input(None, items) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": parts},
    ]


def test_calls_join_the_assistants_message_before_them_and_outputs_are_tool_messages():
    output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    items = [said("assistant", "I read.", kind="output_text"), CALL, CALL, output]
    first, told = convert_input(None, items)
    assert first == {"role": "assistant", "content": "I read.", "tool_calls": [CALLED, CALLED]}
    assert told == {"role": "tool", "content": "x", "tool_call_id": "c1"}
    assert convert_input(None, [CALL, said("assistant", "done", kind="output_text")]) == [
        {"role": "assistant", "tool_calls": [CALLED], "content": "done"}
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "encrypted_content": "x"},
        {"type": "web_search_call"},
        {"type": "item_reference", "id": "x"},
        {"type": "function_call_output", "call_id": "c", "output": []},
        {"type": "message", "role": "user", "content": [{"type": "input_file"}]},
        {"type": "message", "role": "assistant", "content": "x", "status": "incomplete"},
        {"type": "function_call", "name": "f", "arguments": {}},
        {"content": "x"},
        "text",
    ],
)
def test_what_no_engine_is_known_to_render_is_not_converted(item):
    assert convert_input(None, [item]) is None
    assert convert_input(None, None) is None


def test_definitions_of_functions_are_those_of_a_chat():
    tool = {"type": "function", "name": "f", "parameters": {}, "strict": True}
    assert convert_tools([tool]) == [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}}]
    assert convert_tools([{"type": "web_search"}]) is None
