"""Bodies of the Responses API become the chats that engines render, or are left alone."""

import pytest

from router.prompt.responses_form import ResponsesForm, convert_input, convert_tools

VLLM = ResponsesForm.VLLM
CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
CALLED = {"id": "c1", "function": {"name": "read", "arguments": "{}"}, "type": "function"}


def said(role, *texts, kind="input_text"):
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def test_a_text_is_a_users_message_after_the_instructions():
    assert convert_input("s", "hi", VLLM) == [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    assert convert_input(None, "hi", VLLM) == [{"role": "user", "content": "hi"}]
    assert convert_input([{}], "hi", VLLM) is None


def test_messages_keep_their_texts():
    items = [{"role": "user", "content": "a"}, said("assistant", "b", "c", kind="output_text"), said("user", "d", "e")]
    parts = [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}]
    assert convert_input(None, items, VLLM) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": parts},
    ]


def test_calls_join_the_assistants_message_before_them_and_outputs_are_tool_messages():
    output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    items = [said("assistant", "I read.", kind="output_text"), CALL, CALL, output]
    first, told = convert_input(None, items, VLLM)
    assert first == {"role": "assistant", "content": "I read.", "tool_calls": [CALLED, CALLED]}
    assert told == {"role": "tool", "content": "x", "tool_call_id": "c1"}
    assert convert_input(None, [CALL, said("assistant", "done", kind="output_text")], VLLM) == [
        {"role": "assistant", "tool_calls": [CALLED], "content": "done"}
    ]


def test_reasoning_joins_the_answer_that_it_led_to():
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    answer = said("assistant", "done", kind="output_text")
    joined = [{"role": "assistant", "reasoning": "hm", "tool_calls": [CALLED], "content": "done"}]
    assert convert_input(None, [thought, CALL, answer], VLLM) == joined
    assert convert_input(None, [thought, thought], VLLM) == [{"role": "assistant", "reasoning": "hm"}] * 2
    summed_up = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert convert_input(None, [summed_up], VLLM) == [{"role": "assistant", "reasoning": "hm"}]
    assert convert_input(None, [thought], ResponsesForm.PLAIN) is None
    assert convert_input(None, [CALL], ResponsesForm.PLAIN) == convert_input(None, [CALL], VLLM)


def test_the_texts_of_a_calls_output_stay_apart():
    output = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}]}
    (told,) = convert_input(None, [output], VLLM)
    assert told == {"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call_id": "c1"}


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
    assert convert_input(None, [item], VLLM) is None
    assert convert_input(None, None, VLLM) is None


def test_definitions_of_functions_are_those_of_a_chat():
    tool = {"type": "function", "name": "f", "parameters": {}, "strict": True}
    assert convert_tools([tool]) == [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}}]
    assert convert_tools([{"type": "web_search"}]) is None
