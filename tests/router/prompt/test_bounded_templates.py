"""Templates under a budget have the text that jinja's own sandbox gives them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.prompt.template import ChatTemplate, TemplateRefused
from tests.router.prompt.plain_jinja import PlainTemplate
from tests.router.prompt.real_tokenizers import CHATS, load_template
from tests.router.prompt.template_pieces import EXPRESSIONS, NAMES, REFUSED, STATEMENTS
from tests.router.prompt.test_incremental_prompts import QUICK, TOOLS, turns

TOKENS = {"bos_token": "<s>"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"n": 1, "é": [null, 2.5]}'}}
MESSAGES = [
    {"role": "system", "content": " Be <b>brief</b> & kind. "},
    {"role": "user", "content": "one\ntwo\r\n three", "name": "Ann"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "3,1,2", "tool_call_id": "c1"},
]


def render(source):
    ours = ChatTemplate(source, TOKENS)
    try:
        text = ours.render(MESSAGES, None)
    except TemplateRefused as error:
        return f"refused: {error}", PlainTemplate(source, TOKENS).render(MESSAGES, None)
    return text, PlainTemplate(source, TOKENS).render(MESSAGES, None)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_has_the_text_that_jinja_gives_it(expression):
    ways = f"{{{{ {expression} }}}}|{{% set it = {expression} %}}{{{{ it }}}}|{{{{ [{expression}] }}}}"
    ours, plain = render(NAMES + ways)
    assert ours == plain


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_has_the_text_that_jinja_gives_it(statement):
    ours, plain = render(NAMES + statement)
    assert ours == plain


@pytest.mark.parametrize("source", REFUSED)
def test_what_jinja_refuses_is_refused(source):
    ours, plain = render(NAMES + source)
    assert ours.startswith("refused: ")
    assert plain is None


@pytest.mark.parametrize("name", CHATS)
@given(history=turns(), tools=st.sampled_from([None, TOOLS]), thinks=st.sampled_from([None, True, False]))
@QUICK
def test_published_templates_have_the_text_that_jinja_gives_them(name, history, tools, thinks):
    template = load_template(name)
    plain = PlainTemplate(template._source, template._tokens)
    options = {} if thinks is None else {"enable_thinking": thinks}
    for messages in history:
        expected = plain.render(messages, tools, options)
        try:
            assert template.render(messages, tools, options) == expected
        except TemplateRefused:
            assert expected is None
