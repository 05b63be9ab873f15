"""The environment of chat templates: jinja's immutable sandbox, closed and charged.

Templates come from a model's files and see what clients send. They have the filters, tests, functions and methods
that published templates use, each at a price (`budget`), and nothing else.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import pass_context
from jinja2.runtime import LoopContext
from jinja2.utils import Cycler, Joiner, Namespace

from router.prompt.budget import LimitExceeded
from router.prompt.conditions import BOUNDED_TESTS
from router.prompt.filters import BOUNDED_FILTERS
from router.prompt.methods import Function, call_method, call_value, find_price
from router.prompt.operators import BoundedContext, Operators
from router.prompt.template_code import CHARGED_ITEMS, DICT_NAMES, LOOP_NAMES, ChargingGenerator

#: Characters of a form for the time of day.
MAX_TIME_FORM = 256


def make_environment() -> "BoundedEnvironment":
    """An environment for templates of one tokenizer."""
    environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    environment.filters = {**BOUNDED_FILTERS, CHARGED_ITEMS: _charge_items}
    environment.tests = dict(BOUNDED_TESTS)
    environment.globals = {
        "cycler": Cycler,
        "dict": dict,
        "joiner": Joiner,
        "namespace": Namespace,
        "raise_exception": Function(_raise_exception),
        "range": Function(_make_range),
        "strftime_now": Function(_tell_time),
    }
    return environment


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, with a short way for what templates do most and what it allows in any case."""

    code_generator_class = ChargingGenerator
    context_class = BoundedContext
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As the sandbox, which asks of every access whether it is safe."""
        kind = type(obj)
        if kind is dict:
            if attribute not in DICT_NAMES:
                return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        elif kind is LoopContext and attribute in LOOP_NAMES:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """As the sandbox, by a key that is quick to hash."""
        if type(argument) is not str and type(argument) is not int:
            if isinstance(argument, tuple):
                raise TypeError("a tuple is no key")
        elif type(obj) is dict:
            if argument in obj:
                return obj[argument]
            if type(argument) is str and argument not in DICT_NAMES:
                return self.undefined(obj=obj, name=argument)
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An operator other than those of texts."""
        return context.budget.calculate(operator, left, right)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A call of a value."""
        return call_value(context.budget, obj, args, kwargs)

    def call_method(self, context: Any, obj: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """A call of `obj.name`."""
        price = find_price(obj, name)
        if price is None:
            return call_value(context.budget, self.getattr(obj, name), args, kwargs)
        return call_method(context.budget, price, getattr(obj, name), *args, **kwargs)


@pass_context
def _charge_items(context: BoundedContext, items: Iterable[Any], steps: int) -> Any:
    return context.budget.each(items, steps)


def _raise_exception(budget: Operators, message: Any) -> None:
    raise jinja2.TemplateError(budget.show(message))


def _make_range(budget: Operators, *bounds: int) -> range:
    del budget
    return jinja2.sandbox.safe_range(*bounds)


def _tell_time(budget: Operators, form: str) -> str:
    del budget
    if len(form) > MAX_TIME_FORM:
        raise LimitExceeded(f"the template exceeds the limit of {MAX_TIME_FORM} characters for a form of the time")
    return datetime.now(tz=UTC).astimezone().strftime(form)
