"""The filters that chat templates have, charged; those not listed do not exist for them.

Where what jinja's own filter does cannot cost much more than it was given, that one runs behind a price. Filters of
HTML, chance and debugging are left out. `tojson` writes what templates were trained on: `, ` and `: ` between, no
HTML escapes.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from jinja2 import Undefined, pass_context
from jinja2.filters import FILTERS, ignore_case, make_attrgetter, make_multi_attrgetter
from markupsafe import Markup, escape

from router.prompt.budget import SEARCHED_PER_STEP, LimitExceeded, Stream
from router.prompt.methods import call_method, find_price
from router.prompt.operators import BoundedContext, Operators

#: Digits of a text that is to be a number.
MAX_DIGITS = 4_300
#: Blanks that JSON may be indented by.
MAX_INDENT = 16
#: Characters of an attribute's path.
MAX_ATTRIBUTE = 128
#: Places that a number may be rounded to.
MAX_PLACES = 300
_STEPS_PER_ITEM = 4
_PIECES_AT_ONCE = 128
_JSON = json.JSONEncoder(ensure_ascii=False)


@pass_context
def _tojson(
    context: BoundedContext, value: Any, indent: int | str | None = None, *, ensure_ascii: bool = False,
    separators: Sequence[str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    """JSON of a value, as a text that is not marked safe."""
    budget = context.budget
    if budget.is_woven:
        budget.measure(value)
    if indent is None:
        encoder = _JSON
        if ensure_ascii or separators or sort_keys:
            encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, separators=_pair(separators), sort_keys=sort_keys)
        text = encoder.encode(value)
        budget.make(len(text))
        budget.search(len(text))
        return text
    if (len(indent) if isinstance(indent, str) else indent) > MAX_INDENT:
        raise LimitExceeded(f"the template exceeds the limit of {MAX_INDENT} blanks to indent JSON by")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, separators=_pair(separators), sort_keys=sort_keys, indent=indent
    )
    return "".join(_charge_pieces(budget, encoder.iterencode(value)))


def _pair(separators: Sequence[str] | None) -> tuple[str, str] | None:
    if separators is None:
        return None
    between, after = separators
    if len(between) > MAX_INDENT or len(after) > MAX_INDENT:
        raise LimitExceeded(f"the template exceeds the limit of {MAX_INDENT} characters between values of JSON")
    return between, after


def _charge_pieces(budget: Operators, pieces: Iterator[str]) -> Iterator[str]:
    """Pieces of a text that is made bit by bit; each is a value, or a line's end and its blanks."""
    while block := list(islice(pieces, _PIECES_AT_ONCE)):
        budget.spend(len(block))
        budget.make(sum(map(len, block)))
        yield from block


def _of_text(name: str) -> Callable[..., Any]:
    """A filter that is a method of texts."""

    @pass_context
    def call(context: BoundedContext, value: Any, *arguments: Any, **named: Any) -> Any:
        budget = context.budget
        text = value if isinstance(value, str) else budget.show(value)
        price = find_price(text, name)
        if price is None:
            raise TypeError(f"{name} of a {type(text).__name__}")
        return call_method(budget, price, getattr(text, name), *arguments, **named)

    return call


_strip = _of_text("strip")


@pass_context
def _trim(context: BoundedContext, value: Any, chars: str | None = None) -> Any:
    if type(value) is not str or chars is not None:
        return _strip(context, value, chars)
    text = value.strip()
    budget = context.budget
    budget.steps_left -= len(value) // SEARCHED_PER_STEP
    budget.chars_left -= len(text)
    if budget.chars_left < 0 or budget.steps_left < 0:
        budget.refill()
    return text


@pass_context
def _center(context: BoundedContext, value: Any, width: int = 80) -> Any:
    return _of_text("center")(context, value, width)


@pass_context
def _title(context: BoundedContext, value: Any) -> str:
    text = context.budget.show(value)
    context.budget.spend(len(text) // 2)
    context.budget.make(len(text))
    title: str = FILTERS["title"](text)
    return title


@pass_context
def _replace(context: BoundedContext, value: Any, old: Any, new: Any, count: int | None = None) -> Any:
    budget = context.budget
    texts = [budget.show(each) for each in (value, old, new)]
    return _of_text("replace")(context, *texts, -1 if count is None else count)


@pass_context
def _join(context: BoundedContext, value: Any, d: Any = "", attribute: Any = None) -> str:
    budget = context.budget
    items = budget.each(value, _steps_per_item(attribute))
    if attribute is not None:
        items = map(make_attrgetter(context.environment, attribute), items)
    between = budget.show(d)
    texts = [budget.show(item) for item in items]
    budget.make(len(between) * len(texts) + sum(map(len, texts)))
    return between.join(texts)


@pass_context
def _indent(context: BoundedContext, s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    if not isinstance(s, str):
        raise TypeError("only a text can be indented")
    budget = context.budget
    lines = s.count("\n") + sum(map(s.count, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")) + 1
    budget.spend(lines)
    budget.make(2 * len(s) + lines * (1 + (len(width) if isinstance(width, str) else max(0, width))))
    indented: str = FILTERS["indent"](s, width, first, blank)
    return indented


@pass_context
def _format(context: BoundedContext, value: Any, *arguments: Any, **named: Any) -> str:
    if arguments and named:
        raise TypeError("a format takes values by place or by name, not both")
    form = context.budget.show(value)
    context.budget.weave(None)
    return context.budget.format(form, named or arguments)


@pass_context
def _truncate(context: BoundedContext, s: str, *arguments: Any, **named: Any) -> str:
    if not isinstance(s, str):
        raise TypeError("only a text can be truncated")
    context.budget.search(len(s))
    context.budget.make(len(s))
    truncated: str = FILTERS["truncate"](context.environment, s, *arguments, **named)
    return truncated


@pass_context
def _safe(context: BoundedContext, value: Any) -> Markup:
    context.budget.has_markup = True
    return Markup(context.budget.show(value))  # noqa: S704  (text for a model, not for a browser)


@pass_context
def _escape(context: BoundedContext, value: Any) -> Markup:
    if isinstance(value, Markup):
        return value
    context.budget.has_markup = True
    text = escape(context.budget.show(value))
    context.budget.make(len(text))
    return text


@pass_context
def _string(context: BoundedContext, value: Any) -> str:
    return value if isinstance(value, str) else context.budget.show(value)


@pass_context
def _list(context: BoundedContext, value: Any) -> list[Any]:
    return list(context.budget.each(value))


@pass_context
def _reverse(context: BoundedContext, value: Any) -> Any:
    if isinstance(value, str):
        return context.budget.cut(value, step=-1)
    if isinstance(value, list | tuple | dict | range):
        return Stream(iter(context.budget.each(list(reversed(value)))), None)
    items = list(context.budget.each(value))
    items.reverse()
    return items


def _steps_per_item(attribute: object) -> int:
    """Steps of reading an attribute, which may be a path, from one item."""
    if not isinstance(attribute, str):
        return _STEPS_PER_ITEM
    if len(attribute) > MAX_ATTRIBUTE:
        raise LimitExceeded(f"the template exceeds the limit of {MAX_ATTRIBUTE} characters for an attribute")
    return _STEPS_PER_ITEM + len(attribute) // 2


def _streamed(name: str) -> Callable[..., Any]:
    """A filter that hands items on one by one."""
    #: Place of the name of a filter or test among the arguments.
    named_at = 1 if name.endswith("attr") else 0

    @pass_context
    def call(context: BoundedContext, value: Any, *arguments: Any, **named: Any) -> Stream:
        budget = context.budget
        # A default or a filter's result can stand at every place.
        budget.is_woven = budget.is_woven or name == "map"
        budget.key(arguments[named_at] if len(arguments) > named_at else None)
        steps = _steps_per_item(arguments[0] if arguments else named.get("attribute"))
        items = budget.each(value, steps) if value else ()
        return Stream(iter(FILTERS[name](context, items, *arguments, **named)), value)

    return call


@pass_context
def _items(context: BoundedContext, value: Any) -> Stream:
    if isinstance(value, Undefined):
        return Stream(iter(()), None)
    if not isinstance(value, Mapping):
        raise TypeError("only of a dict there are items")
    return Stream(iter(context.budget.each(value.items())), None)


@pass_context
def _unique(
    context: BoundedContext, value: Any, case_sensitive: bool = False, attribute: str | int | None = None
) -> Stream:
    environment, budget = context.environment, context.budget
    read = make_attrgetter(environment, attribute, postprocess=None if case_sensitive else ignore_case)

    def iterate() -> Iterator[Any]:
        seen = set()
        for item in budget.each(value, _steps_per_item(attribute)):
            key = budget.key(read(item))
            if key not in seen:
                seen.add(key)
                yield item

    return Stream(iterate(), value)


def _charge_order(budget: Operators, items: Sequence[Any], read: Callable[[Any], Sequence[Any]], steps: int) -> None:
    """Charge the comparisons of a sort, or of a search for the largest."""
    rounds = 1 + len(items).bit_length()
    budget.spend(steps * rounds * len(items))
    for item in items:
        for key in read(item):
            budget.search(rounds * len(key) if isinstance(budget.key(key), str) else 0)


@pass_context
def _sort(
    context: BoundedContext, value: Any, reverse: bool = False, case_sensitive: bool = False,
    attribute: str | int | None = None,
) -> list[Any]:  # fmt: skip
    items = list(context.budget.each(value))
    steps = _steps_per_item(attribute)
    _charge_order(context.budget, items, make_multi_attrgetter(context.environment, attribute), steps)
    ordered: list[Any] = FILTERS["sort"](context.environment, items, reverse, case_sensitive, attribute)
    return ordered


@pass_context
def _dictsort(
    context: BoundedContext, value: Any, case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> list[Any]:
    pairs = list(context.budget.each(value.items()))
    _charge_order(context.budget, pairs, lambda pair: (pair[by == "value"],), _STEPS_PER_ITEM)
    ordered: list[Any] = FILTERS["dictsort"](value, case_sensitive, by, reverse)
    return ordered


def _extreme(name: str) -> Callable[..., Any]:
    """The smallest or the largest."""

    @pass_context
    def call(
        context: BoundedContext, value: Any, case_sensitive: bool = False, attribute: str | int | None = None
    ) -> Any:
        items = list(context.budget.each(value))
        steps = _steps_per_item(attribute)
        read = make_attrgetter(context.environment, attribute)
        _charge_order(context.budget, items, lambda item: (read(item),), steps)
        return FILTERS[name](context.environment, items, case_sensitive, attribute)

    return call


@pass_context
def _sum(context: BoundedContext, iterable: Any, attribute: str | int | None = None, start: Any = 0) -> Any:
    read = make_attrgetter(context.environment, attribute)
    total = start
    for item in context.budget.each(iterable, _steps_per_item(attribute)):
        total = context.budget.calculate("+", total, read(item) if attribute is not None else item)
    return total


@pass_context
def _int(context: BoundedContext, value: Any, default: Any = 0, base: int = 10) -> Any:
    _check_digits(value)
    del context
    return FILTERS["int"](value, default, base)


@pass_context
def _float(context: BoundedContext, value: Any, default: Any = 0.0) -> Any:
    _check_digits(value)
    del context
    return FILTERS["float"](value, default)


@pass_context
def _round(context: BoundedContext, value: Any, precision: int = 0, method: str = "common") -> Any:
    del context
    if abs(precision) > MAX_PLACES:
        raise LimitExceeded(f"the template exceeds the limit of {MAX_PLACES} places to round to")
    return FILTERS["round"](value, precision, method)


def _check_digits(value: object) -> None:
    if isinstance(value, str) and len(value) > MAX_DIGITS:
        raise LimitExceeded(f"the template exceeds the limit of {MAX_DIGITS:,} digits")


_AS_THEY_ARE = ("abs", "attr", "count", "d", "default", "first", "last", "length")
BOUNDED_FILTERS: dict[str, Callable[..., Any]] = {
    **{name: FILTERS[name] for name in _AS_THEY_ARE},
    **{name: _of_text(name) for name in ("capitalize", "lower", "upper")},
    **{name: _streamed(name) for name in ("map", "reject", "rejectattr", "select", "selectattr")},
    **dict.fromkeys(("e", "escape"), _escape),
    "center": _center,
    "dictsort": _dictsort,
    "float": _float,
    "format": _format,
    "indent": _indent,
    "int": _int,
    "items": _items,
    "join": _join,
    "list": _list,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": _safe,
    "sort": _sort,
    "string": _string,
    "sum": _sum,
    "title": _title,
    "tojson": _tojson,
    "trim": _trim,
    "truncate": _truncate,
    "unique": _unique,
}
