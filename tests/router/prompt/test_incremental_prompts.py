# ruff: noqa: RUF001  (wide bars are what DeepSeek's tokens are made of)
"""Ids of a prompt prepared turn by turn equal a full rendering and tokenization, on published tokenizers and ours."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.prompt import Prompter, PromptInput, Unrenderable
from router.prompt import turns as turns_module
from router.prompt.engine_form import DEFAULT_FORM
from router.prompt.template import ChatTemplate
from router.prompt.tokenizer import load_tokenizer
from router.prompt.turns import CHECK_EVERY, FEW_BYTES, FEW_MESSAGES
from tests.router.prompt.real_tokenizers import CHATS, FAST, NAMES, TOY, load_model, load_prompter, load_template

PIECES = st.sampled_from(
    [
        *["a", "b ", "  ", "\n", "\n\n ", "\r\n", "\t", "123", "'s", "é", "e\u0301", "\u0301", "🐦", "\u200d", "中"],
        *["<|im_end|>", "<|im_start|>", "<|", "im_end", "|>", "<|im", "_start|>", "<think>", "</think>", "\u00a0", "."],
        *[
            "<|eot_id|>",
            "<|end_header_id|>",
            "<｜User｜>",
            "<｜end▁of▁sentence｜>",
            "<｜",
            "<|end|>",
            "<|return|>",
            "word",
        ],
    ]
)
TEXTS = st.lists(PIECES, max_size=20).map("".join)
QUICK = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "é d", "parameters": {"type": "object"}}}
    for name in ("read", "write")
]


@pytest.fixture(scope="module", autouse=True)
def conversations_are_kept_however_short():
    most, turns_module.FEW_BYTES = turns_module.FEW_BYTES, 0
    yield
    turns_module.FEW_BYTES = most


def full_ids(name, messages, tools, options):
    """The reference: everything rendered at once, everything tokenized at once."""
    template = load_template(name)
    text = template.render(messages, tools, options, form=DEFAULT_FORM)
    return load_model(name).encode(text, add_special_tokens=False).ids


def request(messages, tools=None, options=None, *, spaced=False):
    separators = None if spaced else (",", ":")
    return PromptInput(
        messages_json=json.dumps(messages, ensure_ascii=spaced, separators=separators).encode(),
        tools_json=None if tools is None else json.dumps(tools).encode(),
        template_options=options,
    )


@pytest.mark.parametrize("name", NAMES)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), place=st.integers(0, 200))
@QUICK
def test_ids_of_edited_texts_equal_a_full_tokenization(name, texts, place):
    tokenizer, model = load_prompter(name).tokenizer, load_model(name)
    assert tokenizer.is_incremental
    for text in (*texts, texts[0][: place % (len(texts[0]) + 1)] + texts[-1]):
        assert tokenizer.encode(text).tolist() == model.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("name", FAST)
def test_files_with_one_split_pattern_run_through_the_fast_encoder(name):
    assert load_prompter(name).tokenizer.is_fast


def test_a_file_with_several_patterns_is_encoded_by_its_own_library():
    assert not load_prompter("deepseek_v3").tokenizer.is_fast


@st.composite
def turns(draw):
    """A conversation told in turns: questions, answers with and without calls, results, edits and compaction."""
    messages = [{"role": "system", "content": draw(TEXTS)}] if draw(st.booleans()) else []
    history = []
    for number in range(draw(st.integers(2, 7))):
        if number and draw(st.integers(0, 9)) == 0:
            # Compaction: all but the head gives way to a summary.
            messages = [*messages[: draw(st.integers(0, 1))], {"role": "user", "content": draw(TEXTS)}]
        elif number and draw(st.integers(0, 9)) == 0:
            messages = messages[: draw(st.integers(0, len(messages)))]
        messages = messages + draw(st.sampled_from([speak, call]))(draw, number)
        history.append(list(messages))
    return history


def speak(draw, number):
    answer = {"role": "assistant", "content": draw(TEXTS)}
    if draw(st.integers(0, 3)) == 0:
        answer["reasoning_content"] = draw(TEXTS)
    content = draw(TEXTS)
    question = {
        "role": "user",
        "content": [{"type": "text", "text": content}] if draw(st.integers(0, 5)) == 0 else content,
    }
    return [answer, question] if number else [question]


def call(draw, number):
    arguments = json.dumps({"path": draw(TEXTS)}, ensure_ascii=draw(st.booleans()))
    calls = [
        {"id": f"c{number}{n}", "type": "function", "function": {"name": "read", "arguments": arguments}}
        for n in range(draw(st.integers(1, 2)))
    ]
    results = [{"role": "tool", "tool_call_id": one["id"], "content": draw(TEXTS)} for one in calls]
    answer = {"role": "assistant", "content": draw(st.one_of(TEXTS, st.none())), "tool_calls": calls}
    return [*([] if number else [{"role": "user", "content": draw(TEXTS)}]), answer, *results]


@pytest.mark.parametrize("name", CHATS)
@given(history=turns(), tools=st.sampled_from([None, TOOLS]), spaced=st.booleans())
@QUICK
def test_ids_of_every_turn_equal_a_full_rendering(name, history, tools, spaced):
    prompter = load_prompter(name)
    for messages in history:
        prompt = prompter.prepare(request(messages, tools, spaced=spaced))
        if not isinstance(prompt, Unrenderable):
            assert prompt.token_ids.tolist() == full_ids(name, messages, tools, {})


@pytest.mark.parametrize("name", ["toy", "qwen3", "llama3_1"])
def test_an_appended_turn_is_rendered_locally_and_hashed_from_where_it_parts(name, monkeypatch):
    prompter = load_prompter(name)
    rendered = []
    render = prompter.template.render
    monkeypatch.setattr(
        prompter.template,
        "render",
        lambda messages, *a, **k: rendered.append(len(messages)) or render(messages, *a, **k),
    )
    messages = [{"role": "system", "content": "s"}]
    for turn in range(12):
        messages = [
            *messages,
            *([{"role": "assistant", "content": f"yes {turn}"}] if turn else []),
            {"role": "user", "content": f"and {turn} é?"},
        ]
        prompt = prompter.prepare(request(messages))
        fresh = load_prompter(name).find_chain(
            prompter.prepare(PromptInput(messages=messages)), block_tokens=4, model="m"
        )
        assert prompter.find_chain(prompt, block_tokens=4, model="m") == fresh
        rendered_for_turn, rendered = list(rendered), []
    assert max(rendered_for_turn[:-1]) <= 6


def test_a_short_chat_is_kept_nowhere_and_a_longer_one_is(monkeypatch):
    monkeypatch.setattr(turns_module, "FEW_BYTES", FEW_BYTES)
    prompter = Prompter.load(TOY)
    few = [{"role": "user", "content": "a"}] * FEW_MESSAGES
    for messages, tools in ((few, None), (few[:1], TOOLS)):
        prompt = prompter.prepare(request(messages, tools))
        assert prompt.token_ids.tolist() == full_ids("toy", messages, tools, {})
        assert prompter.conversations.count().conversations == 0
    many_tools = TOOLS * (FEW_BYTES // 100)
    for count, (messages, tools) in enumerate(
        (([*few, few[0]], None), ([{"role": "user", "content": "a" * FEW_BYTES}], None), (few, many_tools)), 1
    ):
        prompter.prepare(request(messages, tools))
        assert prompter.conversations.count().conversations == count


@pytest.mark.parametrize("name", CHATS)
def test_a_first_request_is_rendered_once(name, monkeypatch):
    prompter = load_prompter(name)
    prompter.prepare(request([{"role": "user", "content": "the template is tried with the first"}]))
    rendered = []
    render = prompter.template.render
    monkeypatch.setattr(prompter.template, "render", lambda *a, **k: rendered.append(a) or render(*a, **k))
    prompter.prepare(request([{"role": "user", "content": "of this conversation nothing is known"}]))
    assert len(rendered) == 1


ENDLESS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("asked", [(False, True, True), (True, False, True), (False, False, False)])
def test_a_conversation_may_go_on_otherwise_than_it_began(asked):
    template = ChatTemplate(ENDLESS, {})
    prompter = Prompter(load_tokenizer(TOY), template)
    # The question ends as the text would with a generation prompt.
    messages = [{"role": "user", "content": "so" + "<|im_start|>assistant\n" * 2}]
    for asks in asked:
        given = msgspec.structs.replace(request(messages), add_generation_prompt=asks)
        text = template.render(messages, None, {"add_generation_prompt": asks}, form=DEFAULT_FORM)
        assert prompter.prepare(given).token_ids == prompter.tokenizer.encode(text)
        messages = [*messages, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "and"}]


@pytest.mark.parametrize("enable", [True, False])
def test_options_of_the_template_are_part_of_what_a_conversation_is(enable):
    prompter = load_prompter("qwen3")
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "so"},
    ]
    for count in (1, 3):
        options = {"enable_thinking": enable}
        ids = prompter.prepare(request(messages[:count], options=options)).token_ids
        assert ids.tolist() == full_ids("qwen3", messages[:count], None, options)


def test_the_same_request_again_is_the_same_prompt():
    prompter = load_prompter("toy")
    asked = request([{"role": "user", "content": "the same request again"}])
    assert prompter.prepare(asked).token_ids == prompter.prepare(asked).token_ids


def test_ids_of_one_conversation_serve_several_forks():
    prompter = load_prompter("toy")
    base = [{"role": "user", "content": "fork " * 50}]
    for answer in ("one", "two", "three"):
        messages = [*base, {"role": "assistant", "content": answer}, {"role": "user", "content": "go on"}]
        for count in (1, 3):
            prompt = prompter.prepare(request(messages[:count]))
            assert prompt.token_ids.tolist() == full_ids("toy", messages[:count], None, {})


def test_a_turn_whose_earlier_text_changed_leaves_no_stale_ends():
    # The template drops earlier reasoning at a new question; ends of turns before must not point into the new ids.
    prompter = load_prompter("qwen3")
    first = [{"role": "user", "content": "a"}]
    second = [*first, {"role": "assistant", "content": "b", "reasoning_content": "r"}, {"role": "user", "content": "c"}]
    third = [*second, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]
    other = [*first, {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]
    for messages in (first, second, third, other, [*other, *second], first):
        assert prompter.prepare(request(messages)).token_ids.tolist() == full_ids("qwen3", messages, None, {})


LENGTH_AWARE = (
    "{{ messages | length > 6 }}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_local_rendering_that_turns_out_wrong_ends_local_rendering(caplog):
    prompter = Prompter.load(TOY)
    # What the battery of short conversations cannot see, put in its place after it was tried.
    prompter.template._template = prompter.template._template.environment.from_string(LENGTH_AWARE)
    messages = [{"role": "user", "content": "a"}]
    for turn in range(CHECK_EVERY + 2):
        asked = request(messages)
        prompt = prompter.prepare(asked, prompter.foresee(asked, 10))
        messages = [*messages, {"role": "assistant", "content": "b"}, {"role": "user", "content": f"{turn}"}]
    assert "local_rendering_ended" in caplog.text
    assert prompter.foresee(asked, 10).lookup is None
    assert prompt.token_ids == prompter.tokenizer.encode(prompter.render(asked))
