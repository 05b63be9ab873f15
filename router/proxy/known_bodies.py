"""Bodies whose beginning was checked before: only what is new in them is looked over for syntax.

An agent sends its whole conversation every turn. The state of a JSON parser after a prefix depends on that prefix
alone, so a body that begins with the bytes of an earlier valid one, up to the end of its last message, is as valid as
the same body without those messages. Prefixes are told apart by XXH3-128 with a seed of this process.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from router.errors import RequestError
from router.prompt.prefixes import Beginning, PrefixDigest, find_end, read_appended
from router.proxy import splice
from router.proxy.members import Members

#: Bodies that are remembered; some 500 bytes each.
MAX_BODIES = 8_192
#: Shorter bodies cost less to look over than to find; known ones are grouped by so much of them.
MIN_BYTES = 128 << 10


class KnownBody(msgspec.Struct, frozen=True):
    """The checked beginning of a body."""

    #: Bytes up to the end of its last message, and their digest.
    length: int
    digest: int
    #: Where its messages begin.
    messages_start: int
    #: Whether it is as `Members` that are sound are.
    is_sound: bool


class KnownBodies:
    """Beginnings of checked bodies, least recently used out first. Owned by the event loop."""

    def __init__(self, *, max_bodies: int = MAX_BODIES, seed: int | None = None) -> None:
        self._max_bodies = max_bodies
        self._seed = secrets.randbits(63) if seed is None else seed
        self._beginnings: dict[int, Beginning[KnownBody]] = {}
        self._bodies: OrderedDict[KnownBody, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._bodies)

    def decode(self, data: bytes, decode_members: Callable[[bytes], Members]) -> Members:
        """Members of a body that is a JSON object.

        Args:
            data: The body.
            decode_members: Looks all of a body over.

        Raises:
            RequestError: It is no JSON object.
        """
        if len(data) < MIN_BYTES:
            return decode_members(data)
        digest = PrefixDigest(data, self._seed)
        name = digest.at(MIN_BYTES)
        beginning = self._beginnings.get(name)
        known = None if beginning is None else beginning.find(digest, len(data))
        members = None if known is None else _decode_rest(data, known, decode_members)
        if members is None:
            known, members = None, decode_members(data)
        self._keep(name, digest, data, members, known)
        return members

    def _keep(self, name: int, digest: PrefixDigest, data: bytes, members: Members, known: KnownBody | None) -> None:
        if known is not None:
            self._bodies.move_to_end(known)
        messages = members.by_name.get("messages")
        if messages is None:
            return
        start = splice.find_value(data, members.by_name, "messages") if known is None else known.messages_start
        end = find_end(messages)
        if start is None or end is None or start + end < MIN_BYTES:
            return
        body = KnownBody(start + end, digest.at(start + end), start, members.is_sound)
        if body in self._bodies:
            return
        self._bodies[body] = name
        crowded = self._beginnings.setdefault(name, Beginning()).add(body)
        if crowded is not None:
            self._bodies.pop(crowded, None)
        if len(self._bodies) > self._max_bodies:
            self._forget(*self._bodies.popitem(last=False))

    def _forget(self, body: KnownBody, name: int) -> None:
        beginning = self._beginnings[name]
        beginning.discard(body)
        if not beginning.lengths:
            del self._beginnings[name]


def _decode_rest(data: bytes, known: KnownBody, decode_members: Callable[[bytes], Members]) -> Members | None:
    """Members of a body of which only what follows `known` is looked over; None where that cannot be told."""
    appended = read_appended(data, known.length)
    if appended is None:
        return None
    try:
        members = decode_members(data[: known.messages_start] + appended)
    except RequestError:
        # The words of an error are about the whole body.
        return None
    short = members.by_name.get("messages")
    if short is None or not appended.startswith(short):
        return None
    end = len(data) - (len(appended) - len(short))
    whole = {**members.by_name, "messages": memoryview(data)[known.messages_start : end]}
    return Members(whole, is_sound=known.is_sound and members.is_sound)
