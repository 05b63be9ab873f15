"""How a value of a configuration is shown in an error: in part where it is huge, and without what may be secret.

A secret stands in the wrong place more often than in the right one: a mapping where a list was due is shown whole, with
the keys of its workers in it, and so is an address with a password where a section was due.
"""

import re
from reprlib import Repr
from typing import Any

#: Longest value shown.
MAX_VALUE_CHARS = 200
_HIDDEN = "(not shown)"
#: Keys whose wrong values are not shown: they may be secrets, right or in the wrong place.
_SECRET_KEY = re.compile(r"key|secret|password|token(?!ize|s)|authorization|\baccess\b|__access__", re.IGNORECASE)
#: User and password of an address.
_USER = re.compile(r"(?<=://)[^/\s]*@")


def may_be_secret(name: str) -> bool:
    """Whether the value at a key path or of a variable is not to be shown."""
    return _SECRET_KEY.search(name) is not None


class _Shown(Repr):
    """Shows no more of a value than it takes to find it."""

    def __init__(self) -> None:
        super().__init__()
        # A configuration may hold a value that is huge, or expands to one.
        self.maxstring = self.maxother = self.maxlong = MAX_VALUE_CHARS
        self.maxlevel = 3

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """See reprlib."""
        return super().repr_dict({key: _HIDDEN if may_be_secret(str(key)) else x[key] for key in x}, level)

    def repr_str(self, x: str, level: int) -> str:
        """See reprlib."""
        return super().repr_str(_USER.sub(f"{_HIDDEN}@", x), level)


_SHOWN = _Shown()


def show_value(value: object) -> str:
    """A value, in at most `MAX_VALUE_CHARS`."""
    return _SHOWN.repr(value)[:MAX_VALUE_CHARS]
