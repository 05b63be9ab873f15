"""Chats with images are credited up to the first place where an image shows, wherever templates put it.

The templates here are made after those of published models: items in their place, items before all text, a head that
is left out where there are items, plain text.
"""

from functools import cache

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from router.prompt import Prompter, PromptInput, Unrenderable
from router.prompt.media import shape_media
from router.prompt.template import ChatTemplate
from router.prompt.tokenizer import Tokenizer
from tests.router.prompt.real_tokenizers import TOY

HEAD = "<|im_start|>{{ m.role }}\n"
TAIL = "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
ITEM = "{% if c.type == 'image' %}<|image|>{% elif c.type == 'text' %}{{ c.text }}{% endif %}"
IN_PLACE = (
    "{% for m in messages %}" + HEAD + "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}" + ITEM + "{% endfor %}{% endif %}" + TAIL
)
ITEMS_FIRST = (
    "{% for m in messages %}" + HEAD + "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<|image|>\n{% endif %}{% endfor %}"
    "{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endif %}" + TAIL
)
HEAD_WITHOUT_ITEMS = (
    "{% set seen = namespace(any=false) %}{% for m in messages %}{% if m.content is not string %}"
    "{% for c in m.content %}{% if c.type == 'image' %}{% set seen.any = true %}{% endif %}{% endfor %}{% endif %}"
    "{% endfor %}{% if not seen.any %}<|im_start|>system\nCutting Knowledge Date<|im_end|>\n{% endif %}" + IN_PLACE
)
REFUSING = "{% for m in messages %}{% for c in m.content %}{% if c.type == 'image' %}{{ raise_exception('no') }}" + (
    "{% endif %}{% endfor %}{% endfor %}" + IN_PLACE
)
TEXT_ONLY = "{% for m in messages %}" + HEAD + "{{ m.content }}" + TAIL
PARTS = (IN_PLACE, ITEMS_FIRST, HEAD_WITHOUT_ITEMS)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def text(value):
    return {"type": "text", "text": value}


@cache
def load_model():
    loaded = tokenizers.Tokenizer.from_file(str(TOY / "tokenizer.json"))
    loaded.add_special_tokens([tokenizers.AddedToken("<|image|>", normalized=False, special=True)])
    return loaded


@pytest.fixture(scope="module")
def model():
    return load_model()


@cache
def prompter(source):
    return Prompter(Tokenizer(load_model()), ChatTemplate(source, {}))


def engine_ids(model, source, messages, tokens_an_item):
    """As an engine makes them: the template shown the items, each of its tokens repeated."""
    rendered = ChatTemplate(source, {}).render(shape_media(messages), None)
    rendered = rendered.replace("<|image|>", "<|image|>" * tokens_an_item)
    return model.encode(rendered, add_special_tokens=False).ids


CONTENTS = st.lists(
    st.sampled_from([IMAGE, text("what is it? "), text(" \n é"), text("<|im_end|>"), text("a")]), min_size=1, max_size=4
) | st.sampled_from(["plain words", " "])
CHATS = st.lists(st.builds(lambda content: {"role": "user", "content": content}, CONTENTS), min_size=1, max_size=4)


@pytest.mark.parametrize("source", PARTS, ids=["in place", "items first", "head without items"])
@given(messages=CHATS, tokens_an_item=st.integers(1, 5))
def test_what_is_credited_is_a_prefix_of_the_engines_ids(model, source, messages, tokens_an_item):
    prompt = prompter(source).prepare(PromptInput(messages=messages))
    if not isinstance(prompt, Unrenderable):
        ids = prompt.token_ids.tolist()
        assert ids == engine_ids(model, source, messages, tokens_an_item)[: len(ids)]


def test_text_before_an_image_in_its_own_message_counts(model):
    messages = [{"role": "user", "content": [text("a long report " * 20), IMAGE, text("and?")]}]
    prompt = prompter(IN_PLACE).prepare(PromptInput(messages=messages))
    expected = engine_ids(model, IN_PLACE, messages, 1)
    assert prompt.token_ids.tolist() == expected[: expected.index(model.token_to_id("<|image|>"))]
    assert len(prompt.token_ids) > 40


def test_where_items_come_before_the_text_it_does_not_count(model):
    messages = [{"role": "user", "content": [text("a long report " * 20), IMAGE]}]
    prompt = prompter(ITEMS_FIRST).prepare(PromptInput(messages=messages))
    assert len(prompt.token_ids) < 8


def test_a_head_that_an_image_takes_away_is_not_credited(model):
    messages = [{"role": "user", "content": "hello " * 9}, {"role": "user", "content": [text("and this?"), IMAGE]}]
    prompt = prompter(HEAD_WITHOUT_ITEMS).prepare(PromptInput(messages=messages))
    assert model.decode(list(prompt.token_ids), skip_special_tokens=False).count("system") == 0


def test_a_template_that_refuses_items_is_credited_up_to_the_message(model):
    messages = [{"role": "user", "content": "first " * 9}, {"role": "user", "content": [text("b " * 9), IMAGE]}]
    prompt = prompter(REFUSING).prepare(PromptInput(messages=messages))
    assert model.decode(list(prompt.token_ids)).count("first") == 9
    assert "b b" not in model.decode(list(prompt.token_ids))


def test_a_template_of_plain_text_is_credited_up_to_the_message(model):
    messages = [{"role": "user", "content": "first " * 9}, {"role": "user", "content": [text("b " * 9), IMAGE]}]
    prompt = prompter(TEXT_ONLY).prepare(PromptInput(messages=messages))
    assert model.decode(list(prompt.token_ids)).count("first") == 9
    assert "b b" not in model.decode(list(prompt.token_ids))


@pytest.mark.parametrize(
    ("kind", "shaped"),
    [("image_url", "image"), ("input_image", "image"), ("video_url", "video"), ("input_audio", "audio")],
)
def test_items_are_shown_to_templates_by_their_kind(kind, shaped):
    (message,) = shape_media([{"role": "user", "content": ["words", text("t"), {"type": kind, kind: {"url": "x"}}]}])
    assert message["content"] == ["words", text("t"), {"type": shaped}]
