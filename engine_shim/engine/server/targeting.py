"""Who a request is and where it wants to go: its name, its model and its rank, from headers and body."""

from http import HTTPStatus

from starlette.requests import Request

from engine_shim.engine.server.errors import ApiError, bad_request
from engine_shim.engine.server.limits import MAX_NAME_CHARS

RANK_HEADER = "x-data-parallel-rank"
SESSION_HEADER = "x-session-id"


def check_model(model: str | None, served: str) -> None:
    """A request may leave the model out; a wrong one is not found.

    Raises:
        ApiError: 404.
    """
    if model not in (None, served):
        message = f"The model `{model}` does not exist. This server has `{served}`."
        raise ApiError(HTTPStatus.NOT_FOUND, message, param="model")


def find_rank(request: Request, body_rank: int | None, older_body_rank: int | None, dp_size: int) -> int | None:
    """The rank asked for: the header's, else the body's; None when neither names one.

    Raises:
        ApiError: 400 when it is no number or there is no such rank.
    """
    header = request.headers.get(RANK_HEADER)
    if header is not None:
        text = header.strip()
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise bad_request(
                f"header X-Data-Parallel-Rank must be a rank number, got {header[:40]!r}", "X-Data-Parallel-Rank"
            )
        return _check_rank(int(text), "X-Data-Parallel-Rank", dp_size)
    if body_rank is not None:
        return _check_rank(body_rank, "routed_dp_rank", dp_size)
    return None if older_body_rank is None else _check_rank(older_body_rank, "data_parallel_rank", dp_size)


def find_session(request: Request, session_id: str | None) -> str | None:
    """The conversation a request belongs to: the header's, else the body's."""
    return (request.headers.get(SESSION_HEADER) or session_id or "")[:MAX_NAME_CHARS] or None


def request_id_of(request: Request) -> str:
    """The name given by `X-Request-Id`, or the one that was made up for it."""
    name: str = request.state.request_id
    return name


def _check_rank(rank: int, param: str, dp_size: int) -> int:
    if not 0 <= rank < dp_size:
        raise bad_request(f"{param} must be 0 to {dp_size - 1}, got {rank}", param)
    return rank
