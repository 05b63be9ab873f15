"""Failures of the tokenizer libraries as values that can be handled.

Both are Rust. Where one of them gives up it raises `PanicException`, which is no `Exception`: it would pass every
handler there is and end the thread or the loop it comes up in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class LibraryFailed(ValueError):  # noqa: N818  (a fact about a text or a file)
    """The library raised something of its own, or gave up; the text says what it said."""


@contextmanager
def as_value_error() -> Iterator[None]:
    """Turn what a tokenizer library raises into `LibraryFailed`; text without a UTF-8 form stays what it is.

    Raises:
        LibraryFailed: It did.
        UnicodeEncodeError: Text has lone surrogates.
    """
    try:
        yield
    except BaseException as error:  # noqa: BLE001  (passed on unless it is the library's)
        pass_on(error)


def pass_on(error: BaseException) -> NoReturn:
    """Raise what a tokenizer library raised, as `as_value_error` does."""
    if isinstance(error, UnicodeEncodeError) or not (isinstance(error, Exception) or _is_panic(error)):
        raise error
    raise LibraryFailed(str(error) or type(error).__name__) from error


def _is_panic(error: BaseException) -> bool:
    # The class cannot be imported: each library has one of its own.
    return type(error).__name__ == "PanicException"
