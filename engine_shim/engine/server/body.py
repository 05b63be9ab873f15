"""Request bodies: read up to a limit, decoded into a typed value, or an `ApiError` that names the field."""

import re
from http import HTTPStatus
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from engine_shim.engine.server.errors import ApiError, ClientGone, bad_request

T = TypeVar("T")
_PATH = re.compile(r" - at `\$\.?([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]*)`")


async def read_body(request: Request, type_: type[T], *, limit_bytes: int) -> T:
    """The body as a value of `type_`.

    Raises:
        ApiError: 413 over the limit; 400 for bad JSON or a field of the wrong type.
        ClientGone: The client hung up while sending.
    """
    return decode_body(await _read_bytes(request, limit_bytes), type_)


def decode_body(body: bytes, type_: type[T]) -> T:
    """Decode and check JSON."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        raise bad_request(str(error), _find_param(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error


async def _read_bytes(request: Request, limit_bytes: int) -> bytes:
    too_large = ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {limit_bytes} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit_bytes:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit_bytes:
                raise too_large
    except ClientDisconnect as error:
        raise ClientGone from error
    return bytes(body)


def _find_param(message: str) -> str | None:
    """Name of the field a msgspec message is about."""
    at = _PATH.search(message)
    missing = _MISSING.search(message)
    names = [found.group(1) for found in (at, missing) if found and found.group(1)]
    return ".".join(names) or None
