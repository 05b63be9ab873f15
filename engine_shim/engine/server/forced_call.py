"""A call of a tool that the request forces: what the model writes becomes the call's one text argument. Pure.

The toy model knows nothing of tools, so that it calls none by itself, and what it writes is no JSON. Where a call is
forced, its JSON around the argument is written here and the argument is the model's own text, as constrained decoding
of a schema with one free text would have it. Schemas that need more than that are refused.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from engine_shim.engine.server.errors import bad_request


class ForcedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call that the answer is."""

    name: str
    #: The argument that the model writes.
    argument: str

    @property
    def opening(self) -> str:
        """JSON before the argument's text."""
        return json.dumps({self.argument: ""}, ensure_ascii=False)[:-2]

    @staticmethod
    def escape(text: str) -> str:
        """A piece of the argument's text as it stands in JSON."""
        return json.dumps(text, ensure_ascii=False)[1:-1]

    @property
    def closing(self) -> str:
        """JSON after it."""
        return '"}'

    def write(self, text: str) -> str:
        """All of the call's arguments as JSON."""
        return self.opening + self.escape(text) + self.closing


def force_call(tools: Sequence[Mapping[str, Any]] | None, name: str | None) -> ForcedCall:
    """The call of a function by its name, or of the only one there is.

    Args:
        tools: Definitions in the form of a chat.
        name: None where any will do.

    Raises:
        ApiError: There is no such function, or its arguments are more than one text.
    """
    functions = [tool.get("function") for tool in tools or ()]
    named = [each for each in functions if isinstance(each, Mapping) and name in (None, each.get("name"))]
    if len(named) != 1 or not isinstance(named[0].get("name"), str):
        raise bad_request("tool_choice must leave exactly one of the tools", "tool_choice")
    function = named[0]
    return ForcedCall(name=function["name"], argument=_find_argument(function.get("parameters")))


def _find_argument(schema: Any) -> str:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if isinstance(properties, Mapping):
        required = schema.get("required") or ([next(iter(properties))] if len(properties) == 1 else [])
        if isinstance(required, list) and len(required) == 1:
            kind = properties.get(required[0])
            if isinstance(kind, Mapping) and kind.get("type") == "string" and "enum" not in kind:
                return str(required[0])
    raise bad_request("a tool that is forced must need one argument, a string: this model writes no other", "tools")


def read_chat_choice(choice: Any, tools: Sequence[Mapping[str, Any]] | None) -> ForcedCall | None:
    """What `tool_choice` of a chat forces; None where the model is free, and calls none."""
    if choice in (None, "auto", "none"):
        return None
    if choice == "required":
        return force_call(tools, None)
    function = choice.get("function") if isinstance(choice, Mapping) else None
    if isinstance(function, Mapping) and isinstance(function.get("name"), str):
        return force_call(tools, function["name"])
    raise bad_request("tool_choice must be none, auto, required or name a function", "tool_choice")
