"""Router and engine are compared on a battery; the first engine that answers settles what it does to messages."""

from pathlib import Path

import pytest

from router.control.parity import BATTERY, Parity, probe_parity
from router.prompt import Prompter, PromptInput, Unrenderable
from router.prompt.engine_form import ArgumentForm, ContinueForm, EngineForm, ToolForm

TOY = Path(__file__).parents[3] / "engine_shim/engine/tokenizer/toy"


class Engine:
    """An engine with a form of its own, on the same files."""

    def __init__(self, form, *, text_only=False, shift=0, wrong_field=None):
        self.prompter = Prompter.load(TOY)
        self.form = form
        self.text_only, self.shift, self.wrong_field = text_only, shift, wrong_field
        self.asked = 0

    async def tokenize(self, request):
        self.asked += 1
        if "prompt" in request:
            return [token + self.shift for token in self.prompter.tokenizer.encode(request["prompt"])]
        if self.text_only:
            return None
        case = next(case for case in BATTERY if case.to_body(request["model"]) == request)
        text = self.prompter.render(case.to_input(), self.form)
        if self.wrong_field in case.fields:
            text += "!"
        return [token + self.shift for token in self.prompter.tokenizer.encode(text)]


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
