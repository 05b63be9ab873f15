"""Events of a stream that differ in one text alone, told at a glance, in a worker's own framing or without. Pure.

What a model generates token by token comes in events that are equal but for the token. Once one was read with all that
is in it, the next ones need no reading: the same bytes before and behind, and between them no quote that could end the
text and begin another field. Looked for by the native module where it was built (`router/proxy/event_text`), which does
what `Alike` does here.
Source: RFC 8259 section 7; RFC 9112 section 7.1.
"""

import re
from importlib import import_module

#: Fields in which engines stream text, up to where it begins, and the text. Behind a name and a colon a quote opens.
_TEXT = re.compile(rb'"(?:content|reasoning_content|reasoning|text)": ?"([^"\\]+)"')
_BACKSLASH = ord("\\")
#: Chunks longer than this are left to the parser, as is framing that is not plain: capitals, zeros, extensions.
MAX_CHUNK_BYTES = 4_096
_SIZES = {b"%x" % size: size for size in range(1, MAX_CHUNK_BYTES + 1)}
_MAX_SIZE_LINE_BYTES = 6


class Alike:
    """What stands before and behind the text of such events."""

    __slots__ = ("_before", "_before_bytes", "_behind", "_behind_bytes")

    def __init__(self, before: bytes, behind: bytes) -> None:
        self._before = before
        self._behind = behind
        self._before_bytes = len(before)
        self._behind_bytes = len(behind)

    def fits(self, data: bytes, start: int, end: int) -> bool:
        """Whether one such event is all that stands there."""
        text, behind = start + self._before_bytes, end - self._behind_bytes
        return (
            text <= behind
            and data.startswith(self._before, start)
            and data.startswith(self._behind, behind)
            and data.find(b'"', text, behind) < 0
            and data[behind - 1] != _BACKSLASH
        )

    def count_chunks(self, data: bytes) -> int:
        """Chunks of HTTP/1.1 there are, of one such event each; 0 where something else is among them."""
        start = count = 0
        while start < len(data):
            line_end = data.find(b"\r\n", start, start + _MAX_SIZE_LINE_BYTES)
            size = _SIZES.get(data[start:line_end])
            if line_end < 0 or size is None:
                return 0
            start = line_end + 2
            end = start + size
            if not self.fits(data, start, end) or not data.startswith(b"\r\n", end):
                return 0
            start = end + 2
            count += 1
        return count


_make: type[Alike]
try:
    _make = import_module("router.proxy._event_text").Alike
except ImportError:
    _make = Alike


def glance_available() -> bool:
    """True when the compiled module was built and loads."""
    return _make is not Alike


def learn(event: bytes) -> Alike | None:
    """The form of an event that is output and nothing else; None where its text is not found."""
    text = _TEXT.search(event)
    return None if text is None else _make(event[: text.start(1)], event[text.end(1) :])
