"""The chat template: a conversation that grows by appending renders to a text that grows by appending."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_shim.engine.tokenizer import TOY_FOLDER, ChatTemplate, TemplateRefused, Tokenizer

TOY = Tokenizer(TOY_FOLDER)
render = TOY.template.render

texts = st.text(max_size=30)
parts = st.lists(st.builds(lambda text: {"type": "text", "text": text}, texts), max_size=3)
contents = st.one_of(texts, parts)
calls = st.builds(
    lambda name, arguments: {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}},
    texts,
    st.one_of(texts, st.dictionaries(texts, st.one_of(st.integers(), texts, st.booleans()), max_size=2)),
)
messages = st.one_of(
    st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["system", "user"]), contents),
    st.builds(
        lambda content, tool_calls: {"role": "assistant", "content": content, "tool_calls": tool_calls},
        st.one_of(st.none(), contents),
        st.lists(calls, max_size=2),
    ),
    st.builds(lambda content: {"role": "tool", "tool_call_id": "c1", "content": content}, contents),
)
tools = st.one_of(
    st.none(), st.lists(st.builds(lambda name: {"type": "function", "function": {"name": name}}, texts), max_size=3)
)


@given(st.lists(messages, max_size=4), messages, tools)
def test_an_appended_message_only_appends_text(conversation, new, tools):
    before = render(conversation, tools=tools, add_generation_prompt=False)
    after = render([*conversation, new], tools=tools, add_generation_prompt=False)
    assert after.startswith(before)


@given(st.lists(messages, max_size=4), contents, tools)
def test_the_generation_prompt_is_the_beginning_of_the_answer(conversation, content, tools):
    asked = render(conversation, tools=tools, add_generation_prompt=True)
    answer = {"role": "assistant", "content": content}
    assert render([*conversation, answer], tools=tools, add_generation_prompt=False).startswith(asked)


@given(st.lists(messages, min_size=1, max_size=4), messages, tools)
def test_an_appended_message_only_appends_ids(conversation, new, tools):
    before = TOY.encode(render(conversation, tools=tools, add_generation_prompt=False))
    after = TOY.encode(render([*conversation, new], tools=tools, add_generation_prompt=False))
    assert after[: len(before)] == before


def test_a_whole_conversation_with_tools_renders_as_expected():
    text = render(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Read "}, {"type": "text", "text": "é.py"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"p": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "x = '<&>'"},
        ],
        tools=[{"type": "function", "function": {"name": "read", "description": "Öffnet <Datei>"}}],
    )
    assert text == (
        "<|im_start|>system\n# Tools\n\n"
        'Answer with <|tool_call|>{"name": ..., "arguments": {...}}<|tool_call_end|> to call one of:\n'
        '{"type": "function", "function": {"name": "read", "description": "Öffnet <Datei>"}}\n<|im_end|>\n'
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nRead é.py<|im_end|>\n"
        '<|im_start|>assistant\n<|tool_call|>{"name": "read", "arguments": {"p": 1}}<|tool_call_end|><|im_end|>\n'
        "<|im_start|>tool\n<|tool_result|>x = '<&>'<|tool_result_end|><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_arguments_given_as_an_object_render_as_their_json():
    def of(arguments):
        call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
        return render([{"role": "assistant", "content": "", "tool_calls": [call]}])

    assert of({"a": [1, None]}) == of('{"a": [1, null]}')


@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "x"},
        {"content": "no role"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        {"role": "user", "content": [7]},
        {"role": "user", "content": {"type": "text", "text": "x"}},
        {"role": "user", "content": 7},
        {"role": "user", "content": [{"type": "text", "text": None}]},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function"}]},
        {"role": "assistant", "content": "", "tool_calls": 7},
    ],
)
def test_messages_of_a_wrong_shape_are_refused(message):
    with pytest.raises(TemplateRefused):
        render([message])


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception('no') }}",
        "{{ 1 // 0 }}",
    ],
)
def test_a_template_can_neither_change_its_input_nor_leave_the_sandbox(source):
    given_messages = [{"role": "user", "content": "x"}]
    with pytest.raises(TemplateRefused):
        ChatTemplate(source).render(given_messages)
    assert given_messages == [{"role": "user", "content": "x"}]
