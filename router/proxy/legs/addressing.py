"""How a worker is told which of its ranks is to serve a request, and under which name it can be aborted. Pure.

Every engine reads the header where it reads one at all; SGLang reads it for chats and completions only, and has a
member of the body for the rest. A request can be aborted there by name: for chats and `/generate` the name goes in a
header, so that the body stays as it is.
Source: SGLang `srt/entrypoints/request_headers.py` and `routed_dp_rank`; vLLM `X-data-parallel-rank`.
"""

from router.fleet.rank import RankFacts
from router.fleet.role import Engine
from router.proxy import splice
from router.proxy.api import Api
from router.proxy.headers import Headers

_READ_RANK_HEADER = frozenset({Api.CHAT.value, Api.COMPLETION.value})
_READ_NAME_HEADER = frozenset({Api.CHAT.value, Api.GENERATE.value})


def address_body(body: bytes, facts: RankFacts | None, path: str) -> bytes:
    """The body with its rank where the worker reads it there; else as it is."""
    if facts is None or facts.engine is not Engine.SGLANG or facts.dp_size == 1 or path in _READ_RANK_HEADER:
        return body
    return splice.splice(body, put={"routed_dp_rank": str(facts.target.dp_rank).encode()}, cut=())


def name_headers(facts: RankFacts | None, path: str, name: str) -> Headers:
    """Lines by which the worker knows the request by a name that it can be aborted under; none where it reads none.

    The name is one made here: engines end every request whose name begins with the one they are told.
    """
    if facts is None or facts.engine is not Engine.SGLANG or path not in _READ_NAME_HEADER:
        return []
    return [(b"x-override-rid", name.encode())]
