"""What an error within an answer of status 200 says of whose fault it is. Pure.

Engines find out only after the head of a stream that a prompt is too long, and tell so in its first event, with the
status that the answer would have had as `code` (SGLang, vLLM) or in the word for its type (Anthropic's form). After
output has come, nothing that the client sent is to blame any more.
Source: docs/faults.md D01.
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


def read_error_status(error: Any, *, has_output: bool = False) -> int:
    """The status that an answer would have had.

    Args:
        error: Its `error` member, of any kind but null.
        has_output: Whether some of the model's output came before.
    """
    if has_output or not isinstance(error, dict):
        return SERVER_ERROR
    code = error.get("code")
    if type(code) is int and code in _STATUSES:
        return code
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3 and int(code) in _STATUSES:
        return int(code)
    kind = error.get("type")
    return _BY_TYPE.get(kind, SERVER_ERROR) if isinstance(kind, str) else SERVER_ERROR
