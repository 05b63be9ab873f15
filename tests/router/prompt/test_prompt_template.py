"""Templates render as engines render them, and what they refuse is a value, not a fault."""

import json

import pytest

from router.prompt.engine_form import (
    ATTRIBUTION,
    ArgumentForm,
    CallForm,
    ContinueForm,
    DeveloperForm,
    EngineForm,
    ReasoningForm,
    ToolForm,
    iter_forms,
)
from router.prompt.template import ChatTemplate, TemplateRefused, load_chat_template

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
    assert template.render([CALL], None, form=EngineForm(arguments=ArgumentForm.TEXT)) == json.dumps(
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


@pytest.mark.parametrize("form", [EngineForm(), EngineForm(drops_no_calls=True)])
def test_fields_that_are_null_are_absent_and_so_is_a_list_of_no_calls_where_the_engine_drops_it(form):
    template = ChatTemplate("{{ messages[0] | list | join(' ') }}", {})
    echoed = {"role": "assistant", "content": "a", "refusal": None, "reasoning_content": None, "tool_calls": None}
    assert template.render([echoed], None, form=form) == "role content"
    without_calls = template.render([echoed | {"tool_calls": []}], None, form=form)
    assert without_calls == ("role content" if form.drops_no_calls else "role content tool_calls")


def test_null_content_becomes_empty_text_unless_the_engine_keeps_it():
    template = ChatTemplate("{{ 'null' if messages[0].content is none else 'text' }}", {})
    for message in ({"role": "assistant", "content": None}, {"role": "assistant"}):
        assert template.render([message], None) == "text"
    kept = EngineForm(keeps_null=True)
    assert template.render([{"role": "assistant", "content": None}], None, form=kept) == "null"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (ToolForm.SENT, {"type": "function", "function": {"parameters": {}, "name": "f", "x": 1}}),
        (
            ToolForm.NAMED,
            {"type": "function", "function": {"name": "f", "description": None, "parameters": {}, "x": 1}},
        ),
        (
            ToolForm.STRICT,
            {
                "type": "function",
                "function": {"description": None, "name": "f", "parameters": {}, "strict": False, "x": 1},
            },
        ),
    ],
)
def test_tools_are_written_as_the_engine_writes_them(form, expected):
    template = ChatTemplate("{{ tools[0] | tojson }}", {})
    tool = {"type": "function", "function": {"parameters": {}, "name": "f", "x": 1}}
    assert template.render([], [tool], form=EngineForm(tools=form)) == json.dumps(expected)


def test_forms_are_tried_usual_one_first_and_each_once():
    forms = list(iter_forms())
    assert forms[0] == EngineForm()
    combinations = len(CallForm) * 2 * len(ToolForm) * 2 * len(ContinueForm)
    assert len(set(forms)) == len(forms) == combinations


def test_tool_calls_are_written_in_the_order_of_the_engines_types():
    template = ChatTemplate("{{ messages[0].tool_calls | tojson }}", {})
    function = {"name": "f", "arguments": '{"a": 1}'}
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
    typed = template.render([message], None, form=EngineForm(calls=CallForm.TYPED))
    assert typed == '[{"id": "c", "function": {"arguments": {"a": 1}, "name": "f"}, "type": "function"}]'


@pytest.mark.parametrize("content", ["message.content", "message['content']", 'message["content"]', "content"])
def test_a_template_that_loops_over_content_takes_parts(content):
    template = ChatTemplate(f"{{%- for part in {content} -%}}{{{{ part.text }}}}{{%- endfor -%}}", {})
    assert template.takes_parts


LINES = ChatTemplate("{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}", {})
SYSTEM, DEVELOPER = ({"role": role, "content": role[:3]} for role in ("system", "developer"))
USER = {"role": "user", "content": "u"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([DEVELOPER, USER], "system=dev;user=u;"),
        ([SYSTEM, USER, DEVELOPER, USER], "system=sys\n\ndev;user=u;user=u;"),
        ([USER, DEVELOPER], "system=dev;user=u;"),
        ([USER, DEVELOPER | {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
         "system=a\nb;user=u;"),
        ([DEVELOPER | {"content": ""}, DEVELOPER, USER], "system=dev;user=u;"),
        ([USER, SYSTEM], "user=u;system=sys;"),
    ],
)  # fmt: skip
def test_a_developers_messages_are_one_with_those_of_the_system_at_the_head(messages, expected):
    assert LINES.render(messages, None, form=EngineForm(developer=DeveloperForm.MERGED)) == expected


def test_a_template_that_knows_developers_keeps_their_messages():
    template = ChatTemplate("{% for m in messages if m.role == 'developer' %}{{ m.content }}{% endfor %}", {})
    assert template.render([USER, DEVELOPER], None, form=EngineForm(developer=DeveloperForm.MERGED)) == "dev"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_found_under_both_of_its_names(name):
    template = ChatTemplate("{{ messages[0].reasoning }}{{ messages[0].reasoning_content }}", {})
    form = EngineForm(reasoning=ReasoningForm.BOTH)
    assert template.render([{"role": "assistant", "content": "", name: "r"}], None, form=form) == "rr"
    assert template.render([{"role": "assistant", "content": "", name: None}], None, form=form) == ""
    assert template.render([{"role": "user", "content": "", name: "r"}], None, form=form) == "r"


def test_the_texts_of_a_tools_result_are_lines_of_one():
    template = ChatTemplate(
        "{% for message in messages %}{% if message.content is string %}{{ message.content }}"
        "{% else %}{% for part in message.content %}[{{ part.type }}]{% endfor %}{% endif %}{% endfor %}",
        {},
    )
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    form = EngineForm(joins_results=True)
    assert template.render([{"role": "tool", "content": texts}], None, form=form) == "a\nb"
    assert template.render([{"role": "user", "content": texts}], None, form=form) == "[text][text]"
    mixed = [*texts, {"type": "tool_reference", "name": "f"}]
    assert template.render([{"role": "tool", "content": mixed}], None, form=form) == "[text][text][tool_reference]"


@pytest.mark.parametrize(("sent", "expected"), [('{"a":1}', '{"a": 1}'), ("{no", "{}"), ("[1]", "{}"), ("", "{}")])
def test_arguments_that_are_no_object_are_an_empty_one(sent, expected):
    template = ChatTemplate("{{ messages[0].tool_calls[0].function.arguments | tojson }}", {})
    message = {"role": "assistant", "tool_calls": [{"function": {"arguments": sent}}]}
    assert template.render([message], None, form=EngineForm(arguments=ArgumentForm.OBJECT_ONLY)) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"{ATTRIBUTION}: cch=1;\nBe brief.", "Be brief."),
        (f"{ATTRIBUTION}: cch=1;", ""),
        ("Be brief.", "Be brief."),
        ([{"type": "text", "text": f"{ATTRIBUTION}: cch=1;"}, {"type": "text", "text": "Be brief."}], "Be brief."),
        ([{"type": "text", "text": f"{ATTRIBUTION}: cch=1;\nBe brief."}], "Be brief."),
    ],
)
def test_the_line_that_changes_with_every_request_is_left_out_of_system_messages(content, expected):
    form = EngineForm(drops_attribution=True)
    assert LINES.render([{"role": "system", "content": content}], None, form=form) == f"system={expected};"
    kept = LINES.render([{"role": "user", "content": content}], None, form=form)
    assert kept == LINES.render([{"role": "user", "content": content}], None)
