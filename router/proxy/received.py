"""The body of a call, within its limits and made plain where it came compressed."""

import asyncio

from router.errors import BodyTooLargeError, DovecoteError, RequestError
from router.proxy.client import Client
from router.proxy.headers import Headers, check_header_size, find_header
from router.proxy.inflate import CODINGS, MAX_MEMBERS, InflateProblem, inflate

#: Compressed bodies above this are made plain in a thread: at worst some 20 ms.
_INFLATED_INLINE_BYTES = 16 << 10


class UnsupportedEncodingError(DovecoteError):
    """The body comes in a content coding that is not taken."""

    status_code = 415
    error_type = "invalid_request_error"
    code = "unsupported_encoding"


async def read_limited(headers: Headers, client: Client, limit_bytes: int) -> bytes:
    """The body of a call whose header lines are within their limits, made plain.

    Raises:
        DovecoteError: Header lines or body are too long, or it cannot be decompressed.
        ClientGoneError: The client left.
    """
    coding = read_coding(headers, client)
    data = await client.receive_body(limit_bytes)
    return data if coding is None else await make_plain(data, limit_bytes)


def read_coding(headers: Headers, client: Client) -> bytes | None:
    """The coding in which the body of a call is compressed, whose header lines are within their limits; else None.

    Raises:
        DovecoteError: Header lines are too long, or the coding is not taken.
    """
    if not client.has_checked_head:
        check_header_size(headers)
    coding = (find_header(headers, b"content-encoding") or b"identity").strip().lower()
    if coding == b"identity":
        return None
    if coding not in CODINGS:
        raise UnsupportedEncodingError("of compressed bodies gzip and deflate are taken")
    return coding


async def make_plain(data: bytes, limit_bytes: int) -> bytes:
    """A compressed body as it is.

    Raises:
        DovecoteError: It is too long, or cannot be decompressed.
    """
    if len(data) <= _INFLATED_INLINE_BYTES:
        plain = inflate(data, limit_bytes)
    else:
        plain = await asyncio.to_thread(inflate, data, limit_bytes)
    if plain is InflateProblem.TOO_LONG:
        raise BodyTooLargeError(f"the decompressed body is longer than the limit of {limit_bytes} bytes")
    if plain is InflateProblem.CORRUPT:
        raise RequestError("the compressed body is corrupt or cut off")
    if plain is InflateProblem.TOO_MANY_MEMBERS:
        raise RequestError(f"the compressed body has more than {MAX_MEMBERS} members")
    return plain
