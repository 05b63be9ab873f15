"""Chat templates without a budget: jinja's own sandbox with what engines add to it, to compare with."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from router.prompt.engine_form import DEFAULT_FORM
from router.prompt.template import ChatTemplate


class PlainTemplate:
    """One template as engines compile it."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        environment = _PlainEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols], optimized=False
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now(tz=UTC).astimezone().strftime(form)
        self._template = environment.from_string(source)
        self._tokens = dict(tokens)
        self._takes_parts = ChatTemplate(source, tokens).takes_parts

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None,
        options: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Text of a conversation; None where the template raises."""
        values = {**self._tokens, "add_generation_prompt": True, "documents": None, **(options or {})}
        try:
            values["messages"] = [DEFAULT_FORM.shape_message(one, takes_parts=self._takes_parts) for one in messages]
            values["tools"] = tools
            return self._template.render(values)
        except Exception:  # noqa: BLE001
            return None


class _PlainGenerator(CodeGenerator):
    """Computes nothing ahead: a constant that no rendering gets to may be gigabytes."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class _PlainEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    code_generator_class = _PlainGenerator


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=options.pop("ensure_ascii", False), indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(str(message))
