"""What `router/proxy/header_lines` does, in Python: its oracle, and what serves where nothing was compiled. Pure.

Source: as there.
"""

from collections.abc import Iterable, Mapping

Lines = list[tuple[bytes, bytes]]


def find(lines: Lines, name: bytes) -> bytes | None:
    """First value of a line, None where there is none."""
    for key, value in lines:
        if key == name:
            return value
    return None


def read_framing(lines: Lines) -> tuple[int, int, int, int, bool, bool]:
    """See `framing.read_framing`, which judges these.

    Returns:
        How often a length, a host, a coding and one other than chunks stand there; whether the client waits for a word
        before its body; whether a value goes on over the end of its line.
    """
    lengths = hosts = codings = other_codings = 0
    expects_continue = is_torn = False
    for name, value in lines:
        if name == b"content-length":
            lengths += 1
        elif name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings += 1
            other_codings += value.strip().lower() != b"chunked"
        elif name == b"expect":
            expects_continue = value.lower() == b"100-continue"
        is_torn = is_torn or b"\n" in value or b"\r" in value or b"\0" in value
    return lengths, hosts, codings, other_codings, expects_continue, is_torn


def join(start: bytes, lines: Lines, body: bytes) -> bytes:
    """A message: its first line, header lines and body.

    Raises:
        ValueError: A part of a header line would end it.
    """
    texts = [b": ".join(line) for line in lines]
    if any(b"\n" in text or b"\r" in text for text in texts):
        raise ValueError("a header line has a line end in it")
    return b"%b\r\n\r\n%b" % (b"\r\n".join((start, *texts)), body)


class LineFilter:
    """Which lines cross from one hop to the next."""

    def __init__(self, left_out: Iterable[bytes], prefix: bytes, added: Lines) -> None:
        """Take the rules.

        Args:
            left_out: Names that end here, in lower case.
            prefix: So begin names that end here; empty for none.
            added: Lines that are added to all heads.
        """
        self._left_out = frozenset(left_out)
        self._prefix = prefix
        self._added = list(added)

    def keep(self, lines: Lines, own: Mapping[bytes, bytes]) -> Lines:
        """Lines as received less what ends here, what `connection` names and what is named alike in `own`; then own."""
        lowered = [(name.lower(), value) for name, value in lines]
        named = {word.strip().lower() for name, said in lowered if name == b"connection" for word in said.split(b",")}
        kept = [
            (name, value)
            for name, value in lowered
            if name not in self._left_out
            and name not in named
            and name not in own
            and not (self._prefix and name.startswith(self._prefix))
        ]
        return [*kept, *self._added, *own.items()]


class LineReader:
    """Takes the lines of one head after the other from a parser, within limits."""

    def __init__(self, max_lines: int, max_bytes: int) -> None:
        """Take the limits: lines, and bytes of names and values in all."""
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines: Lines = []
        self._size_bytes = 0
        self._is_open = self._is_too_large = False

    def begin(self) -> None:
        """A head begins."""
        self._lines, self._size_bytes = [], 0
        self._is_open, self._is_too_large = True, False

    def count(self, size_bytes: int) -> None:
        """Something else of the head came."""
        if size_bytes > self._max_bytes - self._size_bytes:
            self._is_too_large = True
        else:
            self._size_bytes += size_bytes

    def add(self, name: bytes, value: bytes) -> None:
        """A line came; trailers come so too, and are dropped."""
        if not self._is_open or self._is_too_large:
            return
        self.count(len(name) + len(value))
        self._is_too_large = self._is_too_large or len(self._lines) == self._max_lines
        if not self._is_too_large:
            self._lines.append((name.lower(), value))

    def take(self) -> Lines | None:
        """The head is complete: its lines, names in lower case; None where it is larger than may be."""
        if self._is_too_large:
            return None
        self._is_open = False
        lines, self._lines = self._lines, []
        return lines
