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


def reads_name(facts: RankFacts | None, path: str) -> bool:
    """Whether the worker reads a name that the request can be aborted under from a header."""
    return facts is not None and facts.engine is Engine.SGLANG and path in _READ_NAME_HEADER


def name_headers(name: str) -> Headers:
    """Lines that name a request to a worker which reads them.

    The name is one made here: engines end every request whose name begins with the one they are told.
    """
    return [(b"x-override-rid", name.encode())]
