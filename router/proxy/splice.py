"""Changes single members of a JSON object in its received bytes; every other byte stays. Pure.

A body is forwarded as the client wrote it: key order, number spelling and unknown fields survive, which a
decode and encode would not promise. Takes bytes already known to be a valid JSON object.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

#: A string, or one character that changes the nesting or separates members.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]:,]', re.DOTALL)

#: What opens an object or separates two members, a name, the colon.
_NAME = re.compile(rb'[{,]\s*+"(?:[^"\\]++|\\.)*+"\s*+:\s*+', re.DOTALL)
_END = re.compile(rb"\s*+}\s*+")


class Member(msgspec.Struct, frozen=True):
    """Where one top-level member of an object lies in its bytes."""

    name: str
    #: Offset of the name's opening quote.
    start: int
    #: Offset of the colon.
    colon: int
    #: Offset just after the value, trailing blanks included.
    end: int


def find_members(body: bytes) -> list[Member]:
    """Top-level members in order, repeated names included.

    Cost: one regular-expression step a string or bracket; 1 ms for some 100 KB of prose.
    """
    return list(_iter_members(body))


def _iter_members(body: bytes) -> Iterator[Member]:
    depth = 0
    name: tuple[str, int] | None = None
    colon = 0
    for match in _TOKEN.finditer(body):
        start = match.start()
        first = body[start]
        if first in b"{[":
            depth += 1
        elif depth == 1 and first == 0x22 and name is None:
            name = (msgspec.json.decode(match.group(), type=str), start)
        elif depth == 1 and first == 0x3A:
            colon = start
        elif depth == 1 and first in b",}":
            if name is not None:
                yield Member(name[0], name[1], colon, start)
            name = None
            depth -= first == 0x7D
        elif first in b"}]":
            depth -= 1


def has_repeated_names(body: bytes, members: Mapping[str, bytes | memoryview]) -> bool:
    """Whether a top-level name comes twice: parsers disagree on which one counts.

    Args:
        body: The object.
        members: Its decoded members, one a name.
    """
    # A repeated member adds at least `"":1,` to what the distinct ones need in the tightest form.
    tight = 1 + sum(len(msgspec.json.encode(name)) + 2 + len(value) for name, value in members.items())
    if len(body) - tight < 5 or _holds_only(body, members):
        return False
    return len(find_members(body)) != len(members)


def _holds_only(body: bytes, members: Mapping[str, bytes | memoryview]) -> bool:
    """Whether the body is these members one after the other and blanks between; their values are not looked into."""
    place = body.index(b"{")
    for value in members.values():
        named = _NAME.match(body, place)
        if named is None or not body.startswith(value, named.end()):
            return False
        place = named.end() + len(value)
    return _END.fullmatch(body, place) is not None


def splice(body: bytes, *, put: Mapping[str, bytes], cut: Iterable[str]) -> bytes:
    """The object with some members replaced or added, and others gone.

    Args:
        body: A valid JSON object.
        put: New values by name, as JSON. Where the name is there its value is replaced, else the member
            is put first.
        cut: Names to remove; absent ones are fine.
    """
    cuts = set(cut)
    members = find_members(body)
    kept = [_edited(body, member, put) for member in members if member.name not in cuts]
    present = {member.name for member in members} - cuts
    added = [msgspec.json.encode(name) + b":" + value for name, value in put.items() if name not in present]
    if len(kept) == len(members):
        return _replaced(body, members, put, added)
    return b"{" + b",".join([*added, *kept]) + b"}"


def _edited(body: bytes, member: Member, put: Mapping[str, bytes]) -> bytes:
    value = put.get(member.name)
    return body[member.start : member.end] if value is None else body[member.start : member.colon + 1] + value


def _replaced(body: bytes, members: list[Member], put: Mapping[str, bytes], added: list[bytes]) -> bytes:
    """Nothing is cut: keep even the blanks between members."""
    opening = body.index(b"{") + 1
    pieces = [body[:opening], b",".join(added), b"," if added and members else b""]
    position = opening
    for member in members:
        value = put.get(member.name)
        if value is not None:
            pieces += [body[position : member.colon + 1], value]
            position = member.end
    pieces.append(body[position:])
    return b"".join(pieces)


def put_first(body: bytes, put: Mapping[str, bytes]) -> bytes:
    """A non-empty object with more members before its others; their names must not be there yet."""
    opening = body.index(b"{") + 1
    added = b"".join(msgspec.json.encode(name) + b":" + value + b"," for name, value in put.items())
    return b"".join((body[:opening], added, body[opening:]))
