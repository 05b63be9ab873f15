"""Errors of the router in the form of the API that was asked, before the first byte and within a stream. Pure.

OpenAI's, which is every other path's too: `{"error": {message, type, param, code}}`, and the same as one event. The
Responses API names its events, so that its error is an `error` event that holds both forms. Anthropic's:
`{"type": "error", "error": {type, message}}`, with types of its own.
"""

from enum import StrEnum
from typing import Any

import msgspec

from router.errors import DovecoteError
from router.proxy.api import Api


class ErrorForm(StrEnum):
    """Whose form."""

    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"


#: Anthropic's types by status; others by their class.
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def find_error_form(path: str) -> ErrorForm:
    """Form in which a path's errors are told."""
    if path == Api.MESSAGES or path.startswith(f"{Api.MESSAGES}/"):
        return ErrorForm.ANTHROPIC
    return ErrorForm.RESPONSES if path == Api.RESPONSE else ErrorForm.OPENAI


def encode_error(error: DovecoteError, form: ErrorForm = ErrorForm.OPENAI) -> bytes:
    """The body of an error."""
    return msgspec.json.encode(_to_anthropic(error) if form is ErrorForm.ANTHROPIC else error.to_body())


def encode_error_event(error: DovecoteError, form: ErrorForm) -> bytes:
    """One event, after whatever came before it: the blank line in front ends one that the worker left unfinished."""
    body: Any = error.to_body()
    if form is ErrorForm.OPENAI:
        return b"\n\ndata: " + msgspec.json.encode(body) + b"\n\n"
    if form is ErrorForm.ANTHROPIC:
        body = _to_anthropic(error)
    else:
        detail = body["error"]
        told = {name: detail[name] for name in ("code", "message", "param")}
        body = {"type": "error", **told, "sequence_number": 0, **body}
    return b"\n\nevent: error\ndata: " + msgspec.json.encode(body) + b"\n\n"


def _to_anthropic(error: DovecoteError) -> dict[str, Any]:
    usual = "api_error" if error.status_code >= 500 else "invalid_request_error"
    kind = _ANTHROPIC_TYPES.get(error.status_code, usual)
    detail = error.to_body()["error"]
    return {"type": "error", "error": {"type": kind, "message": detail["message"], "code": detail["code"]}}
