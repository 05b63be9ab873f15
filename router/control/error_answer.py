"""Refusals of the control plane as answers, in the one form that all of its routes use."""

from fastapi.responses import JSONResponse

from router.errors import error_body


def answer_error(status: int, message: str, *, code: str | None, param: str | None = None) -> JSONResponse:
    """One refusal.

    Args:
        status: Of the answer.
        message: What is wrong, and what would be valid.
        code: The word to act on; `docs/http.md` lists them.
        param: What of the call it is about.
    """
    body = error_body(message, "invalid_request_error", param=param, code=code)
    return JSONResponse(body, status_code=status)
