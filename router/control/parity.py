"""Whether router and engine make the same ids of a prompt: asked when a worker is registered, and ever again.

A worker whose ids differ earns no cache credit until they agree: with other ids every prediction would be wrong. The
first engine that answers also settles what happens to messages and tools before its template, which engines do in
several ways. Engines that tokenize only text are asked for that.
"""

import asyncio
import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from router.prompt import Prompter, PromptInput, Unrenderable
from router.prompt.engine_form import ATTRIBUTION, ArgumentForm, DeveloperForm, EngineForm, ReasoningForm, iter_forms

_log = logging.getLogger("dovecote.control")
#: A worker is asked again after so many requests.
PARITY_EVERY_REQUESTS = 1_000

_READ = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file — text only",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
_TOOLS = [_READ]
#: Nothing but what is needed, and the parameters first: shows whether an engine writes definitions anew.
_BARE_TOOLS = [{"type": "function", "function": {"parameters": {"type": "object", "properties": {}}, "name": "stop"}}]
_CALL = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a/é.py", "n": 1}'}}
_RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x = 1\n"}
_HELLO = "Hello  there,\n\n  世界 🐦 'tis 12345!"


class Case(msgspec.Struct, frozen=True):
    """One request in a shape that agents send; it must come out the same."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    #: Further fields, equal for the engine and the router.
    more: dict[str, Any] = {}
    #: Body fields without which the case says nothing; where it differs, prompts with them earn no credit.
    fields: frozenset[str] = frozenset()

    def to_body(self, model: str) -> dict[str, Any]:
        """What the engine is asked."""
        body: dict[str, Any] = {"model": model, "messages": self.messages, **self.more}
        return body if self.tools is None else {**body, "tools": self.tools}

    def to_input(self) -> PromptInput:
        """What the prompter is asked."""
        more = {name: value for name, value in self.more.items() if name != "chat_template_kwargs"}
        options = self.more.get("chat_template_kwargs")
        return PromptInput(messages=self.messages, tools=self.tools, template_options=options, **more)


BATTERY: tuple[Case, ...] = (
    Case([{"role": "user", "content": _HELLO}]),
    Case([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<|im_end|> spelled out\t"}]),
    Case([{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Read a"}], _TOOLS),
    Case([{"role": "user", "content": "Stop"}], _BARE_TOOLS),
    Case(
        [{"role": "user", "content": "Read a"}, {"role": "assistant", "content": "", "tool_calls": [_CALL]}, _RESULT],
        _TOOLS,
    ),
    Case(
        [{"role": "user", "content": "Read a"}, {"role": "assistant", "content": None, "tool_calls": [_CALL]}, _RESULT],
        _TOOLS,
    ),
    Case([{"role": "user", "content": [{"type": "text", "text": "in"}, {"type": "text", "text": "parts"}]}]),
    Case(
        [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "one, two,"}],
        more={"continue_final_message": True, "add_generation_prompt": False},
        fields=frozenset({"continue_final_message"}),
    ),
    Case(
        [{"role": "user", "content": "Hi"}],
        more={"chat_template_kwargs": {"enable_thinking": False}},
        fields=frozenset({"chat_template_kwargs"}),
    ),
)


class Refinement(msgspec.Struct, frozen=True):
    """Something that shows in few conversations, told by a case of its own once the rest is settled."""

    #: Field of `EngineForm`, and the values that are told apart, the usual one first; of others nothing is told.
    name: str
    values: tuple[object, ...]
    case: Case

    def find_value(self, prompter: Prompter, form: EngineForm, ids: list[int]) -> object:
        """The first value that gives these ids; else one with which the case is not rendered, and earns no credit.

        None where all give others.
        """
        silent = None
        for value in self.values:
            made = prompter.make_ids(self.case.to_input(), msgspec.structs.replace(form, **{self.name: value}))
            if isinstance(made, Unrenderable):
                silent = value if silent is None else silent
            elif made.tolist() == ids:
                return value
        return silent


_MALFORMED = {"id": "c2", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a'}}
_TWO_TEXTS = [{"type": "text", "text": "x = 1\n"}, {"type": "text", "text": "y = 2\n"}]
REFINEMENTS: tuple[Refinement, ...] = (
    Refinement(
        "developer",
        tuple(DeveloperForm),
        Case(
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hi"},
                {"role": "developer", "content": "In French."},
                {"role": "user", "content": "Go on"},
            ]
        ),
    ),
    Refinement(
        "reasoning",
        tuple(ReasoningForm),
        Case(
            [
                {"role": "user", "content": "Read a"},
                {"role": "assistant", "content": "", "reasoning": "It is a file.", "tool_calls": [_CALL]},
                _RESULT,
            ],
            _TOOLS,
        ),
    ),
    Refinement(
        "joins_results",
        (False, True),
        Case(
            [
                {"role": "user", "content": "Read a"},
                {"role": "assistant", "content": "", "tool_calls": [_CALL]},
                {**_RESULT, "content": _TWO_TEXTS},
            ],
            _TOOLS,
        ),
    ),
    Refinement(
        "arguments",
        (ArgumentForm.OBJECT, ArgumentForm.OBJECT_ONLY),
        Case(
            [
                {"role": "user", "content": "Read a"},
                {"role": "assistant", "content": "", "tool_calls": [_MALFORMED]},
                {**_RESULT, "tool_call_id": "c2"},
            ],
            _TOOLS,
        ),
    ),
    Refinement(
        "drops_no_calls",
        (False, True),
        Case(
            [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello", "tool_calls": []},
                {"role": "user", "content": "Go on"},
            ]
        ),
    ),
    Refinement(
        "drops_attribution",
        (False, True),
        Case(
            [
                {"role": "system", "content": f"{ATTRIBUTION}: cc_version=2; cch=1a2b3;\nBe brief."},
                {"role": "user", "content": "Hi"},
            ]
        ),
    ),
)


class Parity(StrEnum):
    """What came of a comparison."""

    PASSED = "passed"
    FAILED = "failed"
    #: The engine does not tokenize.
    UNKNOWN = "unknown"
    #: The engine tokenizes only text: the ids of that agree, its rendering was not seen.
    TEXT_ONLY = "text_only"
    #: They agree but for what shows in few conversations, of which those hold that others go by.
    PARTLY = "partly"


class TokenizeClient(Protocol):
    """An engine's `/tokenize`."""

    async def tokenize(self, request: dict[str, Any]) -> list[int] | None:
        """The engine's ids, None where it does not say."""


async def probe_parity(client: TokenizeClient, prompter: Prompter, model: str, *, tries_all: bool = False) -> Parity:
    """Compare the ids of the battery.

    Args:
        client: The engine.
        prompter: The router's side.
        model: Name to ask for.
        tries_all: Try every form though one was found: nobody else goes by that one.
    """
    answers = [(case, ids) for case in BATTERY if (ids := await client.tokenize(case.to_body(model))) is not None]
    if not answers:
        return await _probe_text(client, prompter, model)
    bodies = [(each, each.case.to_body(model)) for each in REFINEMENTS]
    told = [(each, ids) for each, body in bodies if (ids := await client.tokenize(body)) is not None]
    return await asyncio.to_thread(_settle, prompter, answers, told, tries_all=tries_all)


async def _probe_text(client: TokenizeClient, prompter: Prompter, model: str) -> Parity:
    verdict = Parity.UNKNOWN
    for case in BATTERY:
        text = prompter.render(case.to_input())
        if isinstance(text, Unrenderable):
            continue
        ids = await client.tokenize({"model": model, "prompt": text, "add_special_tokens": False})
        if ids is None:
            return verdict
        if prompter.tokenizer.encode(text).tolist() != ids:
            return Parity.FAILED
        verdict = Parity.TEXT_ONLY
    return verdict


def _settle(
    prompter: Prompter,
    answers: Sequence[tuple[Case, list[int]]],
    told: Sequence[tuple[Refinement, list[int]]],
    *,
    tries_all: bool,
) -> Parity:
    """Whether the prompter gives these ids, in its form or, where others may be tried, in one that it then keeps."""
    needed = [(case, ids) for case, ids in answers if not case.fields]
    extra = [(case, ids) for case, ids in answers if case.fields]
    is_bound = prompter.is_settled and not tries_all
    forms = [prompter.form] if is_bound else [prompter.form, *iter_forms()]
    right = [form for form in dict.fromkeys(forms) if all(_agrees(prompter, form, *one) for one in needed)]
    if not right or not any(_is_rendered(prompter, right[0], case) for case, _ in answers):
        return Parity.FAILED
    best = max(right, key=lambda form: sum(_agrees(prompter, form, *one) for one in extra))
    refined = _refine(prompter, best, told)
    # Engines of two versions must not take turns: each change of the form forgets all conversations.
    is_held = is_bound and refined != best
    best = best if is_held else refined
    wrong = [case.fields for case, ids in extra if not _agrees(prompter, best, case, ids)]
    prompter.settle(best, opaque_fields=frozenset().union(*wrong))
    return Parity.PARTLY if is_held else Parity.PASSED


def _refine(prompter: Prompter, form: EngineForm, told: Sequence[tuple[Refinement, list[int]]]) -> EngineForm:
    """The form with what shows in few conversations as this engine has it; as it was where that cannot be told."""
    for refinement, ids in told:
        if getattr(form, refinement.name) not in refinement.values:
            continue
        value = refinement.find_value(prompter, form, ids)
        if value is None:
            _log.warning("parity_unknown_form what=%s", refinement.name)
        else:
            form = msgspec.structs.replace(form, **{refinement.name: value})
    return form


def _agrees(prompter: Prompter, form: EngineForm, case: Case, ids: list[int]) -> bool:
    """Whether the ids are the same; a case that is not rendered here earns no credit, so it cannot be wrong."""
    made = prompter.make_ids(case.to_input(), form)
    return isinstance(made, Unrenderable) or made.tolist() == ids


def _is_rendered(prompter: Prompter, form: EngineForm, case: Case) -> bool:
    return not isinstance(prompter.make_ids(case.to_input(), form), Unrenderable)
