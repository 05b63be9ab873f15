"""The ASGI scope of a request that came over a connection of our own server.

Source: ASGI specification, HTTP & WebSocket, version 2.3.
"""

from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import httptools

from router.proxy.client import Scope
from router.proxy.framing import BadHttpError
from router.proxy.headers import Headers

_ASGI = {"version": "3.0", "spec_version": "2.3"}
#: Longest target that is remembered: clients ask for a few paths over and over.
_MAX_KNOWN_BYTES = 256


def find_address(said: Any) -> tuple[str, int] | None:
    """Host and port of a socket's address; None where it has none."""
    return (str(said[0]), int(said[1])) if isinstance(said, tuple) and len(said) >= 2 else None


def make_scope(target: bytes, headers: Headers, method: str, version: str, connection: dict[str, Any]) -> Scope:
    """The scope of a request.

    Args:
        target: As its first line says it.
        headers: Lines, names in lower case.
        method: Of the request.
        version: Of HTTP.
        connection: What is the same for all requests of its connection.

    Raises:
        BadHttpError: It asks for no path.
    """
    path, raw_path, query = (_read_known if len(target) <= _MAX_KNOWN_BYTES else _read_target)(target)
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": version,
        "method": method,
        "path": path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        **connection,
    }


def _read_target(target: bytes) -> tuple[str, bytes, bytes]:
    """Path, the same as it came, and query."""
    url = httptools.parse_url(target)
    if not url.path:
        raise BadHttpError("no path is asked for")
    path = url.path.decode("ascii")
    return unquote(path) if "%" in path else path, url.path, url.query or b""


_read_known = lru_cache(maxsize=256)(_read_target)
