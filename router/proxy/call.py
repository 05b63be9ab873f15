"""One HTTP call to the data plane, from its first to its last byte, whatever it is about.

Every path ends the attempt once, closes the worker's connection and counts one outcome; every defect of client, fleet
or worker becomes one clear answer, in the form that what the client already has allows.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from router.access.principal import Principal, find_principal
from router.errors import (
    AccessError,
    DovecoteError,
    FleetError,
    ModelForbiddenError,
    RequestError,
    UpstreamClosedError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnreachableError,
)
from router.metrics import RequestOutcome
from router.placement.stimuli import Outcome
from router.proxy import respond
from router.proxy.attempt import Attempt, RunningRequests
from router.proxy.client import Client, ClientGoneError
from router.proxy.headers import Headers, HeadersTooLargeError, check_header_size, find_header, request_headers
from router.proxy.interrupt import InterruptedExchange, Interruption
from router.proxy.ports import ProxyParts
from router.proxy.refusal import MAX_NAME_CHARS
from router.proxy.relay import Relay
from router.proxy.sse import encode_event
from router.proxy.upstream import Exchange
from wire.ids import RequestId, Target

Scope = dict[str, Any]

_log = logging.getLogger("dovecote.proxy")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
#: A request is sent to this many workers at most, and to a second one only when the first refused the connection.
MAX_ATTEMPTS = 2
#: How long the last words to a client may take.
SLOW_CLIENT_S = 2.0


class Call:
    """One call: what came with it, and what has become of it."""

    def __init__(self, parts: ProxyParts, running: RunningRequests, scope: Scope, client: Client) -> None:
        self.parts = parts
        self.running = running
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope.get("query_string", b"")
        #: Whom it is from.
        self.principal: Principal = find_principal(scope)
        self.headers: Headers = parts.keys_kept(scope["headers"])
        self.client = client
        self.arrived_s = parts.clock()
        self.request_id = self._choose_id()
        #: The router's own lines of the answer.
        self.own_headers = {b"x-request-id": self.request_id.encode()}
        #: What was placed, and what comes back of it; None before.
        self.attempt: Attempt | None = None
        self.relay: Relay | None = None
        #: Where it was sent.
        self.target: Target | None = None

    def _choose_id(self) -> RequestId:
        """The client's own name for the request where it is usable and not running, else a new one."""
        said = read_request_id(self.headers)
        return said if said is not None and said not in self.running else RequestId(secrets.token_hex(16))

    async def run(self, serve: Callable[[], Awaitable[RequestOutcome]]) -> None:
        """Serve it; raises nothing but cancellation and what the server's own channel raises."""
        outcome = RequestOutcome.ERROR
        try:
            outcome = await serve()
        except DovecoteError as error:
            outcome = await self._fail(error)
        except ClientGoneError:
            outcome = RequestOutcome.CANCELLED
        except InterruptedExchange as interrupted:
            outcome = await self._stop(interrupted.cause)
        except Exception:  # noqa: BLE001
            # Our own defect: the client still gets an answer, and the log the story.
            _log.exception("request_failed request=%s", self.request_id)
            outcome = await self._fail(DovecoteError("the router failed on this request"))
        finally:
            if self.attempt is not None:
                self.attempt.end(Outcome.CANCELLED)
            self._count(outcome)

    async def read_body(self) -> bytes:
        """The whole body, within the limits.

        Raises:
            DovecoteError: Header lines or body are too long, or it is compressed.
            ClientGoneError: The client left.
        """
        limit_bytes, own = self.parts.limits.body_bytes, self.principal.limits.body_bytes
        return await read_limited(self.headers, self.client, limit_bytes if own is None else min(own, limit_bytes))

    def check_allowed(self, model: str | None) -> None:
        """Raise where the key is not for a model.

        Raises:
            ModelForbiddenError: It is not.
        """
        if self.principal.models is not None and (model is None or model not in self.principal.models):
            asked = "a request that names no model" if model is None else repr(model[:MAX_NAME_CHARS])
            raise ModelForbiddenError(f"the key is not for {asked}", param="model")

    @property
    def salting(self) -> Callable[[str | None], str] | None:
        """What makes the salt of a prompt; None where the client's own counts."""
        tenancy, tenant = self.parts.tenancy, self.principal.tenant
        return partial(tenancy.make_salt, tenant) if tenancy.isolates(tenant) else None

    def forward_headers(self, target: Target) -> Headers:
        """Lines for the worker that serves it, which the answer will name."""
        self.target = target
        rank = str(target.dp_rank).encode()
        self.own_headers |= {b"x-dovecote-worker": target.worker.encode(), b"x-dovecote-dp-rank": rank}
        own = {b"x-data-parallel-rank": rank, b"x-request-id": self.request_id.encode()}
        key = self.parts.fleet.find_key(target.worker)
        if key is not None:
            own[b"authorization"] = key
        return request_headers(self.headers, own)

    async def open_placed(self, attempt: Attempt, forwarded: bytes) -> Exchange:
        """An exchange with the rank chosen; a worker that refuses the connection is passed over once.

        Raises:
            DovecoteError: No rank can take it, or the worker failed.
        """
        self.attempt = attempt
        for attempt_number in range(1, MAX_ATTEMPTS + 1):
            target = self._place(attempt, is_retry=attempt_number > 1)
            url = f"{self.parts.fleet.find_url(target)}{self.path}"
            try:
                return await self.parts.upstream.open(url, self.forward_headers(target), forwarded)
            except UpstreamUnreachableError as error:
                self._count_upstream(error.code)
                attempt.exclude_worker()
                if attempt_number == MAX_ATTEMPTS:
                    raise
        raise RuntimeError("unreachable: the last attempt returns or raises")

    def _place(self, attempt: Attempt, *, is_retry: bool) -> Target:
        try:
            target = attempt.place()
        except FleetError:
            if is_retry:
                raise UpstreamUnreachableError(
                    "the chosen worker does not accept connections, and there is no other"
                ) from None
            raise
        if is_retry:
            self.parts.metrics.retries.inc()
        return target

    def judge(self, status: int, outcome: Outcome) -> RequestOutcome:
        """How an answer that came through counts."""
        if status >= 500:
            self._count_upstream(f"status_{status // 100}xx")
            return RequestOutcome.ERROR
        if status >= 400:
            return RequestOutcome.CLIENT_ERROR
        if outcome is not Outcome.DONE:
            self._count_upstream("error_event")
            return RequestOutcome.ERROR
        return RequestOutcome.DONE

    async def _fail(self, error: DovecoteError) -> RequestOutcome:
        """Tell the client, in the form that what it already has allows."""
        outcome, count = _OUTCOMES.get(type(error), (Outcome.ERROR, RequestOutcome.ERROR))
        if isinstance(error, RequestError | AccessError | HeadersTooLargeError | UnsupportedEncodingError):
            outcome, count = Outcome.ERROR, RequestOutcome.CLIENT_ERROR
        elif isinstance(error, FleetError):
            count = RequestOutcome.REJECTED
        elif isinstance(error, UpstreamError) and not isinstance(error, UpstreamUnreachableError):
            self._count_upstream(error.code)
        if self.attempt is not None:
            self.attempt.end(outcome)
        self.parts.metrics.errors.labels(error.code).inc()
        _log.info("request_error request=%s code=%s message=%r", self.request_id, error.code, error.message)
        # A client that does not read must not hold up the end of its own request.
        with suppress(TimeoutError):
            async with asyncio.timeout(SLOW_CLIENT_S):
                await self._tell(error)
        return count

    async def _tell(self, error: DovecoteError) -> None:
        if self.relay is None or not self.relay.has_started:
            await respond.send_error(self.client, error, self.own_headers)
        elif self.relay.is_stream:
            await respond.send_end(self.client, encode_event(respond.encode_error(error)))

    async def _stop(self, cause: Interruption) -> RequestOutcome:
        if cause is Interruption.TIMED_OUT:
            return await self._fail(UpstreamTimeoutError("the worker did not answer in time"))
        if cause is Interruption.TOO_LONG:
            limit_s = self.parts.limits.request_s
            return await self._fail(UpstreamTimeoutError(f"the answer was not complete within {limit_s:g} s"))
        if self.attempt is not None:
            self.attempt.end(Outcome.CANCELLED)
        return RequestOutcome.CANCELLED

    def _count_upstream(self, reason: str) -> None:
        if self.target is not None:
            self.parts.metrics.upstream_errors.labels(self.target.worker, reason).inc()

    def _count(self, outcome: RequestOutcome) -> None:
        metrics = self.parts.metrics
        duration_s = max(0.0, self.parts.clock() - self.arrived_s)
        metrics.requests.labels(outcome.value).inc()
        metrics.duration.observe(duration_s)
        if _log.isEnabledFor(logging.INFO):
            _log.info("ended request=%s outcome=%s duration_s=%.3f", self.request_id, outcome.value, duration_s)


def read_request_id(headers: Headers) -> RequestId | None:
    """The client's own name for a request; None where there is none that is usable."""
    said = find_header(headers, b"x-request-id")
    return RequestId(said.decode()) if said is not None and _REQUEST_ID.fullmatch(said) else None


async def read_limited(headers: Headers, client: Client, limit_bytes: int) -> bytes:
    """The body of a call whose header lines are within their limits.

    Raises:
        DovecoteError: Header lines or body are too long, or it is compressed.
        ClientGoneError: The client left.
    """
    check_header_size(headers)
    if find_header(headers, b"content-encoding") not in {None, b"identity"}:
        raise UnsupportedEncodingError("compressed bodies are not taken; send the JSON as it is")
    return await client.receive_body(limit_bytes)


class UnsupportedEncodingError(DovecoteError):
    """The body comes in a content coding that is not taken."""

    status_code = 415
    error_type = "invalid_request_error"
    code = "unsupported_encoding"


class WrongMethodError(DovecoteError):
    """A path was asked with a method that it does not take."""

    status_code = 405
    error_type = "invalid_request_error"
    code = "method_not_allowed"


_OUTCOMES: dict[type[DovecoteError], tuple[Outcome, RequestOutcome]] = {
    UpstreamUnreachableError: (Outcome.WORKER_LOST, RequestOutcome.WORKER_LOST),
    UpstreamClosedError: (Outcome.WORKER_LOST, RequestOutcome.WORKER_LOST),
    UpstreamTimeoutError: (Outcome.TIMED_OUT, RequestOutcome.TIMED_OUT),
}
