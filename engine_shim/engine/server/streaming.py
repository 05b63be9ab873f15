"""Server-sent events, and the rule that a client's going away ends its work at once.

While an answer is made, the connection is watched; when the client hangs up, the work is cancelled
and awaited, so that its own clean-up has run before the handler returns.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine_shim.engine.server.errors import ClientGone

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


def sse(body: object) -> bytes:
    """One event holding JSON."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


async def unless_client_leaves(receive: Receive, work: Coroutine[None, None, T]) -> T:
    """The result of `work`, which is cancelled when the client hangs up first.

    The request's body must have been read.

    Raises:
        ClientGone: The client hung up.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_wait_until_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        await _cancel(task)
        await _cancel(watch)


class EventStream(Response):
    """An answer of server-sent events, ended and cleaned up when the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], *, headers: dict[str, str], close: Callable[[], None]) -> None:
        super().__init__(headers=headers | {"cache-control": "no-cache"})
        del self.headers["content-length"]
        self._events = events
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  (ASGI)
        """Send every event; `close` is called on whatever path this ends."""
        try:
            await unless_client_leaves(receive, self._send_all(send))
        except ClientGone:
            return
        finally:
            self._close()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(task: "asyncio.Future[T]") -> None:
    """Cancel and wait; the task's own error has been seen by whoever awaited it."""
    if task.done():
        return
    task.cancel()
    await asyncio.wait((task,))
