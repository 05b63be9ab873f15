"""Templates render as engines render them, and what they refuse is a value, not a fault."""

import json

import pytest

from router.prompt.template import ArgumentForm, ChatTemplate, TemplateRefused, load_chat_template

CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"b":1, "a":"é"}'}}]}


def test_parts_are_joined_for_templates_that_take_text():
    template = ChatTemplate("{{ messages[0].content }}", {})
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert template.render([{"role": "user", "content": parts}], None) == "a\nb"


def test_parts_are_left_to_templates_that_walk_over_them():
    template = ChatTemplate("{% for part in messages[0]['content'] %}{{ part.text }}+{% endfor %}", {})
    alias = ChatTemplate(
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}+{% endfor %}{% endfor %}", {}
    )
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert alias.render([{"role": "user", "content": parts}], None) == "a+b+"
    with pytest.raises(TemplateRefused):
        ChatTemplate("{{ messages[0].content }}", {}).render([{"content": [{"type": "image_url"}]}], None)
    assert template.render([{"role": "user", "content": "ab"}], None) == "++"


def test_tool_arguments_reach_the_template_as_the_engine_hands_them():
    template = ChatTemplate("{{ messages[0].tool_calls[0].function.arguments | tojson }}", {})
    assert template.render([CALL], None) == '{"b": 1, "a": "é"}'
    assert template.render([CALL], None, arguments=ArgumentForm.TEXT) == json.dumps(
        '{"b":1, "a":"é"}', ensure_ascii=False
    )
    broken = {"role": "assistant", "tool_calls": [{"function": {"arguments": "{no"}}, 3]}
    assert template.render([broken], None) == '"{no"'


def test_special_tokens_and_options_are_variables():
    template = ChatTemplate(
        "{{ bos_token }}{% if add_generation_prompt %}G{% endif %}{{ thinking }}", {"bos_token": "<s>"}
    )
    assert template.render([], None, {"thinking": "T"}) == "<s>GT"
    assert template.render([], None, {"thinking": "T", "add_generation_prompt": False}) == "<s>T"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{{ messages[9].content.x }}",
        "{{ ''.__class__.__mro__ }}",
    ],
)
def test_what_a_template_refuses_is_told(source):
    with pytest.raises(TemplateRefused):
        ChatTemplate(source, {}).render([{"role": "user", "content": "a"}], None)


def test_templates_cannot_change_the_messages():
    messages = [{"role": "user", "content": "a"}]
    with pytest.raises(TemplateRefused):
        ChatTemplate("{{ messages.append(1) }}", {}).render(messages, None)
    assert messages == [{"role": "user", "content": "a"}]


def write_config(folder, **fields):
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    return folder


def test_a_folder_gives_its_template_and_tokens(tmp_path):
    write_config(
        tmp_path, chat_template="{{ eos_token }}{{ bos_token }}", eos_token={"content": "</s>"}, bos_token="<s>"
    )
    assert load_chat_template(tmp_path).render([], None) == "</s><s>"
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    assert load_chat_template(write_config(tmp_path, chat_template=named)).render([], None) == "D"
    (tmp_path / "chat_template.jinja").write_text("J")
    assert load_chat_template(tmp_path).render([], None) == "J"


def test_a_folder_without_a_template_has_none(tmp_path):
    assert load_chat_template(tmp_path) is None
    assert load_chat_template(write_config(tmp_path, chat_template=[{"name": "other", "template": "x"}])) is None


def test_a_broken_folder_says_what_is_wrong(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(ValueError, match="not a JSON object"):
        load_chat_template(tmp_path)
    with pytest.raises(ValueError, match="does not compile"):
        load_chat_template(write_config(tmp_path, chat_template="{% if %}"))
