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
        if isinstance(calls, list) and self.arguments is ArgumentForm.OBJECT:
            shaped["tool_calls"] = [_with_object_arguments(call) for call in calls]
        return shaped

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
    for arguments, tools, keeps_null, continues in product(ArgumentForm, ToolForm, (False, True), ContinueForm):
        yield EngineForm(arguments, tools, keeps_null, continues)


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
