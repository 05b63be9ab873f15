"""What can go wrong in an HTTP request, in the OpenAI error form.

`ApiError` is the one exception of the server; each carries its status. `ClientGone` ends a request
whose caller has hung up, so nobody reads an answer.
"""

from http import HTTPStatus

import msgspec
from starlette.responses import Response

_TYPES = {
    HTTPStatus.BAD_REQUEST: "BadRequestError",
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowedError",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestTooLargeError",
    HTTPStatus.TOO_MANY_REQUESTS: "RateLimitError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
}


class ApiError(Exception):
    """A request that cannot be answered."""

    def __init__(self, status: HTTPStatus, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        #: Field of the request that is at fault.
        self.param = param

    def body(self) -> dict[str, object]:
        """`{"error": {message, type, param, code}}`."""
        kind = _TYPES.get(self.status, "InternalServerError")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": int(self.status)}}

    def response(self) -> Response:
        """The error as a plain JSON answer."""
        return json_response(self.body(), status=self.status)


class ClientGone(Exception):  # noqa: N818  (nobody's error)
    """The client closed the connection before its answer was complete."""


def bad_request(message: str, param: str | None = None) -> ApiError:
    """A 400 that names the field at fault."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, param=param)


def json_response(body: object, *, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    """An answer of JSON."""
    return Response(msgspec.json.encode(body), status_code=status, headers=headers, media_type="application/json")
