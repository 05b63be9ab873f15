"""Whatever a chat template does, it ends soon: at a limit with a name, after few calls, with little memory."""

import logging
import threading
from contextlib import suppress

import pytest

from router.prompt import ModelPrompts, PromptCatalogue, Prompter, PromptInput, Unrenderable
from router.prompt.append import Appender, RenderSetting
from router.prompt.append_battery import NEVER, try_template
from router.prompt.engine_form import DEFAULT_FORM
from router.prompt.template import EXCEEDED_IN_A_ROW, ChatTemplate, LimitExceeded, Limits, TemplateRefused
from router.prompt.tokenizer import load_tokenizer
from tests.router.prompt.meter import Meter
from tests.router.prompt.real_tokenizers import TOY
from tests.router.prompt.template_attacks import BEYOND_LIMITS, NOT_COMPILED, NOT_FOR_TEMPLATES

SMALL = Limits(steps=20_000, most_steps=20_000, chars=200_000, most_chars=200_000)
#: Most that is done for a step, counted by the interpreter and not by the budget.
CALLS = 20 * SMALL.steps
PEAK_BYTES = 12 << 20
MESSAGES = [{"role": "user", "content": "hello " * 20}]
HOSTILE = BEYOND_LIMITS["loops_in_loops"]


@pytest.mark.parametrize("source", BEYOND_LIMITS.values(), ids=BEYOND_LIMITS)
def test_an_attack_ends_at_a_limit_that_the_error_names(source):
    template = ChatTemplate(source, {}, limits=SMALL)
    with Meter() as meter, pytest.raises(LimitExceeded, match=r"exceeds the limit of \d"):
        template.render(MESSAGES, None)
    assert meter.calls <= CALLS
    assert meter.peak_bytes <= PEAK_BYTES


@pytest.mark.parametrize("source", NOT_FOR_TEMPLATES.values(), ids=NOT_FOR_TEMPLATES)
def test_what_templates_have_no_use_for_is_refused(source):
    template = ChatTemplate(source, {}, limits=SMALL)
    with Meter() as meter, pytest.raises(TemplateRefused):
        template.render(MESSAGES, None)
    assert meter.calls <= CALLS
    assert meter.peak_bytes <= PEAK_BYTES


HASHED = [name for name in NOT_FOR_TEMPLATES if name.startswith("deep_tuple_") and not name.endswith(("text", "json"))]


@pytest.mark.parametrize("name", HASHED)
def test_a_tuple_is_refused_before_it_is_hashed(name):
    with pytest.raises(TemplateRefused, match="a tuple is no key"):
        ChatTemplate(NOT_FOR_TEMPLATES[name], {}).render(MESSAGES, None)


@pytest.mark.parametrize("source", NOT_COMPILED.values(), ids=NOT_COMPILED)
def test_a_template_beyond_what_is_compiled_says_why(source):
    with pytest.raises(
        ValueError, match=r"not for chat templates|No filter|limit of|nested too deep|larger than|4300 digits"
    ):
        ChatTemplate(source, {})


def nest(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("source", ["{{ messages }}", "{{ messages | tojson }}", "{{ messages | tojson(indent=2) }}"])
def test_messages_that_nest_too_deep_are_refused(source):
    with pytest.raises(TemplateRefused, match="nest too deep"):
        ChatTemplate(source, {}).render([{"role": "user", "content": "", "x": nest(5_000)}], None)


def test_indentation_of_deep_values_is_charged_for_every_line():
    wide = {"role": "user", "content": "", "x": [[[[[["y"] * 9_999]]]]]}
    limits = Limits(chars=100_000, most_chars=100_000)
    with pytest.raises(LimitExceeded, match="characters"):
        ChatTemplate("{{ messages | tojson(indent=16) }}", {}, limits=limits).render([wide], None)


def test_a_larger_request_may_use_more_up_to_a_ceiling():
    source = "{% for m in messages %}{{ m.content }}{% for n in range(50) %}x{% endfor %}{% endfor %}"
    few, many = MESSAGES, MESSAGES * 500
    base = Limits(steps=5_000, chars=2_000)
    template = ChatTemplate(source, {}, limits=base)
    assert template.render(few, None) == "hello " * 20 + "x" * 50
    assert template.render(many, None) == ("hello " * 20 + "x" * 50) * 500
    for ceiling in (Limits(steps=5_000, most_steps=9_000), Limits(chars=2_000, most_chars=9_000)):
        tight = ChatTemplate(source, {}, limits=ceiling)
        assert tight.render(few, None)
        with pytest.raises(LimitExceeded):
            tight.render(many, None)


def test_what_one_rendering_used_up_the_next_one_has_again():
    template = ChatTemplate("{% for i in range(n) %}x{% endfor %}", {}, limits=Limits(steps=900, most_steps=900))
    for _ in range(3):
        assert template.render([], None, {"n": 200}) == "x" * 200
        with pytest.raises(LimitExceeded):
            template.render([], None, {"n": 2_000})


def test_a_template_that_exceeds_its_limits_every_time_gets_less_until_it_stays_within():
    source = "{% for i in range(n) %}x{% endfor %}"
    template = ChatTemplate(source, {}, limits=SMALL)

    def count_calls(items):
        with Meter() as meter, suppress(LimitExceeded):
            template.render([], None, {"n": items})
        return meter.calls

    first, *_, last = (count_calls(99_999) for _ in range(EXCEEDED_IN_A_ROW + 1))
    assert last < first / 5
    assert template.render([], None, {"n": 100}) == "x" * 100
    assert template.render([], None, {"n": 5_000}) == "x" * 5_000


class RecordingTokenizer:
    """The toy tokenizer, which tells in which threads it was asked."""

    def __init__(self):
        self.threads = []
        self._toy = load_tokenizer(TOY)
        self.cuts, self.cache = self._toy.cuts, self._toy.cache

    def encode(self, text, *, add_special_tokens=False):
        self.threads.append(threading.current_thread().name)
        return self._toy.encode(text, add_special_tokens=add_special_tokens)


GREEDY_FOR_LONG = "{{ messages[0].content }}{% if messages | length > 1 %}" + HOSTILE + "{% endif %}"


async def test_a_request_whose_template_hits_a_limit_is_served_without_exact_credit(caplog):
    tokenizer = RecordingTokenizer()
    prompter = Prompter(tokenizer, ChatTemplate(GREEDY_FOR_LONG, {}, limits=SMALL))
    catalogue = PromptCatalogue(block_sizes=lambda: {4})
    catalogue.put("m", ModelPrompts(prompter, "m"))
    prepared = await catalogue.prepare("m", PromptInput(messages=MESSAGES), 100)
    assert prepared.uncredited is None
    assert tokenizer.threads == [threading.current_thread().name]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            prepared = await catalogue.prepare("m", PromptInput(messages=MESSAGES * 2), 100)
    assert (prepared.uncredited, prepared.chains) == ("template", ())
    assert prepared.text.hashes
    assert caplog.text.count("chat_template_limit") == 1
    assert "exceeds the limit of 20,000" in caplog.text
    # From then on its renderings wait in a thread of their own, and the event loop goes on.
    await catalogue.prepare("m", PromptInput(messages=MESSAGES), 100)
    assert tokenizer.threads[-1].startswith("dovecote-prompt")
    catalogue.close()


def test_a_hostile_template_is_not_tried_over_and_over():
    template = ChatTemplate(HOSTILE, {}, limits=SMALL)
    with Meter() as meter:
        rules = try_template(template, Appender(template, load_tokenizer(TOY).cuts), RenderSetting({}, DEFAULT_FORM))
    assert rules == NEVER
    assert meter.calls <= CALLS


def test_a_folder_with_a_hostile_template_still_serves_completions(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((TOY / "tokenizer.json").read_bytes())
    (tmp_path / "chat_template.jinja").write_text(HOSTILE)
    prompter = Prompter.load(tmp_path)
    assert prompter.prepare(PromptInput(messages=MESSAGES)) == Unrenderable("template")
    assert prompter.prepare(PromptInput(prompt="plain text")).token_ids
