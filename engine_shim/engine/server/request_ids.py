"""Gives each request a name, the client's `X-Request-Id` or a new one, and sends it back as a header.

A plain ASGI layer: it leaves `receive` alone, so that a client's going away is still seen.
"""

import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine_shim.engine.server.limits import MAX_NAME_CHARS

HEADER = "x-request-id"


class RequestIds:
    """ASGI middleware; the name is `request.state.request_id`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Name the request, then pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = _find_name(Headers(scope=scope).get(HEADER))
        scope.setdefault("state", {})["request_id"] = name

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = name
            await send(message)

        await self._app(scope, receive, send_named)


def _find_name(given: str | None) -> str:
    """The client's name where it is short and printable ASCII."""
    if given and len(given) <= MAX_NAME_CHARS and given.isascii() and given.isprintable():
        return given
    return uuid.uuid4().hex
