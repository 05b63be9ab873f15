"""What chat templates may call: methods of texts, lists and dicts, macros, loops and a few functions, all charged.

Whatever is not listed here cannot be called. A price is charged before the call, by what the arguments ask for; a text
that comes back is charged after it, which is enough where it is at most a few times as long as what was given.
"""

from collections.abc import Callable, Mapping, Sequence
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import Undefined
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext, Macro
from jinja2.utils import Cycler, Joiner, Namespace
from markupsafe import Markup

from router.prompt.budget import Stream
from router.prompt.operators import Operators

Price = Callable[..., None]

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


class Function:
    """A function that templates are given: takes the budget, then what they give."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, budget: Operators, *arguments: Any, **named: Any) -> Any:
        """Call it."""
        return self._call(budget, *arguments, **named)


def find_price(owner: object, name: str) -> Price | None:
    """What charges a method of a value; None where it may not be called."""
    return _PRICES.get(type(owner), {}).get(name)


def call_method(budget: Operators, price: Price, method: Any, *arguments: Any, **named: Any) -> Any:
    """Call a listed method, which is bound to its owner."""
    if price is _join:
        arguments = tuple(list(argument) if isinstance(argument, Stream) else argument for argument in arguments)
    price(budget, method.__self__, *arguments, **named)
    result = method(*arguments, **named)
    if isinstance(result, str):
        budget.make(len(result))
    return result


def call_value(budget: Operators, value: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call something that a template got hold of.

    Raises:
        SecurityError: It is not for calling.
    """
    if isinstance(value, Macro):
        budget.spend(1 + len(arguments) + len(named))
        if value.catch_varargs or value.catch_kwargs:
            budget.weave(value)
        return value(*arguments, **named)
    if isinstance(value, Function):
        return value(budget, *arguments, **named)
    if isinstance(value, BuiltinMethodType):
        price = find_price(value.__self__, value.__name__)
        if price is not None:
            return call_method(budget, price, value, *arguments, **named)
    elif isinstance(value, MethodType) and value.__func__ in _BOUND_METHODS:
        budget.search(sum(map(budget.measure, arguments)))
        return value(*arguments, **named)
    elif value is Joiner or isinstance(value, LoopContext | Joiner | Undefined):
        return value(*arguments, **named)
    elif any(value is kind for kind in _CONTAINERS):
        return _make_container(budget, value, arguments, named)
    raise SecurityError(f"a {type(value).__name__} is not for templates to call")


_BOUND_METHODS = (LoopContext.cycle, LoopContext.changed, Cycler.next, Cycler.reset)
_CONTAINERS = (dict, Namespace, Cycler)


def _make_container(budget: Operators, kind: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    budget.weave(kind)
    if kind is not Cycler and arguments and not isinstance(arguments[0], dict):
        # Pairs: their first halves are hashed.
        pairs = [(budget.key(key), value) for key, value in budget.each(arguments[0])]
        return kind(pairs, *arguments[1:], **named)
    budget.spend(sum(len(argument) for argument in arguments if isinstance(argument, dict)))
    return kind(*arguments, **named)


def _search(budget: Operators, owner: str, *_: Any) -> None:
    """One look at the text."""
    budget.search(len(owner))


def _search_for(budget: Operators, owner: str, part: str, *_: Any) -> None:
    budget.search_for(owner, part)


def _search_split(budget: Operators, owner: str, sep: str | None = None, maxsplit: int = -1) -> None:
    del maxsplit
    budget.search_for(owner, sep or "")
    budget.spend(owner.count(sep) if sep else len(owner) // 2)
    budget.make(len(owner))


def _search_backwards(budget: Operators, owner: str, part: Any = None, *_: Any) -> None:
    """Searching from the end can take the product of both lengths."""
    if isinstance(part, str):
        budget.search(len(owner) * len(part))
    _search_split(budget, owner, part)


def _search_lines(budget: Operators, owner: str, keepends: bool = False) -> None:
    del keepends
    budget.spend(sum(map(owner.count, _LINE_ENDS)))
    budget.search(len(_LINE_ENDS) * len(owner))
    budget.make(len(owner))


def _strip(budget: Operators, owner: str, chars: str | None = None) -> None:
    """Each character is looked up among those to be stripped, one after the other."""
    budget.search(len(owner) * (len(chars) if chars else 1))


def _match(budget: Operators, _owner: str, part: Any, *_: Any) -> None:
    """Comparison with one text, or several."""
    budget.search(len(part) if type(part) is str else budget.measure(part))


def _replace(budget: Operators, owner: str, old: str, new: str, count: int = -1) -> None:
    budget.search_for(owner, old)
    found = owner.count(old)
    found = found if count < 0 else min(found, count)
    longer = (6 if isinstance(owner, Markup) else 1) * len(new) - len(old)
    budget.require(len(owner) + found * max(0, longer))


def _join(budget: Operators, owner: str, items: Any) -> None:
    if not isinstance(items, list | tuple | dict | str):
        raise TypeError("only a list can be joined")
    budget.spend(len(items))
    budget.require(len(owner) * len(items) + sum(len(item) for item in items))


def _pad(budget: Operators, owner: str, width: int, *_: Any) -> None:
    budget.require(max(len(owner), width))


def _expand_tabs(budget: Operators, owner: str, tabsize: int = 8) -> None:
    budget.require(len(owner) + owner.count("\t") * tabsize)


def _look_up(budget: Operators, _owner: Any, key: Any, *_: Any) -> None:
    budget.key(key)


def _copy(budget: Operators, owner: Any) -> None:
    budget.spend(len(owner))


def _find_item(budget: Operators, owner: Any, item: Any, *_: Any) -> None:
    budget.spend(len(owner) * budget.count_comparison(item))


_SEARCHES = (
    "upper", "lower", "title", "capitalize", "casefold", "swapcase", "isalnum", "isalpha", "isascii", "isdecimal",
    "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper",
)  # fmt: skip
_OF_TEXT: dict[str, Price] = {
    **dict.fromkeys(_SEARCHES, _search),
    **dict.fromkeys(("find", "index", "count"), _search_for),
    **dict.fromkeys(("rfind", "rindex", "rpartition", "rsplit"), _search_backwards),
    **dict.fromkeys(("strip", "lstrip", "rstrip"), _strip),
    **dict.fromkeys(("startswith", "endswith", "removeprefix", "removesuffix"), _match),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _pad),
    "split": _search_split,
    "partition": _search_split,
    "splitlines": _search_lines,
    "replace": _replace,
    "join": _join,
    "expandtabs": _expand_tabs,
}
_OF_ITEMS: dict[str, Price] = {"index": _find_item, "count": _find_item}
_OF_DICT: dict[str, Price] = {
    "get": _look_up,
    "items": lambda *_: None,
    "keys": lambda *_: None,
    "values": lambda *_: None,
    "copy": _copy,
}
_PRICES: dict[type, dict[str, Price]] = {
    str: _OF_TEXT,
    Markup: _OF_TEXT,
    dict: _OF_DICT,
    list: {**_OF_ITEMS, "copy": _copy},
    tuple: _OF_ITEMS,
}
