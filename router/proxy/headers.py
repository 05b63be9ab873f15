"""Which header lines cross the router, in either direction. Pure.

Hop-by-hop lines stay on their hop, lengths are the router's to say, and a client cannot name a rank or reach
into an engine's internals: those lines are the router's alone.
Source: RFC 9110 section 7.6.1; SGLang `srt/entrypoints/request_headers.py` for its override lines.
"""

from collections.abc import Collection, Iterable, Mapping

from router.errors import DovecoteError

Headers = list[tuple[bytes, bytes]]

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
_OWN_PREFIX = b"x-dovecote-"

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


def request_headers(headers: Iterable[tuple[bytes, bytes]], own: Mapping[bytes, bytes]) -> Headers:
    """Lines for the worker: the client's, less what ends here, then the router's own.

    Args:
        headers: Lines as received, names in lower case.
        own: The router's lines; nothing of the same name is passed on beside them.
    """
    received = list(headers)
    named = _named_by_connection(received)
    kept = [
        (name, value)
        for name, value in received
        if name not in _REQUEST_LEFT_OUT
        and name not in own
        and name not in named
        and not name.startswith(_OVERRIDE_PREFIX)
    ]
    return [*kept, (b"accept-encoding", b"identity"), *own.items()]


def response_headers(headers: Iterable[tuple[bytes, bytes]], own: Mapping[bytes, bytes]) -> Headers:
    """Lines for the client: the worker's, less what ends here, then the router's own."""
    received = [(name.lower(), value) for name, value in headers]
    named = _named_by_connection(received)
    kept = [
        (name, value)
        for name, value in received
        if name not in _RESPONSE_LEFT_OUT and name not in named and not (name.startswith(_OWN_PREFIX) and name in own)
    ]
    return [*kept, *own.items()]


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> Collection[bytes]:
    said = [value for name, value in headers if name == b"connection"]
    return frozenset([word.strip().lower() for value in said for word in value.split(b",")]) if said else ()


def text_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Lines as text, for those who look for a session in them; of repeated names the first counts."""
    texts: dict[str, str] = {}
    for name, value in headers:
        texts.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return texts


def find_header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """First value of a line, None where there is none; names are in lower case wherever lines come from."""
    for key, value in headers:
        if key == name:
            return value
    return None
