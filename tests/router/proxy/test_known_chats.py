"""A chat made of what is new in a list is the chat made of all of it; what is kept is bounded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.prompt.anthropic_form import MessagesForm
from router.prompt.responses_form import ResponsesForm
from router.proxy.api import Api
from router.proxy.body import RequestBody
from router.proxy.converted import convert
from router.proxy.known_chats import MAX_TOOL_SETS, MIN_BYTES, KnownChats

LONG = "word " * MIN_BYTES
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}]}
TURNS = (
    {"role": "user", "content": "a"},
    {"role": "user", "content": [RESULT, {"type": "text", "text": "é"}]},
    {"role": "user", "content": [RESULT]},
    {"role": "assistant", "content": [{"type": "text", "text": "b"}, USE]},
    {"role": "assistant", "content": []},
    {"role": "system", "content": "later"},
    {"role": "user", "content": [{"type": "document"}]},
)
ITEMS = (
    {"role": "user", "content": "a"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
    {"type": "web_search_call"},
)


def body_of(api, lead, items):
    name = ("system", "messages") if api is Api.MESSAGES else ("instructions", "input")
    first = {"role": "user", "content": LONG}
    body = {"model": "m", name[0]: lead, name[1]: [first, *items], "tools": []}
    return RequestBody(json.dumps(body).encode(), api=api)


def chat_of(body, form, chats):
    made = convert(body, form, chats)
    return made.unrenderable, json.loads(bytes(made.messages_json))


@given(
    st.lists(st.tuples(st.sampled_from(["s", "t"]), st.lists(st.sampled_from(TURNS), max_size=3)), max_size=5),
    st.sampled_from(MessagesForm),
)
def test_a_longer_conversation_is_the_same_chat_whatever_was_known_of_it(steps, form):
    chats, turns = KnownChats(), []
    for system, more in steps:
        turns = [*turns, *more]
        body = body_of(Api.MESSAGES, system, turns)
        assert chat_of(body, form, chats) == chat_of(body, form, KnownChats())


@given(st.lists(st.lists(st.sampled_from(ITEMS), max_size=3), max_size=5))
def test_items_that_join_the_message_before_them_do_so_however_they_came(steps):
    chats, items = KnownChats(), []
    for more in steps:
        items = [*items, *more]
        body = body_of(Api.RESPONSE, "s", items)
        assert chat_of(body, ResponsesForm.VLLM, chats) == chat_of(body, ResponsesForm.VLLM, KnownChats())


def test_the_end_of_a_longer_conversation_takes_the_place_of_the_shorter_ones():
    chats = KnownChats()
    for turns in ([], [TURNS[0]], [TURNS[0], TURNS[3]], [TURNS[0], TURNS[3]]):
        body = body_of(Api.MESSAGES, "s", turns)
        convert(body, "vllm", chats)
        assert [known.length for known in chats._names] == [len(body.get_raw("messages")) - 1]


def test_what_is_kept_is_bounded_by_bytes_the_longest_unused_first_out():
    chats = KnownChats(max_bytes=3 * len(LONG))
    for number in range(10):
        convert(body_of(Api.MESSAGES, f"system {number}", []), "vllm", chats)
        assert chats.held_bytes <= 3 * len(LONG)
    assert chats.held_bytes == sum(len(known.chat) for known in chats._names)
    assert len(chats._beginnings) == len(chats._names) == 2


def test_a_chat_of_another_tenant_form_or_system_is_not_found():
    chats = KnownChats()
    convert(body_of(Api.MESSAGES, "s", []), "vllm", chats)
    for lead, form in (("t", "vllm"), ("s", "sglang")):
        convert(body_of(Api.MESSAGES, lead, [TURNS[0]]), form, chats)
    assert len(chats._names) == 3


@pytest.mark.parametrize("made", [b"[]", None])
def test_sets_of_tools_are_converted_once_and_bounded(made):
    chats, calls = KnownChats(), []

    def make():
        calls.append(1)
        return made

    for _ in range(2):
        assert chats.find_tools(b"", b"tools", make) == made
    assert len(calls) == 1
    for number in range(MAX_TOOL_SETS):
        chats.find_tools(b"", str(number).encode(), make)
    chats.find_tools(b"", b"tools", make)
    assert len(calls) == MAX_TOOL_SETS + 2
