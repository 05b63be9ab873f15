"""Standard output whose end is an event and no error: `dovecote demo | head` must still stop what it started."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO


class Output:
    """A text stream that can be written to on every way out of the demo.

    The first write that fails (nobody reads any more, no space left) calls `on_closed`, at most once and in the
    thread that wrote; whatever is written from then on goes nowhere.

    Args:
        stream: Where to write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_closed = False
        #: Called when the stream has failed.
        self.on_closed: Callable[[], object] | None = None

    @property
    def encoding(self) -> str:
        """Of the stream."""
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        """Whether a terminal shows it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Descriptor of the stream."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write what can be written."""
        if not self._is_closed:
            try:
                self._stream.write(text)
            except OSError:
                self._close()
        return len(text)

    def flush(self) -> None:
        """Hand on what is buffered."""
        if not self._is_closed:
            try:
                self._stream.flush()
            except OSError:
                self._close()

    def _close(self) -> None:
        self._is_closed = True
        _discard(self._stream)
        if self.on_closed is not None:
            self.on_closed()


def _discard(stream: TextIO) -> None:
    """Let the stream end nowhere, so that what its buffer still holds fails no flush at exit."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
