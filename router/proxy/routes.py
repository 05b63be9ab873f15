"""The hot routes: chat and text completions, answered by plain ASGI.

One call is one request: read, place, forward, report. Every path ends the attempt once, closes the worker's
connection and counts one outcome; every defect of client, fleet or worker becomes one clear answer.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from router.errors import (
    DovecoteError,
    FleetError,
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
from router.proxy.body import ClientGoneError, Receive, RequestBody, receive_body
from router.proxy.headers import (
    HeadersTooLargeError,
    check_header_size,
    find_header,
    request_headers,
    text_headers,
)
from router.proxy.interrupt import ExchangeWatch, InterruptedExchange, Interruption
from router.proxy.ports import ProxyParts
from router.proxy.refusal import unknown_model
from router.proxy.relay import Relay, Relayed
from router.proxy.respond import Send
from router.proxy.sse import encode_event
from router.proxy.upstream import Exchange
from router.sessions.identity import find_session
from wire.ids import RequestId, Target

Scope = dict[str, Any]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]

_log = logging.getLogger("dovecote.proxy")
#: Paths answered here, and whether they take messages.
HOT_PATHS = {"/v1/chat/completions": True, "/v1/completions": False}
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
#: A request is sent to this many workers at most, and to a second one only when the first refused the connection.
MAX_ATTEMPTS = 2
#: How long the last words to a client may take.
SLOW_CLIENT_S = 2.0


class HotRoutes:
    """ASGI application for `HOT_PATHS`; everything else goes to `inner`."""

    def __init__(self, parts: ProxyParts, inner: AsgiApp) -> None:
        self._parts = parts
        self._inner = inner
        self.running = RunningRequests()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One ASGI call."""
        if scope["type"] != "http" or scope["path"] not in HOT_PATHS:
            await self._inner(scope, receive, send)
        elif scope["method"] != "POST":
            await respond.send_error(send, WrongMethodError("this path takes POST"), {b"allow": b"POST"})
        else:
            await _Request(self._parts, self.running, scope, receive, send).serve()


class _Request:
    """One request from its first to its last byte."""

    def __init__(self, parts: ProxyParts, running: RunningRequests, scope: Scope, receive: Receive, send: Send) -> None:
        self._parts = parts
        self._running = running
        self._path: str = scope["path"]
        self._headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self._receive = receive
        self._send = send
        self._arrived_s = time.monotonic()
        self._request_id = self._choose_id()
        self._own_headers = {b"x-request-id": self._request_id.encode()}
        self._attempt: Attempt | None = None
        self._relay: Relay | None = None
        self._target: Target | None = None

    def _choose_id(self) -> RequestId:
        """The client's own name for the request where it is usable and not running, else a new one."""
        said = find_header(self._headers, b"x-request-id")
        if said is not None and _REQUEST_ID.fullmatch(said) and RequestId(said.decode()) not in self._running:
            return RequestId(said.decode())
        return RequestId(secrets.token_hex(16))

    async def serve(self) -> None:
        """Serve it; raises nothing but cancellation and what the server's own channel raises."""
        outcome = RequestOutcome.ERROR
        try:
            outcome = await self._serve()
        except DovecoteError as error:
            outcome = await self._fail(error)
        except ClientGoneError:
            outcome = RequestOutcome.CANCELLED
        except InterruptedExchange as interrupted:
            outcome = await self._stop(interrupted.cause)
        except Exception:  # noqa: BLE001
            # Our own defect: the client still gets an answer, and the log the story.
            _log.exception("request_failed request=%s", self._request_id)
            outcome = await self._fail(DovecoteError("the router failed on this request"))
        finally:
            if self._attempt is not None:
                self._attempt.end(Outcome.CANCELLED)
            self._count(outcome)

    async def _serve(self) -> RequestOutcome:
        check_header_size(self._headers)
        body = await self._read_body()
        async with ExchangeWatch(self._receive) as watch:
            self._attempt = await self._prepare(body)
            forwarded, drops_usage = body.to_forward()
            relayed = await self._exchange(body, forwarded, drops_usage, watch)
        self._attempt.end(relayed.outcome, relayed.usage)
        return self._judge(relayed)

    async def _read_body(self) -> RequestBody:
        encoding = find_header(self._headers, b"content-encoding")
        if encoding not in {None, b"identity"}:
            raise UnsupportedEncodingError("compressed bodies are not taken; send the JSON as it is")
        data = await receive_body(self._receive, self._parts.limits.body_bytes)
        return RequestBody(data, is_chat=HOT_PATHS[self._path], known=self._parts.known_bodies)

    async def _prepare(self, body: RequestBody) -> Attempt:
        self._check_model(body.model)
        session = find_session(text_headers(self._headers), body.identity).session
        started_s = time.monotonic()
        prompt = await self._parts.prompts.prepare(body.model, body.prompt_input, len(body.data))
        self._parts.metrics.prompt_preparation.observe(time.monotonic() - started_s)
        if session is None:
            session = self._parts.fingerprints.identify(prompt.head_hashes, prompt.prompt_tokens)
        return Attempt(
            self._parts,
            self._running,
            request_id=self._request_id,
            model=body.model,
            session=session,
            prompt=prompt,
            expected_output_tokens=body.expected_output_tokens,
            choices=body.choices,
            arrived_s=self._arrived_s,
        )

    def _check_model(self, model: str | None) -> None:
        """No work for a model that nobody serves. A fleet that told nothing yet refuses later, as out of service."""
        if not model:
            raise RequestError("model is missing; GET /v1/models lists those served", param="model")
        fleet = self._parts.placer.fleet
        if len(fleet) and not fleet.find_serving(model):
            raise unknown_model(model, self._parts)

    async def _exchange(self, body: RequestBody, forwarded: bytes, drops_usage: bool, watch: ExchangeWatch) -> Relayed:
        watch.limit_whole(self._parts.limits.request_s)
        watch.limit(self._parts.limits.first_byte_s)
        exchange = await self._open(forwarded)
        try:
            self._relay = Relay(
                exchange, self._send, self._placed, watch, limits=self._parts.limits, own_headers=self._own_headers
            )
            return await self._relay.carry(wants_stream=body.stream, drop_usage_chunk=drops_usage, choices=body.choices)
        finally:
            exchange.close()

    @property
    def _placed(self) -> Attempt:
        if self._attempt is None:
            raise RuntimeError("nothing is forwarded before it is placed")
        return self._attempt

    async def _open(self, forwarded: bytes) -> Exchange:
        """An exchange with the chosen worker; one that refuses the connection is passed over once."""
        for attempt_number in range(1, MAX_ATTEMPTS + 1):
            self._target = target = self._place(is_retry=attempt_number > 1)
            url = self._parts.fleet.find_url(target)
            rank = str(target.dp_rank).encode()
            self._own_headers |= {b"x-dovecote-worker": target.worker.encode(), b"x-dovecote-dp-rank": rank}
            lines = {b"x-data-parallel-rank": rank, b"x-request-id": self._request_id.encode()}
            try:
                headers = request_headers(self._headers, lines)
                return await self._parts.upstream.open(f"{url}{self._path}", headers, forwarded)
            except UpstreamUnreachableError as error:
                self._count_upstream(error.code)
                self._placed.exclude_worker()
                if attempt_number == MAX_ATTEMPTS:
                    raise
        raise RuntimeError("unreachable: the last attempt returns or raises")

    def _place(self, *, is_retry: bool) -> Target:
        try:
            target = self._placed.place()
        except FleetError:
            if is_retry:
                raise UpstreamUnreachableError(
                    "the chosen worker does not accept connections, and there is no other"
                ) from None
            raise
        if is_retry:
            self._parts.metrics.retries.inc()
        return target

    def _judge(self, relayed: Relayed) -> RequestOutcome:
        if relayed.status >= 500:
            self._count_upstream(f"status_{relayed.status // 100}xx")
            return RequestOutcome.ERROR
        if relayed.status >= 400:
            return RequestOutcome.CLIENT_ERROR
        if relayed.outcome is not Outcome.DONE:
            self._count_upstream("error_event")
            return RequestOutcome.ERROR
        return RequestOutcome.DONE

    async def _fail(self, error: DovecoteError) -> RequestOutcome:
        """Tell the client, in the form that what it already has allows."""
        outcome, count = _OUTCOMES.get(type(error), (Outcome.ERROR, RequestOutcome.ERROR))
        if isinstance(error, RequestError | HeadersTooLargeError | UnsupportedEncodingError):
            outcome, count = Outcome.ERROR, RequestOutcome.CLIENT_ERROR
        elif isinstance(error, FleetError):
            count = RequestOutcome.REJECTED
        elif isinstance(error, UpstreamError) and not isinstance(error, UpstreamUnreachableError):
            self._count_upstream(error.code)
        if self._attempt is not None:
            self._attempt.end(outcome)
        self._parts.metrics.errors.labels(error.code).inc()
        _log.info("request_error request=%s code=%s message=%r", self._request_id, error.code, error.message)
        # A client that does not read must not hold up the end of its own request.
        with suppress(TimeoutError):
            async with asyncio.timeout(SLOW_CLIENT_S):
                await self._tell(error)
        return count

    async def _tell(self, error: DovecoteError) -> None:
        if self._relay is None or not self._relay.has_started:
            await respond.send_error(self._send, error, self._own_headers)
        elif self._relay.is_stream:
            await respond.send_end(self._send, encode_event(respond.encode_error(error)))

    async def _stop(self, cause: Interruption) -> RequestOutcome:
        if cause is Interruption.TIMED_OUT:
            return await self._fail(UpstreamTimeoutError("the worker did not answer in time"))
        if cause is Interruption.TOO_LONG:
            limit_s = self._parts.limits.request_s
            return await self._fail(UpstreamTimeoutError(f"the answer was not complete within {limit_s:g} s"))
        if self._attempt is not None:
            self._attempt.end(Outcome.CANCELLED)
        return RequestOutcome.CANCELLED

    def _count_upstream(self, reason: str) -> None:
        if self._target is not None:
            self._parts.metrics.upstream_errors.labels(self._target.worker, reason).inc()

    def _count(self, outcome: RequestOutcome) -> None:
        metrics = self._parts.metrics
        duration_s = time.monotonic() - self._arrived_s
        metrics.requests.labels(outcome.value).inc()
        metrics.duration.observe(duration_s)
        if _log.isEnabledFor(logging.INFO):
            _log.info("ended request=%s outcome=%s duration_s=%.3f", self._request_id, outcome.value, duration_s)


class UnsupportedEncodingError(DovecoteError):
    """The body comes in a content coding that is not taken."""

    status_code = 415
    error_type = "invalid_request_error"
    code = "unsupported_encoding"


class WrongMethodError(DovecoteError):
    """A path that takes POST was asked with another method."""

    status_code = 405
    error_type = "invalid_request_error"
    code = "method_not_allowed"


_OUTCOMES: dict[type[DovecoteError], tuple[Outcome, RequestOutcome]] = {
    UpstreamUnreachableError: (Outcome.WORKER_LOST, RequestOutcome.WORKER_LOST),
    UpstreamClosedError: (Outcome.WORKER_LOST, RequestOutcome.WORKER_LOST),
    UpstreamTimeoutError: (Outcome.TIMED_OUT, RequestOutcome.TIMED_OUT),
}
