"""Stands before every route: a call passes with a key that is for its path, or is answered here.

The principal goes along in the ASGI scope, where the routes find it (`access.principal.find_principal`).
"""

import logging
from typing import Any

from router.access import AccessGate, Principal
from router.access.gate import Refusal
from router.access.principal import SCOPE_KEY
from router.errors import AccessError, ForbiddenError, MissingKeyError
from router.metrics import RouterMetrics
from router.proxy import respond
from router.proxy.client import AsgiApp, AsgiClient, Client
from router.proxy.error_form import find_error_form

_log = logging.getLogger("dovecote.access")
_ERRORS: dict[Refusal, AccessError] = {
    Refusal.MISSING_KEY: MissingKeyError("a key is needed: Authorization: Bearer KEY, or x-api-key: KEY"),
    Refusal.INVALID_KEY: AccessError("the key is not known here"),
    Refusal.FORBIDDEN: ForbiddenError("the key is not for this path"),
    Refusal.OTHER_PORT: ForbiddenError("this path is served on the admin port"),
}


def to_error(refusal: Refusal) -> AccessError:
    """What a caller that does not pass is told."""
    return _ERRORS[refusal]


class Guard:
    """ASGI application that lets through to `inner` what may pass."""

    def __init__(self, inner: AsgiApp, gate: AccessGate, metrics: RouterMetrics) -> None:
        self._inner = inner
        self._gate = gate
        self._metrics = metrics
        #: Port on which admins are served, once it is bound; None where one port serves all.
        self.admin_port: int | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One ASGI call."""
        error = self.check(scope) if scope["type"] == "http" else None
        if error is None:
            await self._inner(scope, receive, send)
        else:
            await self.refuse(error, scope, AsgiClient(receive, send))

    def check(self, scope: Any) -> AccessError | None:
        """Why a call does not pass; None where it does, and its principal is in its scope."""
        # The server's own address is the socket's, whatever the client says of it.
        is_admin_port = self.admin_port is not None and scope["server"][1] == self.admin_port
        verdict = self._gate.judge(scope["path"], scope["headers"], is_admin_port=is_admin_port)
        if not isinstance(verdict, Principal):
            return to_error(verdict)
        scope[SCOPE_KEY] = verdict
        return None

    async def refuse(self, error: AccessError, scope: Any, client: Client) -> None:
        """Tell a caller that it does not pass."""
        self._metrics.errors.labels(error.code).inc()
        _log.info("access_refused code=%s method=%r path=%r", error.code, scope["method"], scope["path"][:200])
        await respond.send_error(client, error, {}, find_error_form(scope["path"]))
