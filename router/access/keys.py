"""Keys of clients as the router holds them: digests, never the keys.

A key is made by a machine for a machine: at least 32 characters, of which `make_key` draws 43 with 256 bits of chance.
Nobody can guess through such a space, so that a plain SHA-256 keeps it as well as a slow salted hash would, and takes
half a microsecond where a slow one would take the time of the whole request. Keys that people think up are refused by
their length (`dovecote hash-key`).
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable

import msgspec

from router.access.principal import Principal

#: Begins every key made here, so that scanners of source code know it for a secret.
PREFIX = "dvk_"
MIN_KEY_CHARS = 32
MAX_KEY_CHARS = 512
#: Names the digest in the configuration.
SCHEME = "sha256:"
_HEAD_BYTES = 8


class Key(msgspec.Struct, frozen=True):
    """A key's digest, and whom it stands for."""

    digest: bytes
    principal: Principal


class KeyRing:
    """All keys; looking one up takes the same time wherever a wrong one begins to differ."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._by_head: dict[bytes, tuple[Key, ...]] = {}
        self._size = 0
        for key in keys:
            head = key.digest[:_HEAD_BYTES]
            self._by_head[head] = (*self._by_head.get(head, ()), key)
            self._size += 1

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyRing) and self._by_head == other._by_head

    __hash__ = None  # type: ignore[assignment]  # compared, never a key itself

    def find(self, secret: bytes) -> Principal | None:
        """Whom a key stands for; None where it is not one of these."""
        digest = hashlib.sha256(secret).digest()
        found = None
        # The head is of a digest, which nobody can steer towards a known one; the rest is compared in constant time.
        for key in self._by_head.get(digest[:_HEAD_BYTES], ()):
            if hmac.compare_digest(key.digest, digest):
                found = key.principal
        return found

    def principals(self) -> tuple[Principal, ...]:
        """Whom there are keys of."""
        return tuple(key.principal for keys in self._by_head.values() for key in keys)


def make_key() -> str:
    """A new key."""
    return PREFIX + secrets.token_urlsafe(32)


def find_key_problem(key: str) -> str | None:
    """Why a key cannot be used; None where it can."""
    if not key.isascii() or not key.isprintable() or " " in key:
        return "a key is made of printable ASCII characters without blanks"
    if not MIN_KEY_CHARS <= len(key) <= MAX_KEY_CHARS:
        return (
            f"a key has {MIN_KEY_CHARS} to {MAX_KEY_CHARS} characters, drawn at random; `dovecote make-key` makes one"
        )
    return None


def hash_key(key: str) -> str:
    """A key as the configuration holds it."""
    return SCHEME + hashlib.sha256(key.encode()).hexdigest()


def read_digest(text: str) -> bytes | None:
    """The digest in a configured hash; None where it is none."""
    hexadecimal = text.removeprefix(SCHEME)
    if not text.startswith(SCHEME) or len(hexadecimal) != 64:
        return None
    try:
        return bytes.fromhex(hexadecimal)
    except ValueError:
        return None
