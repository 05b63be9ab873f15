"""One HTTP call to the data plane, from its first to its last byte, whatever it is about.

Every path ends the attempt once, closes the worker's connection and counts one outcome; every defect of client, fleet
or worker becomes one clear answer, in the form that what the client already has allows.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from router.access.principal import Principal, find_principal
from router.errors import (
    AccessError,
    DovecoteError,
    ModelForbiddenError,
    RequestError,
    RetryLaterError,
    UpstreamClosedError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnreachableError,
)
from router.fleet.breaker import Cause, Verdict
from router.fleet.rank import RankFacts
from router.metrics import RequestOutcome
from router.placement.instructions import Place
from router.placement.stimuli import Outcome, TargetJudged
from router.proxy import respond
from router.proxy.attempt import Attempt
from router.proxy.client import Client, ClientGoneError, Scope
from router.proxy.error_form import encode_error_event, find_error_form
from router.proxy.fresh_ids import make_fresh_id
from router.proxy.headers import Headers, HeadersTooLargeError, find_header, request_headers
from router.proxy.interrupt import ExchangeWatch, InterruptedExchange, Interruption
from router.proxy.legs.sending import Sending, abandon
from router.proxy.ports import ProxyParts, find_address
from router.proxy.received import UnsupportedEncodingError, make_plain, read_coding
from router.proxy.refusal import MAX_NAME_CHARS, hide_models
from router.proxy.relay import Relay
from router.proxy.running import RunningRequests
from router.proxy.sse import Usage
from router.proxy.traced import end_trace, mark_place, trace_call
from router.proxy.upstream import Exchange
from router.proxy.verdicts import FULL_STATUSES, judge_error, judge_status
from router.tracing import TRACEPARENT
from wire.ids import RequestId, Target

_log = logging.getLogger("dovecote.proxy")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
#: A question of tokens is sent to this many workers at most, the second one when the first refused the connection.
MAX_ATTEMPTS = 2
RANK_HEADER = b"x-data-parallel-rank"
_ID_HEADER = b"x-request-id"
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
        self.own_headers = {_ID_HEADER: self.request_id.encode()}
        #: Its span; None where tracing is off.
        self.trace = None if parts.tracing is None else trace_call(parts.tracing, self)
        #: What was placed, and what comes back of it; None before.
        self.attempt: Attempt | None = None
        self.relay: Relay | None = None
        #: Where it was sent; of a pair the rank that decides what the client gets.
        self.target: Target | None = None
        #: The ranks of both legs, where it has two.
        self.legs: tuple[Target, ...] = ()
        #: Names by which engines know it; where there are none an engine may still be given one (`aborts`).
        self.engine_names: tuple[str, ...] = ()

    def _choose_id(self) -> RequestId:
        """The client's own name for the request where it is usable and no other call's, else a new one."""
        said = read_request_id(self.headers)
        return said if said is not None and self.running.claim(said) else RequestId(make_fresh_id())

    async def run(self, serve: "Serving") -> None:
        """Serve it; raises nothing but cancellation and what the server's own channel raises."""
        outcome, is_counted = RequestOutcome.ERROR, False
        try:
            is_counted = self.parts.admission.begin(self.principal)
            outcome = await serve(self)
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
            self.running.disclaim(self.request_id)
            if is_counted:
                self.parts.admission.end(self.principal)
            self._count(outcome)

    async def read_body(self) -> bytes:
        """The whole body, within the limits; a compressed one is made plain, and its lines will say so.

        Raises:
            DovecoteError: Header lines or body are too long, or it cannot be decompressed.
            ClientGoneError: The client left.
        """
        limit_bytes, own = self.parts.limits.body_bytes, self.principal.limits.body_bytes
        if own is not None:
            limit_bytes = min(own, limit_bytes)
        coding = read_coding(self.headers, self.client)
        data = await self.client.receive_body(limit_bytes)
        return data if coding is None else await make_plain(data, limit_bytes)

    def check_allowed(self, *models: str | None) -> None:
        """Raise where the key is not for a model, or an adapter.

        Raises:
            ModelForbiddenError: It is not.
        """
        for model in () if self.principal.models is None else models:
            if model is None or not self.principal.may_ask_for(model):
                asked = "a request that names no model" if model is None else repr(model[:MAX_NAME_CHARS])
                raise ModelForbiddenError(f"the key is not for {asked}", param="model")

    @property
    def salting(self) -> Callable[[str | None], str] | None:
        """What makes the salt of a prompt; None where the client's own counts."""
        tenancy, tenant = self.parts.tenancy, self.principal.tenant
        return partial(tenancy.make_salt, tenant) if tenancy.isolates(tenant) else None

    def write_headers(self, target: Target) -> Headers:
        """Lines for a worker that serves it, or a leg of it."""
        said = find_header(self.headers, RANK_HEADER) if self.principal.is_trusted and not self.legs else None
        rank = encode_names(target)[1] if said is None else said
        own = {RANK_HEADER: rank, _ID_HEADER: self.own_headers[_ID_HEADER]}
        key = self.parts.fleet.find_key(target.worker)
        if key is not None:
            own[b"authorization"] = key
        if self.trace is not None and self.trace.traceparent is not None:
            own[TRACEPARENT] = self.trace.traceparent
        return request_headers(self.headers, own)

    def forward_headers(self, target: Target) -> Headers:
        """The same for the one whose answer the client gets."""
        self.name_server(target)
        return self.write_headers(target)

    def name_server(self, target: Target) -> None:
        """The client gets this rank's answer, which names it; what goes wrong from now on is its doing."""
        self.target = target
        self.own_headers[b"x-dovecote-worker"], self.own_headers[b"x-dovecote-dp-rank"] = encode_names(target)

    def find_facts(self, target: Target) -> RankFacts | None:
        """What is known of a rank; None where it left the fleet."""
        rank = self.parts.placer.fleet.find(target)
        return None if rank is None else rank.facts

    @property
    def tenant(self) -> str:
        """Whose call it is; empty where there are no tenants."""
        return self.principal.tenant

    @property
    def targets(self) -> tuple[Target, ...]:
        """Every rank that has a share of it; none before it was sent."""
        return self.legs or (() if self.target is None else (self.target,))

    def find_url(self, target: Target) -> str:
        """Where a rank is asked about it, with the query as it came.

        Raises:
            UpstreamUnreachableError: Its worker left.
        """
        url = f"{find_address(self.parts.fleet, target)}{self.path}"
        return f"{url}?{self.query.decode('latin-1')}" if self.query else url

    async def open_at(self, target: Target, data: bytes) -> Exchange:
        """An exchange with one rank about what the client asks, method and query as they are.

        Raises:
            DovecoteError: The worker failed; one that refuses the connection is reported.
        """
        url = self.find_url(target)
        headers = self.forward_headers(target)
        try:
            return await self.parts.upstream.open(url, headers, data, method=self.method)
        except UpstreamUnreachableError as error:
            self.count_upstream(error.code)
            self.tell_verdict(Verdict.FAILED, is_unreached=True)
            self.parts.fleet.report_unreachable(target.worker)
            raise

    def open_placed(self, attempt: Attempt, forwarded: bytes, watch: ExchangeWatch) -> Coroutine[Any, Any, Exchange]:
        """An exchange with the rank or pair chosen; a worker that refuses the connection is passed over.

        Raises:
            DovecoteError: None can take it, or a worker failed.
        """
        self.attempt = attempt
        return Sending(self, attempt, forwarded, self.parts.sending, watch).open()

    async def admit(self, attempt: Attempt) -> Place:
        """A rank or pair for it, at once or when it is its turn.

        Raises:
            DovecoteError: None can take it.
        """
        priority, admission = self.read_priority(), self.parts.admission
        place = admission.try_place(attempt) or await admission.wait(attempt, self.tenant, priority)
        admission.spend(self.principal, attempt.prompt_tokens)
        if self.trace is not None:
            mark_place(self.trace, place)
        return place

    def read_priority(self) -> int:
        """The priority asked for, as far as the key may."""
        said = find_header(self.headers, b"x-dovecote-priority")
        if said is None:
            return 0
        if not said.isdigit() or len(said) > 1:
            raise RequestError("x-dovecote-priority is a digit, 9 the highest", param="x-dovecote-priority")
        return min(int(said), self.principal.max_priority)

    def spend(self, attempt: Attempt, usage: Usage | None) -> None:
        """The engine's count of tokens is known: what was taken for the prompt is corrected, the answer added."""
        if usage is not None and usage.prompt_tokens is not None:
            spent_tokens = usage.prompt_tokens + (usage.completion_tokens or 0)
            self.parts.admission.spend(self.principal, spent_tokens - attempt.prompt_tokens)

    def tell_verdict(
        self,
        verdict: Verdict,
        *,
        target: Target | None = None,
        retry_after_s: float | None = None,
        is_unreached: bool = False,
    ) -> None:
        """Tell the breaker of a rank, by default of the one that serves it, what the exchange says of it."""
        judged, placer = target or self.target, self.parts.placer
        if judged is None or (verdict in _UNTROUBLED and not placer.breakers.knows(judged)):
            return
        now_s = self.parts.clock()
        cause = None if is_unreached else self._find_cause()
        placer.handle(
            TargetJudged(now_s=now_s, target=judged, verdict=verdict, retry_after_s=retry_after_s, cause=cause)
        )

    def _find_cause(self) -> Cause:
        """What its failures are counted as; of calls that are not placed those of one path are one cause."""
        return Cause(self.tenant, self.path) if self.attempt is None else self.attempt.asked.cause

    def judge(self, status: int, outcome: Outcome) -> RequestOutcome:
        """How an answer that came through counts."""
        if status not in FULL_STATUSES:
            self.tell_verdict(judge_status(status, outcome))
        if status >= 500:
            self.count_upstream(f"status_{status // 100}xx")
            return RequestOutcome.ERROR
        if status >= 400:
            return RequestOutcome.CLIENT_ERROR
        if outcome is not Outcome.DONE:
            self.count_upstream("error_event")
            return RequestOutcome.ERROR
        return RequestOutcome.DONE

    async def _fail(self, error: DovecoteError, *, is_own_limit: bool = False) -> RequestOutcome:
        """Tell the client, in the form that what it already has allows."""
        error = hide_models(error, self.principal)
        if not is_own_limit and not isinstance(error, UpstreamUnreachableError):
            self.tell_verdict(judge_error(error))
        outcome, count = _OUTCOMES.get(type(error), (Outcome.ERROR, RequestOutcome.ERROR))
        if isinstance(error, RequestError | AccessError | HeadersTooLargeError | UnsupportedEncodingError):
            outcome, count = Outcome.ERROR, RequestOutcome.CLIENT_ERROR
        elif isinstance(error, RetryLaterError):
            count = RequestOutcome.REJECTED
        elif isinstance(error, UpstreamError) and not isinstance(error, UpstreamUnreachableError):
            self.count_upstream(error.code)
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
            await respond.send_error(self.client, error, self.own_headers, find_error_form(self.path))
        elif self.relay.is_stream:
            await respond.send_end(self.client, encode_error_event(error, find_error_form(self.path)))

    async def _stop(self, cause: Interruption) -> RequestOutcome:
        abandon(self)
        if cause is Interruption.TIMED_OUT:
            return await self._fail(UpstreamTimeoutError("the worker did not answer in time"))
        if cause is Interruption.TOO_LONG:
            limit_s = self.parts.limits.request_s
            error = UpstreamTimeoutError(f"the answer was not complete within {limit_s:g} s")
            return await self._fail(error, is_own_limit=True)
        if self.attempt is not None:
            self.attempt.end(Outcome.CANCELLED)
        if cause is Interruption.SHUT_DOWN:
            await self._fail(ShutDownError("the router shut down before the answer was complete"), is_own_limit=True)
        if cause is Interruption.ABORTED:
            await self._fail(AbortedError("the request was ended by its client"), is_own_limit=True)
        return RequestOutcome.CANCELLED

    def count_upstream(self, reason: str, target: Target | None = None) -> None:
        """A worker failed, by default the one that serves it."""
        failed = target or self.target
        if failed is not None:
            self.parts.metrics.upstream_errors.labels(failed.worker, reason).inc()

    def _count(self, outcome: RequestOutcome) -> None:
        metrics = self.parts.metrics
        duration_s = max(0.0, self.parts.clock() - self.arrived_s)
        metrics.requests[outcome].inc()
        metrics.duration.observe(duration_s)
        if self.trace is not None:
            end_trace(self.trace, self.target, outcome)
        if _log.isEnabledFor(logging.INFO):
            _log.info("ended request=%s outcome=%s duration_s=%.3f", self.request_id, outcome.value, duration_s)


#: Serves a call.
Serving = Callable[[Call], Awaitable[RequestOutcome]]


@lru_cache(maxsize=1_024)
def encode_names(target: Target) -> tuple[bytes, bytes]:
    """Worker and rank as header lines say them."""
    return target.worker.encode(), str(target.dp_rank).encode()


def read_request_id(headers: Headers) -> RequestId | None:
    """The client's own name for a request; None where there is none that is usable."""
    said = find_header(headers, _ID_HEADER)
    return RequestId(said.decode()) if said is not None and _REQUEST_ID.fullmatch(said) else None


class AbortedError(DovecoteError):
    """The request was ended by a call of `/abort_request`."""

    status_code = 409
    error_type = "invalid_request_error"
    code = "request_aborted"


class ShutDownError(DovecoteError):
    """The router was told to end, and the request took longer than `shutdown.grace_s`."""

    status_code = 503
    error_type = "service_unavailable_error"
    code = "shut_down"


class WrongMethodError(DovecoteError):
    """A path was asked with a method that it does not take."""

    status_code = 405
    error_type = "invalid_request_error"
    code = "method_not_allowed"


#: Verdicts that change nothing where a rank never failed.
_UNTROUBLED = frozenset({Verdict.GOOD, Verdict.NEUTRAL})
_OUTCOMES: dict[type[DovecoteError], tuple[Outcome, RequestOutcome]] = {
    UpstreamUnreachableError: (Outcome.WORKER_LOST, RequestOutcome.WORKER_LOST),
    UpstreamClosedError: (Outcome.WORKER_LOST, RequestOutcome.WORKER_LOST),
    UpstreamTimeoutError: (Outcome.TIMED_OUT, RequestOutcome.TIMED_OUT),
}
