"""Trace files line by line, plain or xz, with limits; every complaint names file and line.

A trace is data of others: anything can be wrong with it. What comes out is a pair of line number and
bytes; a broken file ends in `TraceError`, never in a half-read session.
"""

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

#: Longest line accepted, bytes: the largest session of the public corpora takes 4 MiB.
MAX_LINE_BYTES = 64 << 20

T = TypeVar("T")


class TraceError(ValueError):
    """A trace file that cannot be used: which one, which line, what was expected."""

    def __init__(self, path: Path, line_number: int | None, complaint: str) -> None:
        where = f"{path}" if line_number is None else f"{path}, line {line_number}"
        super().__init__(f"{where}: {complaint}")
        self.line_number = line_number


class Line(msgspec.Struct, frozen=True):
    """One line of a trace and where it stands."""

    path: Path
    number: int
    data: bytes

    def decode(self, form: type[T], expected: str) -> T:
        """The line as `form`.

        Raises:
            TraceError: It is not JSON, or not of that form; the message says what was expected.
        """
        try:
            return msgspec.json.decode(self.data, type=form)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise TraceError(self.path, self.number, f"{error}; expected {expected}") from error


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a .jsonl or .jsonl.xz file that are not empty, streamed.

    Raises:
        TraceError: The file is missing, is not readable, is no valid xz, or a line is over the limit.
    """
    try:
        with _open(path) as stream:
            yield from _numbered(path, stream)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise TraceError(path, None, f"cannot be read ({error}); expected a .jsonl or .jsonl.xz file") from error


def _open(path: Path) -> IO[bytes]:
    return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")


def _numbered(path: Path, stream: IO[bytes]) -> Iterator[Line]:
    number = 0
    while data := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(data) > MAX_LINE_BYTES:
            raise TraceError(path, number, f"the line is longer than {MAX_LINE_BYTES} bytes")
        if data.strip():
            yield Line(path, number, data)
