"""What one rendering of a chat template may use: steps and characters, more of both for a larger request.

A step is an element of the template evaluated once in a loop or macro, an item that a filter looks at, or some 64
characters searched. Characters are those of every text that is made, whether it is put out or not. Whatever a
template does is charged here, before where it can take more than a few times what it was given, else right after.
The small base is enough for usual chats; where it is not, the request is measured once and the budget grows with it,
up to a ceiling. A rendering that exceeds it is refused like any other that fails.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from jinja2 import Undefined

#: Characters that are searched or compared for one step.
SEARCHED_PER_STEP = 64
#: Whole numbers beyond this can be chosen to have one hash, which makes a set of them slow.
MAX_KEY_BITS = 60
_COMPARED_PER_PLACE = 16
_STEPS_TO_MEASURE = 4
#: Quotes, a comma, a blank; a short number.
_CHARS_PER_VALUE = 4
_BITS_PER_DIGIT = 3
#: Filters that hand items on, one around another.
MAX_NESTED_STREAMS = 16
_PLAIN_KEYS = (str, int, float, bool, type(None))
_SCALARS = (int, float, bool, type(None), Undefined, range)
#: Types of `keys()`, `values()` and `items()` of a dict.
VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_ITEMS: tuple[Any, ...] = (list, tuple, *VIEWS)
_SIZED = (*_ITEMS, dict, str, range)


class TemplateRefused(ValueError):  # noqa: N818  (a fact about the messages, not a fault)
    """The template raised on these messages; the text says what it said."""


class LimitExceeded(TemplateRefused):
    """The template asked for more than a rendering may use; the text names the limit."""


class Limits(msgspec.Struct, frozen=True):
    """How much one rendering may use."""

    #: Whatever the request: some 0.1 s.
    steps: int = 1_000_000
    #: For every value in the request; a message has three or more.
    steps_per_item: int = 2_000
    #: For every character in it.
    steps_per_char: int = 8
    #: Whatever the request: some seconds.
    most_steps: int = 64_000_000
    #: Characters made, whatever the request.
    chars: int = 4 << 20
    #: For every character in the request.
    chars_per_char: int = 16
    #: Whatever the request.
    most_chars: int = 256 << 20


class Stream:
    """Items that a filter hands on one by one; true, without a length, read once, as a generator is."""

    __slots__ = ("_items", "depth")

    def __init__(self, items: Iterator[Any], source: object) -> None:
        self._items = items
        self.depth: int = source.depth + 1 if isinstance(source, Stream) else 0
        if self.depth > MAX_NESTED_STREAMS:
            raise LimitExceeded(f"the template exceeds the limit of {MAX_NESTED_STREAMS} filters within each other")

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Any:
        return next(self._items)


class Budget:
    """What is left for one rendering. Belongs to one thread."""

    __slots__ = ("_limits", "_request", "chars_left", "has_markup", "is_woven", "steps_left")

    def __init__(self, limits: Limits, request: object = ()) -> None:
        """Start with the base.

        Args:
            limits: What may be used.
            request: The values that the template is given, for the case that the base is not enough.
        """
        self._limits = limits
        self._request: object = request
        self.steps_left = limits.steps
        self.chars_left = limits.chars
        #: Whether the template made lists or dicts, so that a value can be larger written out than in memory.
        self.is_woven = False
        #: Whether it marked text as safe, which then escapes what is added to it.
        self.has_markup = False

    def spend(self, steps: int) -> None:
        """Charge steps.

        Raises:
            LimitExceeded: There are not that many left.
        """
        self.steps_left -= steps
        if self.steps_left < 0:
            self.refill()

    def make(self, chars: int) -> None:
        """Charge a text of so many characters.

        Raises:
            LimitExceeded: There are not that many left.
        """
        self.chars_left -= chars
        if self.chars_left < 0:
            self.refill()

    def require(self, chars: int) -> None:
        """See that so many characters could be made, without charging them.

        Raises:
            LimitExceeded: They could not.
        """
        self.make(chars)
        self.chars_left += chars

    def search(self, chars: int) -> None:
        """Charge a look at so many characters."""
        self.spend(chars // SEARCHED_PER_STEP)

    def search_for(self, text: str, part: str) -> None:
        """Charge a search for a text in another, which in the worst case compares several characters at each place."""
        self.spend(len(text) * min(len(part) or 1, _COMPARED_PER_PLACE) // SEARCHED_PER_STEP)

    def refill(self) -> None:
        """Give what the size of the request allows, once.

        Raises:
            LimitExceeded: That is not enough, or was given before.
        """
        limits, request = self._limits, self._request
        self._request = None
        if request is not None:
            items, chars = _weigh(request)
            more = limits.steps_per_item * items + limits.steps_per_char * chars
            self.steps_left += max(0, min(more, limits.most_steps - limits.steps))
            self.chars_left += max(0, min(limits.chars_per_char * chars, limits.most_chars - limits.chars))
        if self.steps_left < 0:
            raise LimitExceeded(f"the template exceeds the limit of {_tell(limits.steps, limits.most_steps)} steps")
        if self.chars_left < 0:
            raise LimitExceeded(
                f"the template exceeds the limit of {_tell(limits.chars, limits.most_chars)} characters"
            )

    def each(self, items: Any, steps: int = 1) -> Any:
        """An iterable whose items are charged, all at once where it has a length."""
        if type(items) in _SIZED:
            self.spend(steps * len(items))
            return items
        return self._each(items, steps)

    def _each(self, items: Iterable[Any], steps: int) -> Iterator[Any]:
        for item in items:
            self.spend(steps)
            yield item

    def key(self, value: Any) -> Any:
        """A value that may be looked up or sorted by: text, a number, a truth value or none.

        Raises:
            TypeError: It is something else, whose comparison or hash could take long.
        """
        if isinstance(value, str):
            self.search(len(value))
        elif type(value) not in _PLAIN_KEYS and isinstance(value, Iterable):
            raise TypeError(f"a {type(value).__name__} is no key")
        elif isinstance(value, int) and value.bit_length() > MAX_KEY_BITS:
            raise TypeError("a whole number this large is no key")
        return value

    def measure(self, value: Any) -> int:
        """Charge every value in a value as often as it stands in it.

        Returns:
            Characters that it takes written out, nearly; they are not charged.

        Raises:
            LimitExceeded: There are not that many steps or characters left.
            TypeError: There is something else than data in it.
        """
        chars = 0
        left = [value]
        while left:
            one: Any = left.pop()
            if isinstance(one, str):
                chars += len(one)
            elif isinstance(one, dict):
                self.spend(2 * _STEPS_TO_MEASURE * len(one))
                left += one.keys()
                left += one.values()
            elif isinstance(one, _ITEMS):
                self.spend(_STEPS_TO_MEASURE * len(one))
                left += one
            elif isinstance(one, int):
                chars += one.bit_length() // _BITS_PER_DIGIT
            elif not isinstance(one, _SCALARS):
                raise TypeError(f"a {type(one).__name__} is no value")
            chars += _CHARS_PER_VALUE
            if chars > self.chars_left:
                self.require(chars)
        return chars


def _weigh(value: object) -> tuple[int, int]:
    """Values in a value and characters of its texts; a request is a tree, so that each is met once."""
    items = chars = 0
    left = [value]
    while left:
        one = left.pop()
        items += 1
        if isinstance(one, str):
            chars += len(one)
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
    return items, chars


def _tell(base: int, most: int) -> str:
    return f"{base:,} (more for a larger request, {most:,} at most)"
