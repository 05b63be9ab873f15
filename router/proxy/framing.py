"""Where a request's body ends, as its head says it: in one way that nobody can read otherwise, or not at all. Pure.

Takes header lines as the parser gives them.
Source: RFC 9112 section 6.3; known-faults G11.
"""

from typing import NamedTuple

from router.errors import RequestError
from router.proxy.headers import Headers, tell_framing


class BadHttpError(RequestError):
    """What came is no request, or one that could be read in two ways."""

    code = "invalid_http"


class Framing(NamedTuple):
    """What a head says of the body behind it."""

    has_body: bool
    #: Whether the client waits for a word before it sends it.
    expects_continue: bool


def read_framing(headers: Headers, version: str) -> Framing:
    """See that a request says where its body ends, in the one way that nobody can read otherwise.

    Raises:
        BadHttpError: It does not.
    """
    lengths, hosts, codings, other_codings, expects_continue, is_torn = tell_framing(headers)
    if other_codings:
        raise BadHttpError("a body comes plain or in chunks; no other transfer-encoding is taken")
    if is_torn:
        raise BadHttpError("a header line goes on over its end")
    if lengths + codings > 1:
        raise BadHttpError("the length of the body is said more than once")
    if version not in {"1.0", "1.1"} or (codings and version == "1.0"):
        raise BadHttpError("HTTP/1.1 is spoken here, and HTTP/1.0 without chunks")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise BadHttpError("a request names one host")
    return Framing(lengths + codings > 0, expects_continue)
