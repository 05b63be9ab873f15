"""Finds the longest known JSON that a longer one goes on from, by digests of its prefixes. Pure.

What is known is grouped by its beginning (up to the third message), so that a lookup digests a member once, in steps
of the lengths known for that beginning.
"""

from bisect import insort
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

import xxhash

from router.prompt.native import Json, find_roles

#: Ends that share a beginning and are compared with a request.
MAX_ENDS_PER_BEGINNING = 512
_BLANKS = b" \t\r\n"
_MESSAGE_END = ord("}")


class KnownEnd(Protocol):
    """Where something known ends."""

    @property
    def length(self) -> int:
        """Its bytes."""

    @property
    def digest(self) -> int:
        """Their XXH3-128."""


class PrefixDigest:
    """XXH3-128 of beginnings of a member; asked for longer and longer ones it reads each byte once."""

    __slots__ = ("_hasher", "_length", "member")

    def __init__(self, member: Json, seed: int) -> None:
        self.member = memoryview(member)
        self._hasher = xxhash.xxh3_128(seed=seed)
        self._length = 0

    def at(self, length: int) -> int:
        """Digest of the first bytes."""
        if length < self._length:
            self._hasher.reset()
            self._length = 0
        self._hasher.update(self.member[self._length : length])
        self._length = length
        return self._hasher.intdigest()


E = TypeVar("E", bound=KnownEnd)


class Beginning(Generic[E]):
    """Known ends that share a beginning."""

    __slots__ = ("_counts", "by_digest", "lengths")

    def __init__(self) -> None:
        #: Every length that some of them have, in order, and how many have it.
        self.lengths: list[int] = []
        self._counts: dict[int, int] = {}
        self.by_digest: OrderedDict[tuple[int, int], E] = OrderedDict()

    def add(self, end: E) -> E | None:
        """Keep an end; the one that had to make room."""
        if (end.length, end.digest) not in self.by_digest:
            known = self._counts.get(end.length, 0)
            self._counts[end.length] = known + 1
            if not known:
                insort(self.lengths, end.length)
        self.by_digest[end.length, end.digest] = end
        if len(self.by_digest) <= MAX_ENDS_PER_BEGINNING:
            return None
        _, oldest = self.by_digest.popitem(last=False)
        self._drop_length(oldest.length)
        return oldest

    def discard(self, end: E) -> None:
        """Forget an end, unless another took its place."""
        if self.by_digest.get((end.length, end.digest)) is end:
            del self.by_digest[end.length, end.digest]
            self._drop_length(end.length)

    def _drop_length(self, length: int) -> None:
        left = self._counts[length] - 1
        if left:
            self._counts[length] = left
        else:
            del self._counts[length]
            self.lengths.remove(length)

    def find(self, digest: PrefixDigest) -> E | None:
        """The longest end that a member goes on from."""
        member, found = digest.member, None
        size_bytes = len(member)
        for length in self.lengths:
            if length > size_bytes:
                break
            # All end with a message: most places of another conversation are no end of one.
            if member[length - 1] == _MESSAGE_END:
                found = self.by_digest.get((length, digest.at(length)), found)
        return found


def digest_prefix(member: Json, length: int, seed: int) -> int:
    """XXH3-128 of the first bytes."""
    return xxhash.xxh3_128_intdigest(memoryview(member)[:length], seed)


def name_beginnings(setting: bytes, member: Json, seed: int) -> list[int]:
    """Names of a member's first, second and third message begun; a short conversation has fewer.

    Args:
        setting: What must be equal besides.
        member: JSON that holds messages.
        seed: Of the digests.
    """
    names, start = [], 0
    hasher = xxhash.xxh3_64(setting, seed=seed)
    for place in find_roles(member, 3):
        hasher.update(memoryview(member)[start:place])
        names.append(hasher.intdigest())
        start = place + len(b'"role"')
    return names or [hasher.intdigest()]


def find_end(member: Json) -> int | None:
    """Offset just after the last message of a JSON array of objects; None where it ends otherwise."""
    place = _skip_blanks(member, len(member))
    if place == 0 or member[place - 1 : place] != b"]":
        return None
    place = _skip_blanks(member, place - 1)
    return place if member[place - 1 : place] == b"}" else None


def read_appended(member: Json, length: int) -> bytes | None:
    """The messages after `length` as a JSON array; None where the member does not go on with another message."""
    rest = bytes(member[length:]).lstrip(_BLANKS)
    if not rest.startswith(b",") or rest[1:].lstrip(_BLANKS).startswith(b"]"):
        return None
    return b"[" + rest[1:]


def _skip_blanks(member: Json, place: int) -> int:
    while place > 0 and member[place - 1] in _BLANKS:
        place -= 1
    return place
