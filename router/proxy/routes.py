"""The data plane's paths, answered by plain ASGI: which of them a call is for, and with which methods it may come.

Everything else goes to the application behind.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from router.proxy import respond
from router.proxy.abort_call import AbortCall
from router.proxy.api import PATHS, Api
from router.proxy.call import Call, Serving, WrongMethodError
from router.proxy.client import AsgiApp, AsgiClient, Client, Endpoint, Scope
from router.proxy.dry_run import serve_dry_run
from router.proxy.error_form import find_error_form
from router.proxy.forward_call import METHODS, forward, is_forwarded
from router.proxy.kept import find_response_path
from router.proxy.kept_calls import OpenSession, close_session, use_response
from router.proxy.legs.aborts import ABORT_PATH
from router.proxy.named_requests import NamedRequests
from router.proxy.output_call import OutputCall
from router.proxy.ports import ProxyParts
from router.proxy.running import RunningRequests
from router.proxy.token_calls import COUNT_PATH, TOKEN_PATHS, count_tokens, serve_tokens
from router.proxy.usable import UsableRanks

_POST = ("POST",)
#: Paths of clients, but for those with an id in them; what is not named here needs an admin's key.
_CLIENT_PATHS = frozenset(
    {*PATHS, *TOKEN_PATHS, COUNT_PATH, ABORT_PATH, "/v1/models", "/open_session", "/close_session"}
)
#: Start of the paths of single models.
_MODEL_PATHS = "/v1/models/"


class HotRoutes:
    """ASGI application for the paths of the data plane; everything else goes to `inner`."""

    def __init__(self, parts: ProxyParts, inner: AsgiApp) -> None:
        self._parts = parts
        self._inner = inner
        self.running = RunningRequests()
        #: Ids of sessions that are being opened.
        self._opening: set[str] = set()
        self._ranks = UsableRanks(parts)
        #: Requests that run, by the names that end them.
        self._named = NamedRequests()
        self._posted = self._serve_posts()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One ASGI call."""
        endpoint = self.find_endpoint(scope) if scope["type"] == "http" else None
        if endpoint is None:
            await self._inner(scope, receive, send)
        else:
            await endpoint(scope, AsgiClient(receive, send))

    def find_endpoint(self, scope: Scope) -> Endpoint | None:
        """What serves a call; None where its path is not one of the data plane's."""
        found = self._find(scope["path"])
        if found is None:
            return None
        methods, serve = found
        return serve if scope["method"] in methods else partial(_refuse_method, methods)

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept of chats, so that of a longer one only what is new is converted."""
        return self._parts.chats.held_bytes

    def is_client_path(self, path: str) -> bool:
        """Whether clients may ask for a path; the other ones are the operator's."""
        is_known = path in _CLIENT_PATHS or path.startswith(_MODEL_PATHS) or find_response_path(path) is not None
        return is_known or self._is_forwarded(path)

    def _find(self, path: str) -> tuple[tuple[str, ...], Endpoint] | None:
        """Methods of a path, and what serves it; None where it is not one of the data plane's."""
        endpoint = self._posted.get(path)
        if endpoint is not None:
            return _POST, endpoint
        response = find_response_path(path)
        if response is not None:
            response_id, is_cancel = response
            return _POST if is_cancel else ("GET", "DELETE"), self._serve(lambda call: use_response(call, response_id))
        if self._is_forwarded(path):
            return METHODS, self._serve(partial(forward, ranks=self._ranks))
        return None

    def _is_forwarded(self, path: str) -> bool:
        """Whether a path goes to a worker as it is; one of the router's own never does."""
        return is_forwarded(path, self._parts.forwarded) and not self._parts.has_own_route(path)

    def _serve_posts(self) -> dict[str, Endpoint]:
        """What serves each path of which there is one, with its one method."""
        ranks, named = self._ranks, self._named

        def place(api: Api) -> Endpoint:
            return self._serve(lambda call: OutputCall(call, api, named).serve())

        return {
            **{path: place(api) for path, api in PATHS.items()},
            **dict.fromkeys(TOKEN_PATHS, self._serve(partial(serve_tokens, ranks=ranks))),
            COUNT_PATH: self._serve(partial(count_tokens, ranks=ranks)),
            ABORT_PATH: self._serve(lambda call: AbortCall(call, named, ranks).serve()),
            "/v1/explain": partial(serve_dry_run, self._parts),
            "/open_session": self._serve(lambda call: OpenSession(call, self._opening).serve()),
            "/close_session": self._serve(close_session),
        }

    def _serve(self, serve: Serving) -> Endpoint:
        def run(scope: Scope, client: Client) -> Awaitable[None]:
            return Call(self._parts, self.running, scope, client).run(serve)

        return run


async def _refuse_method(methods: tuple[str, ...], scope: Scope, client: Client) -> None:
    error = WrongMethodError(f"this path takes {' or '.join(methods)}")
    allow = {b"allow": ", ".join(methods).encode()}
    await respond.send_error(client, error, allow, find_error_form(scope["path"]))
