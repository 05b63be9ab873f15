"""Which call may pass: by default none. Pure.

A path is open, a client's, the metrics page, or an admin's; what is not known to be one of the first three is the
last, whatever its spelling, so that a route that somebody adds is closed until it is opened. Where callers without a
key are let in, one with an unknown key is such a caller: clients of OpenAI's kind always send some word.
Source: docs/faults.md G06.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

from router.access.keys import KeyRing
from router.access.principal import Principal, Role

_BEARER = b"bearer "
#: Lines that bring keys.
KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})
#: The page that a key of `Role.METRICS` opens.
METRICS_PATH = "/metrics"
#: Stands for a caller of an open path.
PASSER_BY = Principal(name="none", role=Role.METRICS)


class Refusal(StrEnum):
    """Why a call does not pass."""

    MISSING_KEY = "missing_key"
    INVALID_KEY = "invalid_key"
    #: The key is good, and not for this path.
    FORBIDDEN = "forbidden"
    #: It is for this path, which another port serves.
    OTHER_PORT = "other_port"


class AccessGate:
    """The keys of the moment, and which paths need which."""

    def __init__(
        self,
        ring: KeyRing,
        *,
        anonymous: Principal | None,
        is_client_path: Callable[[str], bool],
        open_paths: Iterable[str] = (),
        has_admin_port: bool = False,
    ) -> None:
        """Set the rules.

        Args:
            ring: Keys.
            anonymous: Whom a call without a key is from; None where each needs one.
            is_client_path: Whether clients may ask for a path, whatever the method.
            open_paths: Paths that need no key.
            has_admin_port: Whether a port of its own serves what is neither open, nor a client's, nor the metrics.
        """
        self.ring = ring
        self._anonymous = anonymous
        self._is_client_path = is_client_path
        self._open_paths = frozenset(open_paths)
        self._has_admin_port = has_admin_port

    def judge(
        self, path: str, headers: Iterable[tuple[bytes, bytes]], *, is_admin_port: bool = False
    ) -> Principal | Refusal:
        """Whom a call is from, or why it does not pass.

        Args:
            path: Decoded, as routes see it.
            headers: Lines, names in lower case.
            is_admin_port: Whether it came to the port for admins.
        """
        if path in self._open_paths:
            return PASSER_BY
        principal = self._identify(headers)
        if not isinstance(principal, Principal):
            return principal
        return self._find_refusal(principal, path, is_admin_port=is_admin_port) or principal

    def _find_refusal(self, principal: Principal, path: str, *, is_admin_port: bool) -> Refusal | None:
        if self._is_client_path(path):
            return Refusal.FORBIDDEN if principal.role is Role.METRICS else None
        if path == METRICS_PATH and principal.role is not Role.CLIENT:
            return None
        if principal.role is not Role.ADMIN:
            # A caller without a good key learns that one would help, and not which paths there are.
            return Refusal.MISSING_KEY if principal is self._anonymous else Refusal.FORBIDDEN
        return Refusal.OTHER_PORT if self._has_admin_port and not is_admin_port else None

    def _identify(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal | Refusal:
        anonymous = self._anonymous
        if anonymous is not None and not len(self.ring):
            # A router without keys passes its clients' own on (to engines that want one) and judges none.
            return anonymous
        secret = find_secret(headers)
        if secret is None:
            return Refusal.MISSING_KEY if anonymous is None else anonymous
        return self.ring.find(secret) or anonymous or Refusal.INVALID_KEY


def find_secret(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key that a call brings, as OpenAI's clients or as Anthropic's do; None without one.

    Two different ones make none that is valid: whose of them counts must not depend on their order.
    """
    found: bytes | None = None
    for name, value in headers:
        if name == b"authorization":
            said = value[len(_BEARER) :].strip() if value[: len(_BEARER)].lower() == _BEARER else b""
        elif name == b"x-api-key":
            said = value.strip()
        else:
            continue
        if found is not None and said != found:
            return b""
        found = said
    return found
