"""The tests that chat templates have (`x is defined`), those that compare or calculate charged."""

from collections.abc import Callable
from typing import Any

from jinja2 import pass_context
from jinja2.tests import TESTS as JINJA_TESTS

from router.prompt.operators import BoundedContext

TESTS: dict[str, Any] = {**JINJA_TESTS}
_AS_THEY_ARE = (
    "boolean", "callable", "defined", "escaped", "false", "float", "integer", "iterable", "mapping", "none", "number",
    "sameas", "sequence", "string", "true", "undefined",
)  # fmt: skip
_COMPARISONS = {
    "eq": ("==", "eq", "equalto"),
    "ne": ("!=", "ne"),
    "gt": (">", "gt", "greaterthan"),
    "ge": (">=", "ge"),
    "lt": ("<", "lt", "lessthan"),
    "le": ("<=", "le"),
}


def _compare(name: str) -> Callable[..., Any]:
    @pass_context
    def call(context: BoundedContext, value: Any, other: Any) -> Any:
        return context.budget.compare(name, value, other)

    return call


def _divide(name: str) -> Callable[..., Any]:
    """Whether a number divides; a text would be taken for a format."""

    @pass_context
    def call(context: BoundedContext, value: Any, *arguments: Any) -> Any:
        del context
        if not all(isinstance(number, int | float) for number in (value, *arguments)):
            raise TypeError(f"{name} of a {type(value).__name__}")
        return TESTS[name](value, *arguments)

    return call


def _case(name: str) -> Callable[..., Any]:
    @pass_context
    def call(context: BoundedContext, value: Any) -> Any:
        text = context.budget.show(value)
        context.budget.search(len(text))
        return TESTS[name](text)

    return call


@pass_context
def _in(context: BoundedContext, value: Any, seq: Any) -> bool:
    return context.budget.contains(seq, value)


@pass_context
def _filter(context: BoundedContext, value: Any) -> bool:
    return context.budget.key(value) in context.environment.filters


@pass_context
def _test(context: BoundedContext, value: Any) -> bool:
    return context.budget.key(value) in context.environment.tests


BOUNDED_TESTS: dict[str, Callable[..., Any]] = {
    **{name: TESTS[name] for name in _AS_THEY_ARE},
    **{alias: _compare(name) for name, aliases in _COMPARISONS.items() for alias in aliases},
    **{name: _divide(name) for name in ("divisibleby", "even", "odd")},
    **{name: _case(name) for name in ("lower", "upper")},
    "filter": _filter,
    "in": _in,
    "test": _test,
}
