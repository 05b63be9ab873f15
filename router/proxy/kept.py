"""State inside one engine that requests name: ids of stored responses and opened sessions, and what is known of them.

Ids come from clients and engines alike and are held within limits. Responses and sessions have namespaces of their
own, so that a session opened under a chosen name never stands in for somebody's response. Pure.
"""

import re
from collections import OrderedDict
from typing import Any

from router.errors import RequestError
from wire.ids import SessionId

#: Longest id; engines make some 40 characters.
MAX_ID_CHARS = 256
#: Responses whose conversation is remembered.
MAX_RESPONSES = 65_536
_PATH = re.compile(r"/v1/responses/([^/]*)(/cancel)?")
_PATH_ID = re.compile(r"[A-Za-z0-9._:\-]{1,256}")


def name_response(response_id: str) -> str:
    """Pin of a stored response."""
    return f"response:{response_id}"


def name_session(session_id: str) -> str:
    """Pin of an opened session."""
    return f"session:{session_id}"


def check_id(value: Any, param: str) -> str:
    """An id that a client sent.

    Raises:
        RequestError: It is none, or too long.
    """
    if not is_id(value):
        raise RequestError(f"{param} must be a string of 1 to {MAX_ID_CHARS} characters", param=param)
    return str(value)


def is_id(value: Any) -> bool:
    """Whether a value can be the name of kept state."""
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS


def find_response_path(path: str) -> tuple[str, bool] | None:
    """Id of the response that a path is about, and whether it is to be cancelled; None for other paths."""
    found = _PATH.fullmatch(path)
    return None if found is None else (found[1], found[2] is not None)


def check_path_id(text: str) -> str:
    """An id out of a path, which goes into another path as it is.

    Raises:
        RequestError: It has other characters than ids have, or too many.
    """
    if _PATH_ID.fullmatch(text) is None:
        problem = f"the id of a response is made of 1 to {MAX_ID_CHARS} letters, digits and . _ : -"
        raise RequestError(problem, param="response_id")
    return text


class ResponseChains:
    """Conversations that are held together by the id of each answer, the longest unused first. Bounded.

    Every turn of such a conversation names another id; without this each would look like a session of its own.
    """

    def __init__(self, *, max_responses: int = MAX_RESPONSES) -> None:
        self._sessions: OrderedDict[str, SessionId] = OrderedDict()
        self._max_responses = max_responses

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, response_id: str) -> SessionId:
        """The conversation that a response belongs to; where nothing is known it begins with this response."""
        return self._sessions.get(response_id) or SessionId(response_id)

    def store(self, response_id: str, session: SessionId | None) -> None:
        """A response was given in a conversation, which it names itself where it has no name."""
        self._sessions[response_id] = session or SessionId(response_id)
        self._sessions.move_to_end(response_id)
        while len(self._sessions) > self._max_responses:
            self._sessions.popitem(last=False)
