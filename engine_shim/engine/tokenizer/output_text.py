"""Text of a growing answer: ids in one by one, whole characters out, stop strings cut off. Pure.

A character whose bytes are spread over several tokens comes out with its last byte. Text that may
be the start of a stop string is held back until it is known not to be.
"""

import codecs
from collections.abc import Sequence

import msgspec


class TextPiece(msgspec.Struct, frozen=True):
    """What one more token added."""

    #: New text, safe to send.
    text: str
    #: Stop string that ended the answer with this token; None while it goes on.
    stop: str | None = None


class OutputText:
    """Incremental detokenizer of one answer."""

    def __init__(self, token_bytes: Sequence[bytes | None], stops: Sequence[str] = ()) -> None:
        self._token_bytes = token_bytes
        self._stops = tuple(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, token_id: int) -> TextPiece:
        """Take one token; special tokens add no text."""
        return self._match(self._decoder.decode(self._token_bytes[token_id] or b""))

    def finish(self) -> TextPiece:
        """What is left when no further token comes: held text, and U+FFFD for a character cut short."""
        piece = self._match(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return piece if piece.stop is not None else TextPiece(piece.text + held)

    def _match(self, new_text: str) -> TextPiece:
        text = self._held + new_text
        found = [(position, stop) for stop in self._stops if (position := text.find(stop)) >= 0]
        if found:
            position, stop = min(found, key=lambda hit: hit[0])
            self._held = ""
            return TextPiece(text[:position], stop)
        held_chars = max((_started_chars(text, stop) for stop in self._stops), default=0)
        cut = len(text) - held_chars
        self._held = text[cut:]
        return TextPiece(text[:cut])


def _started_chars(text: str, stop: str) -> int:
    """Length of the longest end of `text` that a stop string begins with, the whole string excluded."""
    longest = min(len(stop) - 1, len(text))
    return next((chars for chars in range(longest, 0, -1) if text.endswith(stop[:chars])), 0)
