"""Every error that the router raises, and the body a client sees for it.

    DovecoteError                     500 internal_error
    ├── ConfigError                   (stops the process; never reaches a client)
    ├── ContradictionError            500 config_contradiction  of a worker; seen in `/v1/workers` only
    ├── RequestError                  400 invalid_request
    │   ├── BadHttpError              400 invalid_http         the connection is closed
    │   ├── UnknownModelError         404 model_not_found
    │   ├── BodyTooLargeError         413 body_too_large
    │   ├── DuplicateRequestError     409 duplicate_request
    │   ├── UnknownStateError         404 state_not_found
    │   └── LostStateError            410 state_lost
    ├── AbortedError                  409 request_aborted
    ├── ShutDownError                 503 shut_down
    ├── HeadersTooLargeError          431 headers_too_large
    ├── UnsupportedEncodingError      415 unsupported_encoding
    ├── WrongMethodError              405 method_not_allowed
    ├── AccessError                   401 invalid_key
    │   ├── MissingKeyError           401 missing_key
    │   └── ForbiddenError            403 forbidden
    │       └── ModelForbiddenError   403 model_forbidden
    ├── RetryLaterError               500 internal_error       always with Retry-After; raised as one of these
    │   ├── RateLimitedError          429 rate_limited
    │   └── FleetError                503 no_worker
    │       ├── PassingError          503 no_worker            waited out where there is a queue
    │       │   ├── AllUnhealthyError 503 all_unhealthy
    │       │   ├── OverloadedError   503 overloaded
    │       │   └── PinnedElsewhereError  503 pinned_unavailable
    │       ├── QueueFullError        503 queue_full
    │       ├── QueueTimeoutError     503 queue_timeout
    │       ├── PinnedDrainingError   503 pinned_unavailable
    │       └── OutOfSocketsError     503 out_of_sockets
    └── UpstreamError                 502 upstream_error
        ├── UpstreamUnreachableError  502 upstream_unreachable
        ├── UpstreamClosedError       502 upstream_closed
        │   └── UnreadRequestError    502 upstream_closed      sent again, mostly
        ├── UpstreamTimeoutError      504 upstream_timeout
        ├── GarbledAnswerError        502 upstream_garbled
        ├── NoTransferError           502 no_kv_transfer_params
        └── PrefillError              502 prefill_failed

Those that one part alone raises are defined there. Expected outcomes (no worker, cold prefix) are values inside the
router; they become exceptions only at its edge. The bodies have the form of the OpenAI API:
`{"error": {"message", "type", "param", "code"}}`.
"""

import copyreg
from typing import Any, ClassVar, TypedDict

from router.shown_value import show_value


class ErrorDetail(TypedDict):
    """Inside of an error body."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    """What a client gets as JSON."""

    error: ErrorDetail


#: Longest message sent to a client; a worker's answer quoted in it may be of any length.
MAX_MESSAGE_CHARS = 2_000


def error_body(message: str, error_type: str, *, param: str | None = None, code: str | None = None) -> ErrorBody:
    """An error in the form of the OpenAI API."""
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[: MAX_MESSAGE_CHARS - 1] + "…"
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


class DovecoteError(Exception):
    """Root of all errors raised here."""

    status_code: ClassVar[int] = 500
    error_type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets it pass between processes whatever its class is made from: its message and attributes go."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    @property
    def headers(self) -> dict[str, str]:
        """Extra response headers."""
        return {}

    def to_body(self) -> ErrorBody:
        """The body that a client sees."""
        return error_body(self.message, self.error_type, param=self.param, code=self.code)


class ConfigError(DovecoteError):
    """A configuration cannot be used: says where, what stands there and what would be valid."""

    code = "invalid_config"

    def __init__(self, *, file_name: str, key_path: str, value: object, problem: str, shows_value: bool = True) -> None:
        parts = [file_name, key_path, show_value(value) if shows_value else "", problem]
        super().__init__(": ".join(part for part in parts if part), param=key_path or None)
        self.file_name = file_name
        self.key_path = key_path
        self.value = value
        self.problem = problem


class RequestError(DovecoteError):
    """The client sent something that cannot be served."""

    status_code = 400
    error_type = "invalid_request_error"
    code = "invalid_request"


class UnknownModelError(RequestError):
    """No rank of the fleet serves the model asked for."""

    status_code = 404
    code = "model_not_found"


class BodyTooLargeError(RequestError):
    """The body is over the configured limit."""

    status_code = 413
    code = "body_too_large"


class DuplicateRequestError(RequestError):
    """A request of the same id is still running."""

    status_code = 409
    code = "duplicate_request"


class UnknownStateError(RequestError):
    """The request rests on a stored response or session that no engine here is known to keep."""

    status_code = 404
    code = "state_not_found"


class LostStateError(RequestError):
    """The engine that kept what the request rests on is gone, and that with it."""

    status_code = 410
    code = "state_lost"


class AccessError(DovecoteError):
    """The call brings a key that is none of the router's."""

    status_code = 401
    error_type = "authentication_error"
    code = "invalid_key"

    @property
    def headers(self) -> dict[str, str]:
        """How a key is brought."""
        return {"www-authenticate": "Bearer"} if self.status_code == 401 else {}


class MissingKeyError(AccessError):
    """The call brings no key, and needs one."""

    code = "missing_key"


class ForbiddenError(AccessError):
    """The key is good, and not for what was asked."""

    status_code = 403
    error_type = "permission_error"
    code = "forbidden"


class ModelForbiddenError(ForbiddenError):
    """The key is not for this model."""

    code = "model_forbidden"


class RetryLaterError(DovecoteError):
    """Not now: the same request may be taken a little later."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After`, so that clients wait instead of hammering."""
        return {"retry-after": str(self.retry_after_s)}


class RateLimitedError(RetryLaterError):
    """The key has asked for as much as it may for now."""

    status_code = 429
    error_type = "rate_limit_error"
    code = "rate_limited"


class FleetError(RetryLaterError):
    """No rank can take the request now."""

    status_code = 503
    error_type = "service_unavailable_error"
    code = "no_worker"


class PassingError(FleetError):
    """What stands in the way can pass by itself: a worker comes, comes back, or has room again."""


class AllUnhealthyError(PassingError):
    """Ranks serve the model, none of them is healthy and taking requests."""

    code = "all_unhealthy"


class OverloadedError(PassingError):
    """Every worker that could take the request has as many as it may."""

    code = "overloaded"


class QueueFullError(FleetError):
    """As many wait for a worker as may, or the request had to go for another tenant's."""

    code = "queue_full"


class QueueTimeoutError(FleetError):
    """No worker had room, or took requests at all, in the time that a request may wait."""

    code = "queue_timeout"


class PinnedElsewhereError(PassingError):
    """The engine that keeps what the request rests on takes no request now; no other could serve it."""

    code = "pinned_unavailable"


class PinnedDrainingError(FleetError):
    """That engine is to get nothing new any more."""

    code = "pinned_unavailable"


class UpstreamError(DovecoteError):
    """A worker failed the request."""

    status_code = 502
    error_type = "upstream_error"
    code = "upstream_error"


class UpstreamUnreachableError(UpstreamError):
    """No connection to the worker."""

    code = "upstream_unreachable"


class UpstreamClosedError(UpstreamError):
    """The worker closed before its answer was complete."""

    code = "upstream_closed"


class UpstreamTimeoutError(UpstreamError):
    """The worker did not answer in time."""

    status_code = 504
    code = "upstream_timeout"
