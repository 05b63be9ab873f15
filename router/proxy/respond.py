"""Answers of the router itself: errors, whole bodies, pieces; each waits while a client is slow."""

from collections.abc import Mapping

from router.errors import DovecoteError
from router.proxy.client import Client
from router.proxy.error_form import ErrorForm, encode_error
from router.proxy.headers import Headers

_JSON = (b"content-type", b"application/json")


async def send_end(client: Client, piece: bytes = b"") -> None:
    """The last piece."""
    client.end(piece)
    if client.is_full:
        await client.drain()


async def send_whole(client: Client, status: int, headers: Headers, body: bytes) -> None:
    """A complete answer."""
    client.answer(status, headers, body)
    if client.is_full:
        await client.drain()


async def send_error(
    client: Client, error: DovecoteError, own: Mapping[bytes, bytes], form: ErrorForm = ErrorForm.OPENAI
) -> None:
    """An error of the router as a complete answer, in the form of the API that was asked."""
    extra = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    await send_whole(client, error.status_code, [_JSON, *extra, *own.items()], encode_error(error, form))
