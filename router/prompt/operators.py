"""The operators of chat templates, charged: what `+`, `~`, `%`, `==`, `in`, a slice or an output may take.

Generated code calls these where it would have used Python's own. Results are Python's, or a refusal.
"""

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jinja2 import Undefined
from jinja2.runtime import Context
from markupsafe import Markup

from router.prompt.budget import VIEWS, Budget, LimitExceeded

#: Whole numbers beyond this are refused; Python writes out no longer ones anyway.
MAX_INT_BITS = 16_384
#: Widest field and highest precision that a format may ask for.
MAX_FIELD_CHARS = 9_999
#: What escaping makes of one character at most.
ESCAPED_CHARS = 6

_NUMBERS = (int, float, bool)
_SHOWN = (str, Undefined, int, float, bool, type(None), list, tuple, dict, range, *VIEWS)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "gt", "ge", "lt", "le")
}
_AFTER_KEY = re.compile(r"[-#0 +]*(\d*)(?:\.(\d*))?")
#: Longest text and list in a chain of comparisons, or looked for among items that come one by one.
SMALL_ITEMS = 1_024


class Operators(Budget):
    """The operators over one budget."""

    __slots__ = ()

    def join(self, pieces: Sequence[str]) -> str:
        """The text of pieces of text."""
        self.make(sum(map(len, pieces)))
        return "".join(pieces)

    def plus(self, *parts: Any) -> Any:
        """`a + b + ...`, which mostly are texts."""
        try:
            text = "".join(parts)
        except TypeError:
            return self._add_up(parts)
        if self.has_markup:
            return self._add_up(parts)
        self.chars_left -= len(text)
        if self.chars_left < 0:
            self.refill()
        return text

    def tilde(self, *parts: Any) -> str:
        """`a ~ b ~ ...`: the texts of all."""
        try:
            text = "".join(parts)
        except TypeError:
            text = "".join([self.show(part) for part in parts])
        self.chars_left -= len(text)
        if self.chars_left < 0:
            self.refill()
        return text

    def show(self, value: Any) -> str:
        """The text of a value.

        Raises:
            TypeError: It is nothing that a template should write out.
        """
        if type(value) is str:
            return value
        if not isinstance(value, _SHOWN):
            raise TypeError(f"a {type(value).__name__} cannot be written out")
        if self.is_woven:
            self.measure(value)
        text = str(value)
        self.make(len(text))
        self.search(len(text))
        return text

    def weave(self, value: Any) -> Any:
        """A list, tuple or dict that the template wrote."""
        self.is_woven = True
        return value

    def cut(self, value: Any, start: Any = None, stop: Any = None, step: Any = None) -> Any:
        """`value[start:stop:step]`."""
        piece = value[start:stop:step]
        if isinstance(piece, str):
            self.make(len(piece))
        elif isinstance(piece, list | tuple):
            self.spend(len(piece))
        return piece

    def contains(self, container: Any, item: Any) -> bool:
        """`item in container`."""
        if isinstance(container, str):
            if isinstance(item, str):
                self.search_for(container, item)
        elif type(container) is not dict or type(item) is not str:
            if not isinstance(container, list | tuple):
                self.key(item)
            if hasattr(container, "__len__"):
                self.spend(len(container) * self.count_comparison(item))
            else:
                self.small(item)
        return item in container

    def compare(self, name: str, left: Any, right: Any) -> Any:
        """`left == right` and its kin, by their names in `operator`."""
        if type(left) is not int or type(right) is not int:
            self.search(len(left) if isinstance(left, str) else self.measure(left))
        return _COMPARE[name](left, right)

    def small(self, value: Any) -> Any:
        """A value that can be compared at once, as several comparisons in a row need."""
        if isinstance(value, str | list | tuple | dict) and len(value) > SMALL_ITEMS:
            raise TypeError("a long text or list in a chain of comparisons")
        return value if isinstance(value, str) else self.key(value)

    def calculate(self, symbol: str, left: Any, right: Any) -> Any:
        """`left - right`, `*`, `/`, `//`, `%`, `**`, and `+` of two."""
        if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            return _calculate_numbers(symbol, left, right)
        if symbol == "%" and type(left) is str:
            return self.format(left, right)
        if isinstance(left, Undefined) or isinstance(right, Undefined):
            return _CALCULATE[symbol](left, right)
        if symbol == "*":
            return self._repeat(left, right)
        if symbol == "+":
            return self._append(left, right)
        raise TypeError(f"{symbol} of a {type(left).__name__} and a {type(right).__name__}")

    def format(self, form: str, values: Any) -> str:
        """`form % values`."""
        self.spend(len(form))
        fields = list(_iter_fields(form))
        widest = max((width for width in fields), default=0)
        if "*" in form and isinstance(values, tuple):
            widest = max(widest, *(abs(value) for value in values if isinstance(value, int)), 0)
        self.check_field(widest)
        # Each field can show all of what it is given.
        self.require(len(form) + sum(fields) + len(fields) * self.measure(values))
        text: str = form % values
        self.make(len(text))
        return text

    @staticmethod
    def check_field(chars: int) -> None:
        """See that a field is no wider than it may be.

        Raises:
            LimitExceeded: It is.
        """
        if chars > MAX_FIELD_CHARS:
            raise LimitExceeded(f"the template exceeds the limit of {MAX_FIELD_CHARS:,} characters for a field")

    def count_comparison(self, item: Any) -> int:
        """Steps that one comparison with a value can take."""
        if isinstance(item, str):
            return 1 + len(item) // 64
        if not isinstance(item, list | tuple | dict):
            return 1
        before = self.steps_left
        self.measure(item)
        return 1 + max(0, before - self.steps_left)

    def _add_up(self, parts: Sequence[Any]) -> Any:
        total = parts[0]
        for part in parts[1:]:
            total = self.calculate("+", total, part)
        return total

    def _append(self, left: Any, right: Any) -> Any:
        if isinstance(left, str) and isinstance(right, str):
            is_escaped = isinstance(left, Markup) or isinstance(right, Markup)
            self.make((len(left) + len(right)) * (ESCAPED_CHARS if is_escaped else 1))
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            self.spend(len(left) + len(right))
            self.is_woven = True
        else:
            raise TypeError(f"+ of a {type(left).__name__} and a {type(right).__name__}")
        return left + right

    def _repeat(self, left: Any, right: Any) -> Any:
        value, times = (right, left) if isinstance(left, _NUMBERS) else (left, right)
        if not isinstance(value, str | list | tuple) or not isinstance(times, int):
            raise TypeError(f"* of a {type(left).__name__} and a {type(right).__name__}")
        size = len(value) * max(0, times)
        if isinstance(value, str):
            self.make(size)
        else:
            self.spend(size)
            self.is_woven = True
        return value * times


class BoundedContext(Context):
    """The context of one rendering, with its budget."""

    budget: Operators


_CALCULATE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def _calculate_numbers(symbol: str, left: Any, right: Any) -> Any:
    if symbol in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right) if symbol == "**" else left.bit_length() + right.bit_length()
        _check_bits(bits)
    result = _CALCULATE[symbol](left, right)
    if isinstance(result, int):
        _check_bits(result.bit_length())
    return result


def _check_bits(bits: int) -> None:
    if bits > MAX_INT_BITS:
        raise LimitExceeded(f"the template exceeds the limit of {MAX_INT_BITS:,} bits for a whole number")


def _iter_fields(form: str) -> Iterator[int]:
    """Characters that each field of a `%` format asks for, width and precision together, as Python reads them."""
    place = form.find("%")
    while place >= 0:
        place = _skip_key(form, place + 1)
        found = _AFTER_KEY.match(form, place)
        if found is None:
            return
        yield sum(int(digits[:9]) if digits else 0 for digits in found.groups(""))
        place = form.find("%", found.end() + 1)


def _skip_key(form: str, place: int) -> int:
    """The place after a key in parentheses, which may stand within each other."""
    if not form.startswith("(", place):
        return place
    depth = 0
    for end in range(place, len(form)):
        depth += {"(": 1, ")": -1}.get(form[end], 0)
        if depth == 0:
            return end + 1
    return len(form)
