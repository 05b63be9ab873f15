"""Which conversation a request belongs to, from the names that agents already send.

In this order, the first that is usable:

    X-Dovecote-Session, -Parent          our own
    X-Claude-Code-Session-Id             with -Agent-Id and -Parent-Agent-Id for sub-agents
    X-Dynamo-Session-Id, -Parent-Session-Id
    X-Session-ID, X-Parent-Session-ID    also OpenCode's
    X-SMG-Routing-Key
    Session-Id                           Codex (`session_id` on older versions)
    body: session_id, prompt_cache_key, previous_response_id, metadata.user_id (Anthropic)

A missing, empty or blank name is no session: it never becomes a name that all such requests share.
"""

import hashlib
import json
from collections.abc import Mapping

import msgspec

from wire.ids import SessionId

#: Longer names are replaced by their digest, so that two long names never become one.
MAX_NAME_CHARS = 256
#: Text longer than this is not looked into.
MAX_RAW_CHARS = 16_384


class SessionIdentity(msgspec.Struct, frozen=True):
    """Names of a conversation."""

    #: The conversation; None where the request names none.
    session: SessionId | None
    #: The conversation that started it; None for one of its own.
    parent: SessionId | None
    #: Header or body field it came from; "none" without one.
    source: str


NO_SESSION = SessionIdentity(None, None, "none")

#: Headers that name a session, each with the one that names its parent.
_SESSION_HEADERS: tuple[tuple[str, str | None], ...] = (
    ("x-dynamo-session-id", "x-dynamo-parent-session-id"),
    ("x-session-id", "x-parent-session-id"),
    ("x-smg-routing-key", None),
    ("session-id", None),
    ("session_id", None),
)
_CLAUDE_CODE = "x-claude-code-session-id"
#: Headers without one of which none names a session.
_NAMING = frozenset({"x-dovecote-session", _CLAUDE_CODE, *(name for name, _ in _SESSION_HEADERS)})
#: The same as they are received.
SESSION_HEADERS = frozenset(name.encode() for name in _NAMING)
_BODY_FIELDS = ("session_id", "prompt_cache_key", "previous_response_id")


def find_session(headers: Mapping[str, str], body: Mapping[str, object]) -> SessionIdentity:
    """The conversation a request belongs to.

    Args:
        headers: Request headers; names in any case.
        body: The parsed JSON body.
    """
    if not headers and not body:
        return NO_SESSION
    lowered = {name.lower(): value for name, value in headers.items()}
    named = None if _NAMING.isdisjoint(lowered) else _find_in_headers(lowered)
    return named or _find_in_body(body) or NO_SESSION


def _find_in_headers(headers: Mapping[str, str]) -> SessionIdentity | None:
    return (
        _find_pair(headers, "x-dovecote-session", "x-dovecote-parent")
        or _find_claude_code(headers)
        or _find_first_pair(headers)
    )


def clean_name(value: object) -> str | None:
    """A name fit for logs and maps: text, no blanks around, no control characters inside; None when nothing is left.

    A name over the limit becomes a digest of the whole.
    """
    if not isinstance(value, str) or len(value) > MAX_RAW_CHARS:
        return None
    name = "".join(char for char in value if char.isprintable()).strip()
    if len(name) > MAX_NAME_CHARS:
        name = f"sha256:{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return name or None


def _identify(session: str, parent: str | None, source: str) -> SessionIdentity:
    elder = None if parent is None or parent == session else SessionId(parent)
    return SessionIdentity(SessionId(session), elder, source)


def _find_pair(headers: Mapping[str, str], name: str, parent_name: str | None) -> SessionIdentity | None:
    session = clean_name(headers.get(name))
    if session is None:
        return None
    parent = None if parent_name is None else clean_name(headers.get(parent_name))
    return _identify(session, parent, name)


def _find_first_pair(headers: Mapping[str, str]) -> SessionIdentity | None:
    pairs = (_find_pair(headers, name, parent_name) for name, parent_name in _SESSION_HEADERS)
    return next((identity for identity in pairs if identity is not None), None)


def _find_claude_code(headers: Mapping[str, str]) -> SessionIdentity | None:
    """A main conversation is named by the session alone; a sub-agent by session and agent, its parent alike."""
    session = clean_name(headers.get(_CLAUDE_CODE))
    if session is None:
        return None
    agent = clean_name(headers.get("x-claude-code-agent-id"))
    if agent is None:
        return _identify(session, None, _CLAUDE_CODE)
    elder = clean_name(headers.get("x-claude-code-parent-agent-id"))
    parent = session if elder is None else _join(session, elder)
    return _identify(_join(session, agent), parent, _CLAUDE_CODE)


def _join(session: str, agent: str) -> str:
    joined = clean_name(f"{session}/{agent}")
    return session if joined is None else joined


def _find_in_body(body: Mapping[str, object]) -> SessionIdentity | None:
    for field in _BODY_FIELDS:
        session = clean_name(body.get(field))
        if session is not None:
            return _identify(session, None, field)
    metadata = body.get("metadata")
    user = clean_name(metadata.get("user_id")) if isinstance(metadata, Mapping) else None
    if user is None:
        return None
    return _identify(_find_session_in_user(user), None, "metadata.user_id")


def _find_session_in_user(user: str) -> str:
    """Claude Code packs its session into the user id: behind `_session_`, or in a JSON object; else the user it is."""
    if user.startswith("{"):
        try:
            packed = json.loads(user)
        except (ValueError, RecursionError):
            return user
        return clean_name(packed.get("session_id")) or user
    return clean_name(user.rpartition("_session_")[2]) or user
