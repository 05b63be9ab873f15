"""Which header lines cross the router, in either direction. Pure.

Hop-by-hop lines stay on their hop, lengths are the router's to say, and a client cannot name a rank or reach
into an engine's internals: those lines are the router's alone. What is done to every line is done by the fastest code
that was built: the native module (`router/proxy/header_lines`), else `plain_lines`; both give the same.
Source: RFC 9110 section 7.6.1; SGLang `srt/entrypoints/request_headers.py` for its override lines.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType

from router.errors import DovecoteError
from router.proxy import plain_lines
from router.proxy.plain_lines import LineFilter, LineReader

Headers = list[tuple[bytes, bytes]]

_lines: ModuleType
try:
    _lines = import_module("router.proxy._header_lines")
except ImportError:
    _lines = plain_lines

_HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
#: Lines of a request that the router writes itself or that end here.
_REQUEST_OWN = frozenset(
    {
        b"host", b"content-length", b"content-encoding", b"accept-encoding", b"expect", b"x-data-parallel-rank",
        b"x-request-id",
    }
)  # fmt: skip
_REQUEST_LEFT_OUT = _HOP_BY_HOP | _REQUEST_OWN
#: SGLang obeys lines of this prefix as if they were body fields: rank, bootstrap room, priority.
_OVERRIDE_PREFIX = b"x-override-"
#: Lines of an answer that the router writes itself.
_RESPONSE_OWN = frozenset({b"content-length", b"date", b"server", b"x-request-id"})
_RESPONSE_LEFT_OUT = _HOP_BY_HOP | _RESPONSE_OWN

#: Most header lines of a request or an answer, and most bytes in all of them.
MAX_HEADER_LINES = 256
MAX_HEADER_BYTES = 64 << 10


class HeadersTooLargeError(DovecoteError):
    """The request has more header lines or bytes than the router keeps."""

    status_code = 431
    error_type = "invalid_request_error"
    code = "headers_too_large"


def check_header_size(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise where a request's header lines are too many or too long.

    Raises:
        HeadersTooLargeError: Above `MAX_HEADER_LINES` or `MAX_HEADER_BYTES`.
    """
    sizes_bytes = [len(name) + len(value) for name, value in headers]
    lines, size_bytes = len(sizes_bytes), sum(sizes_bytes)
    if lines > MAX_HEADER_LINES or size_bytes > MAX_HEADER_BYTES:
        raise HeadersTooLargeError(
            f"{lines} header lines of {size_bytes} bytes; at most {MAX_HEADER_LINES} of {MAX_HEADER_BYTES} are taken"
        )


_REQUEST_FILTER: LineFilter = _lines.LineFilter(
    _REQUEST_LEFT_OUT, _OVERRIDE_PREFIX, [(b"accept-encoding", b"identity")]
)
_RESPONSE_FILTER: LineFilter = _lines.LineFilter(_RESPONSE_LEFT_OUT, b"", [])

#: Lines for the worker: the client's, less what ends here, then the router's own; of these nothing stands twice.
request_headers: Callable[[Headers, Mapping[bytes, bytes]], Headers] = _REQUEST_FILTER.keep
#: Lines for the client: the worker's, in the same way.
response_headers: Callable[[Headers, Mapping[bytes, bytes]], Headers] = _RESPONSE_FILTER.keep
#: First value of a line, None where there is none; names are in lower case wherever lines come from.
find_header: Callable[[Headers, bytes], bytes | None] = _lines.find
#: See `plain_lines.read_framing`.
tell_framing: Callable[[Headers], tuple[int, int, int, int, bool, bool]] = _lines.read_framing
#: A message of a first line, header lines and a body; raises ValueError where a part of a line would end it.
encode_message: Callable[[bytes, Headers, bytes], bytes] = _lines.join


def lines_available() -> bool:
    """True when the compiled module was built and loads."""
    return _lines is not plain_lines


def make_reader() -> LineReader:
    """What takes the lines of heads from a parser, no more and no longer ones than are taken."""
    reader: LineReader = _lines.LineReader(MAX_HEADER_LINES, MAX_HEADER_BYTES)
    return reader


def text_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Lines as text, for those who look for a session in them; of repeated names the first counts."""
    texts: dict[str, str] = {}
    for name, value in headers:
        texts.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return texts
