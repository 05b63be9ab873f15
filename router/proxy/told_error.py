"""What an error within an answer of status 200 says of whose fault it is. Pure.

Engines find out only after the head of a stream that a prompt is too long, and tell so in its first event, with the
status that the answer would have had as `code` (SGLang, vLLM) or in the word for its type (Anthropic's form). SGLang's
`/generate` tells neither: in a stream of it an error with a message alone is what had been answered 400 without a
stream, while failures of the engine end an answer by a finish reason `abort` with a status. After output has come,
nothing that the client sent is to blame any more.
Source: docs/faults.md D01; SGLang `srt/entrypoints/http_server.py`, `srt/managers/tokenizer_manager.py`.
"""

from typing import Any

#: Of an error that says no better.
SERVER_ERROR = 500
_STATUSES = range(400, 600)
_BY_TYPE = {
    "BadRequestError": 400,
    "invalid_request_error": 400,
    "NotFoundError": 404,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "overloaded_error": 503,
}


def read_error_status(error: Any, *, has_output: bool = False, untold_status: int = SERVER_ERROR) -> int:
    """The status that an answer would have had.

    Args:
        error: Its `error` member, of any kind but null.
        has_output: Whether some of the model's output came before.
        untold_status: What one with neither `code` nor `type` stands for in answers of its form.
    """
    if has_output or not isinstance(error, dict):
        return SERVER_ERROR
    code = error.get("code")
    if type(code) is int and code in _STATUSES:
        return code
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3 and int(code) in _STATUSES:
        return int(code)
    kind = error.get("type")
    if code is None and kind is None:
        return untold_status
    return _BY_TYPE.get(kind, SERVER_ERROR) if isinstance(kind, str) else SERVER_ERROR


def read_abort_status(finish_reason: Any, *, has_output: bool) -> int | None:
    """The status that an answer of SGLang's `/generate` would have had, from how it ended; None where it ended well.

    One that was aborted without a status was so by whoever asked for it.
    """
    if not isinstance(finish_reason, dict) or finish_reason.get("type") != "abort":
        return None
    status = finish_reason.get("status_code")
    return None if status is None else read_error_status({"code": status}, has_output=has_output)
