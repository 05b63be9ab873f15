"""The model's chat template: messages and tools in, prompt text out.

Runs foreign templates in jinja2's immutable sandbox. Messages are given to it as the client sent
them, so that a router that holds the same template renders the same text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError as JinjaError
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, Any]


class TemplateRefused(ValueError):  # noqa: N818  (reads as a fact, as all refusals here do)
    """The template cannot render these messages; the text says why."""


class ChatTemplate:
    """A compiled chat template.

    Raises:
        ValueError: It cannot be compiled.
    """

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        try:
            self._template = environment.from_string(source)
        except JinjaError as error:
            raise ValueError(f"the chat template cannot be compiled: {error}") from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        template_arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text of a conversation.

        Raises:
            TemplateRefused: The template refused the messages or stumbled over their shape.
        """
        arguments = dict(template_arguments or {})
        arguments |= {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render(arguments)
        except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise TemplateRefused(str(error)) from error


def _to_json(value: object, indent: int | None = None) -> str:
    """JSON without HTML escapes, as chat templates expect."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise JinjaError(message)
