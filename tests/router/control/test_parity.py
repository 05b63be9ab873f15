"""Router and engine are compared on a battery; the first engine that answers settles what it does to messages."""

from pathlib import Path

import msgspec
import pytest

from router.control.parity import BATTERY, REFINEMENTS, Parity, probe_parity
from router.prompt import Prompter, PromptInput, Unrenderable
from router.prompt.engine_form import (
    ArgumentForm,
    CallForm,
    ContinueForm,
    DeveloperForm,
    EngineForm,
    ReasoningForm,
    ToolForm,
)
from router.prompt.template import ChatTemplate

TOY = Path(__file__).parents[3] / "engine_shim/engine/tokenizer/toy"
CASES = (*BATTERY, *(refinement.case for refinement in REFINEMENTS))
#: Shows everything of a message that a form can change.
FRANK = (
    "{% for m in messages %}{{ m.role }}: "
    "{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endif %}"
    "{{ m.reasoning_content }}{{ m.tool_calls | tojson if 'tool_calls' in m else '' }};{% endfor %}"
    "{{ tools | tojson if tools else '' }}"
)
VLLM = EngineForm(
    calls=CallForm.TYPED, tools=ToolForm.NAMED, developer=DeveloperForm.MERGED, reasoning=ReasoningForm.BOTH,
    joins_results=True, arguments=ArgumentForm.OBJECT_ONLY, drops_attribution=True, drops_no_calls=True,
)  # fmt: skip


class Engine:
    """An engine with a form of its own, on the same files."""

    def __init__(self, form, *, text_only=False, shift=0, wrong_field=None, template=None, refuses=()):
        self.prompter = Prompter.load(TOY) if template is None else make_prompter(template)
        self.refuses = refuses
        self.form = form
        self.text_only, self.shift, self.wrong_field = text_only, shift, wrong_field
        self.asked = 0

    async def tokenize(self, request):
        self.asked += 1
        if "prompt" in request:
            return [token + self.shift for token in self.prompter.tokenizer.encode(request["prompt"])]
        if self.text_only:
            return None
        case = next(case for case in CASES if case.to_body(request["model"]) == request)
        if case in self.refuses:
            return None
        text = self.prompter.render(case.to_input(), self.form)
        if self.wrong_field in case.fields:
            text += "!"
        return [token + self.shift for token in self.prompter.tokenizer.encode(text)]


def make_prompter(template):
    return Prompter(Prompter.load(TOY).tokenizer, ChatTemplate(template, {}))


class Silent:
    async def tokenize(self, request):
        return None


@pytest.fixture
def prompter():
    return Prompter.load(TOY)


@pytest.mark.parametrize(
    "form",
    [
        EngineForm(),
        EngineForm(arguments=ArgumentForm.TEXT),
        EngineForm(tools=ToolForm.NAMED),
        EngineForm(tools=ToolForm.STRICT, arguments=ArgumentForm.TEXT),
        EngineForm(continues=ContinueForm.APPENDED),
    ],
)
async def test_the_form_of_the_first_engine_is_found(prompter, form):
    assert await probe_parity(Engine(form), prompter, "m") is Parity.PASSED
    assert prompter.is_settled
    for case in BATTERY:
        assert prompter.render(case.to_input()) == prompter.render(case.to_input(), form)


async def test_an_engine_of_another_form_fails_and_changes_nothing(prompter):
    await probe_parity(Engine(EngineForm()), prompter, "m")
    settled = prompter.form
    assert await probe_parity(Engine(EngineForm(arguments=ArgumentForm.TEXT)), prompter, "m") is Parity.FAILED
    assert prompter.form == settled
    assert await probe_parity(Engine(EngineForm()), prompter, "m") is Parity.PASSED


async def test_other_ids_fail(prompter):
    assert await probe_parity(Engine(EngineForm(), shift=1), prompter, "m") is Parity.FAILED
    assert not prompter.is_settled


async def test_an_engine_that_tokenizes_text_only_is_compared_on_that(prompter):
    assert await probe_parity(Engine(EngineForm(), text_only=True), prompter, "m") is Parity.TEXT_ONLY
    assert await probe_parity(Engine(EngineForm(), text_only=True, shift=1), prompter, "m") is Parity.FAILED
    assert not prompter.is_settled


async def test_an_engine_that_says_nothing_is_unknown(prompter):
    assert await probe_parity(Silent(), prompter, "m") is Parity.UNKNOWN


async def test_a_field_the_engine_takes_otherwise_earns_no_credit_and_nothing_else_suffers(prompter):
    engine = Engine(EngineForm(), wrong_field="continue_final_message")
    assert await probe_parity(engine, prompter, "m") is Parity.PASSED
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    continued = PromptInput(
        messages=messages, continue_final_message=True, field_names=frozenset({"continue_final_message"})
    )
    assert prompter.prepare(continued) == Unrenderable("opaque_field")
    assert not isinstance(prompter.prepare(PromptInput(messages=messages)), Unrenderable)


@pytest.mark.parametrize("refinement", REFINEMENTS, ids=lambda refinement: refinement.name)
async def test_what_shows_in_few_conversations_is_settled_by_cases_of_its_own(refinement):
    for value in refinement.values:
        form = msgspec.structs.replace(EngineForm(calls=CallForm.TYPED), **{refinement.name: value})
        prompter = make_prompter(FRANK)
        assert await probe_parity(Engine(form, template=FRANK), prompter, "m") is Parity.PASSED
        assert prompter.form == form


async def test_all_of_an_engines_ways_are_found_at_once_and_found_anew_after_an_upgrade():
    prompter = make_prompter(FRANK)
    await probe_parity(Engine(VLLM, template=FRANK), prompter, "m")
    assert prompter.form == VLLM
    older = msgspec.structs.replace(VLLM, drops_attribution=False, developer=DeveloperForm.SENT)
    await probe_parity(Engine(older, template=FRANK), prompter, "m", tries_all=True)
    assert prompter.form == older


async def test_a_template_that_refuses_a_list_of_no_calls_shows_that_its_engine_leaves_it_out():
    shown = "{% if 'tool_calls' in m and not m.tool_calls %}{{ raise_exception('!') }}{% endif %}{{ m.content }};"
    strict = "{% for m in messages %}" + shown + "{% endfor %}"
    prompter = make_prompter(strict)
    await probe_parity(Engine(EngineForm(drops_no_calls=True), template=strict), prompter, "m")
    assert prompter.form.drops_no_calls


async def test_engines_of_two_versions_do_not_take_turns_in_what_shows_in_few_conversations():
    prompter = make_prompter(FRANK)
    older = msgspec.structs.replace(VLLM, drops_attribution=False, reasoning=ReasoningForm.SENT)
    assert await probe_parity(Engine(older, template=FRANK), prompter, "m") is Parity.PASSED
    for _ in range(2):
        assert await probe_parity(Engine(VLLM, template=FRANK), prompter, "m") is Parity.PARTLY
        assert prompter.form == older
        assert await probe_parity(Engine(older, template=FRANK), prompter, "m") is Parity.PASSED


async def test_what_an_engine_refuses_or_keeps_as_text_says_nothing_of_its_way():
    prompter = make_prompter(FRANK)
    refusing = Engine(EngineForm(), template=FRANK, refuses=CASES[len(BATTERY) :])
    assert await probe_parity(refusing, prompter, "m") is Parity.PASSED
    assert prompter.form == EngineForm()
    keeping = EngineForm(arguments=ArgumentForm.TEXT)
    assert await probe_parity(Engine(keeping, template=FRANK), prompter, "m", tries_all=True) is Parity.PASSED
    assert prompter.form == keeping


async def test_a_way_that_is_not_known_is_said_and_takes_no_credit_from_the_rest(caplog):
    class Odd(Engine):
        async def tokenize(self, request):
            ids = await super().tokenize(request)
            return [*ids, 1] if any(one["role"] == "developer" for one in request["messages"]) else ids

    prompter = make_prompter(FRANK)
    assert await probe_parity(Odd(EngineForm(), template=FRANK), prompter, "m") is Parity.PASSED
    assert prompter.form == EngineForm()
    assert "parity_unknown_form what=developer" in caplog.text
