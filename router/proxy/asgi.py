"""Serves an ASGI application behind a `Client`: the control plane's routes, on connections of our own server."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from router.proxy.client import AsgiApp, Client, ClientGoneError, Message
from router.proxy.headers import Headers


class _AsgiCall:
    """The two channels of one ASGI call."""

    def __init__(self, client: Client, limit_bytes: int) -> None:
        self._client = client
        self._limit_bytes = limit_bytes
        self._is_read = False
        self._gone = asyncio.Event()
        self._head: tuple[int, Headers] | None = None
        self._is_started = False

    async def receive(self) -> Message:
        """The whole body, then word that the client left or has its answer."""
        if not self._is_read:
            self._is_read = True
            try:
                body = await self._client.receive_body(self._limit_bytes)
            except ClientGoneError:
                return {"type": "http.disconnect"}
            self._client.watch(self._gone.set)
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Head and pieces of the answer."""
        client = self._client
        if message["type"] == "http.response.start":
            # The length is the connection's to say.
            lines = [(name.lower(), value) for name, value in message.get("headers", ())]
            self._head = message["status"], [line for line in lines if line[0] != b"content-length"]
            return
        if self._head is None:
            raise RuntimeError("an answer begins with its head")
        piece, has_more = message.get("body", b""), message.get("more_body", False)
        if not has_more and not self._is_started:
            client.answer(*self._head, piece)
        else:
            if not self._is_started:
                client.start(*self._head)
            (client.write if has_more else client.end)(piece)
        self._is_started = True
        if not has_more:
            self._gone.set()
        if client.is_full:
            await client.drain()


async def _serve(app: AsgiApp, limit_bytes: int, scope: Any, client: Client) -> None:
    call = _AsgiCall(client, limit_bytes)
    try:
        await app(scope, call.receive, call.send)
    finally:
        client.unwatch()


def serve_asgi(app: AsgiApp, limit_bytes: int) -> Callable[[Any, Client], Awaitable[None]]:
    """What serves calls of an application.

    Args:
        app: The application.
        limit_bytes: Longest body.
    """
    return partial(_serve, app, limit_bytes)
