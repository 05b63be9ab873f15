"""Answers of the router itself, over bare ASGI: errors, whole bodies, pieces."""

from collections.abc import Awaitable, Callable, Mapping

from router.errors import DovecoteError
from router.proxy.body import Message
from router.proxy.error_form import ErrorForm, encode_error
from router.proxy.headers import Headers

Send = Callable[[Message], Awaitable[None]]
_JSON = (b"content-type", b"application/json")


async def send_head(send: Send, status: int, headers: Headers) -> None:
    """Start an answer whose pieces follow."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def send_piece(send: Send, piece: bytes) -> None:
    """One piece; waits while the client is slow to read."""
    await send({"type": "http.response.body", "body": piece, "more_body": True})


async def send_end(send: Send, piece: bytes = b"") -> None:
    """The last piece."""
    await send({"type": "http.response.body", "body": piece, "more_body": False})


async def send_whole(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """A complete answer; its length is said here and nowhere else."""
    await send_head(send, status, [*headers, (b"content-length", str(len(body)).encode())])
    await send_end(send, body)


async def send_error(
    send: Send, error: DovecoteError, own: Mapping[bytes, bytes], form: ErrorForm = ErrorForm.OPENAI
) -> None:
    """An error of the router as a complete answer, in the form of the API that was asked."""
    extra = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    await send_whole(send, error.status_code, [_JSON, *extra, *own.items()], encode_error(error, form))
