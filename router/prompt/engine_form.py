"""What an engine does to messages and tools before its chat template sees them. Pure.

Engines differ here without saying so: they parse tool call arguments or not, replace null content, write tool
definitions anew. One `EngineForm` is one combination; the parity probe finds out which one a fleet has.
"""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import product
from typing import Any

import msgspec


class ArgumentForm(StrEnum):
    """How the arguments of earlier tool calls reach the template."""

    #: Parsed, as vLLM and SGLang do.
    OBJECT = "object"
    #: As the client sent them.
    TEXT = "text"


class CallForm(StrEnum):
    """In which order a template that writes whole tool calls finds their fields."""

    #: As the client sent them.
    SENT = "sent"
    #: `id, function (arguments, name), type`, as vLLM's typed messages have them (seen in 0.32).
    TYPED = "typed"


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

    def shape_message(self, message: Mapping[str, Any], *, takes_parts: bool) -> dict[str, Any]:
        """A message as the template sees it.

        Args:
            message: As the client sent it.
            takes_parts: Whether the template walks over content parts; else they are joined.

        Raises:
            TypeError: A content part has no text.
        """
        shaped = dict(message)
        content = shaped.get("content")
        if isinstance(content, list) and not takes_parts:
            shaped["content"] = "\n".join(_part_text(part) for part in content)
        elif content is None and not self.keeps_null:
            shaped["content"] = ""
        calls = shaped.get("tool_calls")
        if isinstance(calls, list):
            shaped["tool_calls"] = [self._shape_call(call) for call in calls]
        return shaped

    def _shape_call(self, call: Any) -> Any:
        if self.arguments is ArgumentForm.OBJECT:
            call = _with_object_arguments(call)
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
    """Every combination, the usual one first."""
    choices = product(CallForm, ArgumentForm, ToolForm, (False, True), ContinueForm)
    for calls, arguments, tools, keeps_null, continues in choices:
        yield EngineForm(arguments, tools, keeps_null, continues, calls)


def _part_text(part: Any) -> str:
    text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        raise TypeError("a content part has no text")
    return text


def _with_object_arguments(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        decoded = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": decoded}} if isinstance(decoded, dict) else call


def _in_typed_order(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    inner = {name: function[name] for name in ("arguments", "name") if name in function}
    ordered = {"id": call.get("id"), "function": inner, "type": call.get("type", "function")}
    return {name: value for name, value in ordered.items() if value is not None}
