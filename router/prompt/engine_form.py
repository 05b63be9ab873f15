"""What an engine does to messages and tools before its chat template sees them. Pure.

Engines differ here without saying so: they parse tool call arguments or not, replace null content, write tool
definitions anew. One `EngineForm` is one combination; the parity probe finds out which one a fleet has.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import product
from typing import Any

import msgspec


class ArgumentForm(StrEnum):
    """How the arguments of earlier tool calls reach the template."""

    #: Parsed, as vLLM and SGLang do.
    OBJECT = "object"
    #: Parsed, and an empty object where they are none, as vLLM does (seen in 0.32).
    OBJECT_ONLY = "object_only"
    #: As the client sent them.
    TEXT = "text"


class CallForm(StrEnum):
    """In which order a template that writes whole tool calls finds their fields."""

    #: As the client sent them.
    SENT = "sent"
    #: `id, function (arguments, name), type`, as vLLM's typed messages have them (seen in 0.32).
    TYPED = "typed"


class DeveloperForm(StrEnum):
    """What becomes of messages of the developer where the template does not name that role."""

    #: Nothing.
    SENT = "sent"
    #: They and all system messages are one system message at the head, as vLLM has it (seen in 0.32).
    MERGED = "merged"


class ReasoningForm(StrEnum):
    """Under which names a template finds the reasoning of an earlier answer."""

    #: As the client sent it.
    SENT = "sent"
    #: `reasoning` and `reasoning_content`, whichever was sent, as vLLM has it (seen in 0.32).
    BOTH = "both"


class ToolForm(StrEnum):
    """How tool definitions reach the template."""

    #: As the client sent them.
    SENT = "sent"
    #: Name, description, parameters in this order, null where absent; what else there is after them.
    NAMED = "named"
    #: Description, name, parameters, strict, with null and false where absent.
    STRICT = "strict"


class ContinueForm(StrEnum):
    """Where a prompt ends that continues its final message."""

    #: In the rendered final message, right after its content (transformers, vLLM).
    CUT = "cut"
    #: After a generation prompt and then the content (SGLang).
    APPENDED = "appended"


#: Start of a line that Claude Code puts first in its system prompt and changes with every request.
ATTRIBUTION = "x-anthropic-billing-header"
_TOOL_FIELDS: dict[ToolForm, dict[str, Any]] = {
    ToolForm.SENT: {},
    ToolForm.NAMED: {"name": None, "description": None, "parameters": None},
    ToolForm.STRICT: {"description": None, "name": None, "parameters": None, "strict": False},
}


class EngineForm(msgspec.Struct, frozen=True):
    """One combination."""

    arguments: ArgumentForm = ArgumentForm.OBJECT
    tools: ToolForm = ToolForm.SENT
    #: Null or absent content stays so; else it becomes empty text.
    keeps_null: bool = False
    continues: ContinueForm = ContinueForm.CUT
    calls: CallForm = CallForm.SENT
    developer: DeveloperForm = DeveloperForm.SENT
    reasoning: ReasoningForm = ReasoningForm.SENT
    #: Texts of a tool's result stand on lines of one text, also for a template that walks over parts.
    joins_results: bool = False
    #: The line of `ATTRIBUTION` is left out of system messages.
    drops_attribution: bool = False
    #: A list of no tool calls is left out, as vLLM has it (seen in 0.32), whose own answers have one.
    drops_no_calls: bool = False

    def shape_messages(
        self, messages: Iterable[Mapping[str, Any]], *, takes_parts: bool, names_developer: bool
    ) -> list[dict[str, Any]]:
        """A conversation as the template sees it.

        Args:
            messages: As the client sent them.
            takes_parts: Whether the template walks over content parts; else they are joined.
            names_developer: Whether the template knows the developer's role.

        Raises:
            TypeError: A content part has no text.
        """
        shaped = [self.shape_message(message, takes_parts=takes_parts) for message in messages]
        if self.developer is DeveloperForm.SENT or names_developer:
            return shaped
        return _merge_system(shaped) if any(message.get("role") == "developer" for message in shaped) else shaped

    def shape_message(self, message: Mapping[str, Any], *, takes_parts: bool) -> dict[str, Any]:
        """A message as the template sees it.

        Args:
            message: As the client sent it.
            takes_parts: Whether the template walks over content parts; else they are joined.

        Raises:
            TypeError: A content part has no text.
        """
        # What is null is absent to every engine.
        shaped = {name: value for name, value in message.items() if value is not None or name == "content"}
        role, content = shaped.get("role"), shaped.get("content")
        if self.drops_attribution and role == "system":
            content = shaped["content"] = _without_attribution(content)
        if isinstance(content, list) and (not takes_parts or (self.joins_results and _is_result(role, content))):
            shaped["content"] = _join_texts(content)
        elif content is None and not self.keeps_null:
            shaped["content"] = ""
        calls = shaped.get("tool_calls")
        if calls == [] and self.drops_no_calls:
            del shaped["tool_calls"]
        elif isinstance(calls, list):
            shaped["tool_calls"] = [self._shape_call(call) for call in calls]
        if self.reasoning is ReasoningForm.BOTH and role == "assistant":
            _name_reasoning(shaped)
        return shaped

    def _shape_call(self, call: Any) -> Any:
        if self.arguments is not ArgumentForm.TEXT:
            call = _with_object_arguments(call, is_always=self.arguments is ArgumentForm.OBJECT_ONLY)
        return _in_typed_order(call) if self.calls is CallForm.TYPED else call

    def shape_tool(self, tool: Any) -> Any:
        """A tool definition as the template sees it."""
        function = tool.get("function") if isinstance(tool, Mapping) else None
        fields = _TOOL_FIELDS[self.tools]
        if not fields or not isinstance(function, Mapping):
            return tool
        return {"type": tool.get("type", "function"), "function": {**fields, **function}}


DEFAULT_FORM = EngineForm()


def iter_forms() -> Iterator[EngineForm]:
    """Every combination of what shows in most conversations with tools, the usual one first; the rest as usual."""
    arguments_forms = (ArgumentForm.OBJECT, ArgumentForm.TEXT)
    choices = product(CallForm, arguments_forms, ToolForm, (False, True), ContinueForm)
    for calls, arguments, tools, keeps_null, continues in choices:
        yield EngineForm(arguments, tools, keeps_null, continues, calls)


def _part_text(part: Any) -> str:
    text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        raise TypeError("a content part has no text")
    return text


def _is_result(role: Any, content: Sequence[Any]) -> bool:
    return role == "tool" and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content)


def _without_attribution(content: Any) -> Any:
    """Content without the first line of a text that begins with `ATTRIBUTION`, nor a part of which nothing is left."""
    if isinstance(content, str):
        return content.partition("\n")[2] if content.startswith(ATTRIBUTION) else content
    if not isinstance(content, list):
        return content
    kept = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else None
        if not (isinstance(text, str) and text.startswith(ATTRIBUTION)):
            kept.append(part)
        elif rest := text.partition("\n")[2]:
            kept.append({**part, "text": rest})
    return kept


def _name_reasoning(message: dict[str, Any]) -> None:
    names = ("reasoning", "reasoning_content")
    told = [value for value in (message.pop(name, None) for name in names) if value is not None]
    message.update(dict.fromkeys(names, told[0]) if told else {})


def _merge_system(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with one system message at most, at its head."""
    heads = [message for message in messages if message.get("role") in ("system", "developer")]
    rest = [message for message in messages if message.get("role") not in ("system", "developer")]
    if len(heads) == 1 and messages[0] is heads[0]:
        return [{**heads[0], "role": "system"}, *rest]
    texts = [_join_texts(message.get("content")) for message in heads]
    return [{"role": "system", "content": "\n\n".join(filter(None, texts))}, *rest]


def _join_texts(content: Any) -> str:
    return "\n".join(_part_text(part) for part in content) if isinstance(content, list) else content or ""


def _with_object_arguments(call: Any, *, is_always: bool) -> Any:
    """The call with parsed arguments; where they are no object as it is, or with an empty one if that `is_always`."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        if not is_always:
            return call
        arguments = {}
    return {**call, "function": {**function, "arguments": arguments}}


def _in_typed_order(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    inner = {name: function[name] for name in ("arguments", "name") if name in function}
    ordered = {"id": call.get("id"), "function": inner, "type": call.get("type", "function")}
    return {name: value for name, value in ordered.items() if value is not None}
