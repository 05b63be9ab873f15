"""Names of pages: a SHA-256 chain over their tokens, as SGLang publishes it.

A page's digest covers all tokens from the start of its namespace, so equal digests mean equal prefixes.
Events carry the first 8 bytes as a signed integer; chaining always uses the whole digest.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol, cast

from engine_shim.engine.cache.token_bytes import TOKEN_BYTES, unpack_tokens

_SALT_PREFIX = b"sglang-cache-salt-v1\0"


def namespace_digest(cache_salt: str | None) -> bytes:
    """What the first page of a namespace is chained from; empty for no salt."""
    if cache_salt is None:
        return b""
    return sha256(_SALT_PREFIX + cache_salt.encode("utf-8", "surrogatepass")).digest()


def chain_digests(prior: bytes, token_bytes: bytes | bytearray, page_tokens: int) -> list[bytes]:
    """Digests of the full pages in `token_bytes`, continuing after `prior`.

    Args:
        prior: Digest of the page before, or `namespace_digest`.
        token_bytes: Packed tokens; a partial page at the end is left out.
        page_tokens: Tokens in a page.

    Cost: one SHA-256 of `page_tokens` tokens a page.
    """
    step = page_tokens * TOKEN_BYTES
    digests = []
    for start in range(0, len(token_bytes) - step + 1, step):
        prior = sha256(prior + token_bytes[start : start + step]).digest()
        digests.append(prior)
    return digests


def event_hash(digest: bytes) -> int:
    """The signed 64-bit name that events carry."""
    return int.from_bytes(digest[:8], "big", signed=True)


#: A digest of all tokens up to the page's end, or an id that stands for them.
PageName = bytes | int


class PageNaming(Protocol):
    """How a cache names its pages to others."""

    def chain(self, prior: PageName, token_bytes: bytes | bytearray, page_tokens: int) -> Sequence[PageName]:
        """Names of the full pages in `token_bytes`, after the page named `prior`."""
        ...

    def event_hashes(self, names: Sequence[PageName]) -> tuple[int, ...]:
        """The names as events carry them."""
        ...

    def event_tokens(self, names: Sequence[PageName], token_bytes: bytes | bytearray) -> tuple[int, ...]:
        """The tokens of pages of these names as events carry them."""
        ...


class HashedPages:
    """Pages are known by their tokens, and named by a digest of all tokens up to their end."""

    def chain(self, prior: PageName, token_bytes: bytes | bytearray, page_tokens: int) -> list[bytes]:
        """See `chain_digests`."""
        return chain_digests(_as_digest(prior), token_bytes, page_tokens)

    def event_hashes(self, names: Sequence[PageName]) -> tuple[int, ...]:
        """See `event_hash`."""
        return tuple(event_hash(_as_digest(name)) for name in names)

    def event_tokens(self, names: Sequence[PageName], token_bytes: bytes | bytearray) -> tuple[int, ...]:  # noqa: ARG002
        """All of them."""
        return unpack_tokens(token_bytes)


def _as_digest(name: PageName) -> bytes:
    if isinstance(name, int):
        raise TypeError(f"page {name} is named by an id and not by a digest")
    return name


class NamedPages:
    """Pages are known by one id each, which stands for the whole prefix already: the name is the id."""

    def chain(self, prior: PageName, token_bytes: bytes | bytearray, page_tokens: int) -> tuple[int, ...]:  # noqa: ARG002
        """The ids; `prior` is in them."""
        if page_tokens != 1:
            raise ValueError(f"pages of {page_tokens} ids have no name of their own")
        return unpack_tokens(token_bytes)

    def event_hashes(self, names: Sequence[PageName]) -> tuple[int, ...]:
        """The ids."""
        return tuple(cast("Sequence[int]", names))

    def event_tokens(self, names: Sequence[PageName], token_bytes: bytes | bytearray) -> tuple[int, ...]:  # noqa: ARG002
        """The ids once more."""
        return self.event_hashes(names)


HASHED_PAGES = HashedPages()
NAMED_PAGES = NamedPages()
