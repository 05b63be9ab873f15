"""Compressed bodies made plain, within a limit, so that a few bytes cannot become gigabytes. Pure."""

import re
import zlib
from enum import StrEnum

#: Content codings that are taken.
CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})


#: Most members of one body, each a stream of its own. Whoever compresses in blocks of 64 KiB needs 1,024 for 64 MiB;
#: of empty ones a few megabytes would hold a hundred thousand.
MAX_MEMBERS = 4_096
#: So much is shown to a stream at a time: it copies what comes behind its end.
_FEED_BYTES = 64 << 10
#: A gzip file may be padded.
_PADDING = re.compile(rb"\0*+")


class InflateProblem(StrEnum):
    """Why a body cannot be made plain."""

    CORRUPT = "corrupt"
    TOO_LONG = "too_long"
    TOO_MANY_MEMBERS = "too_many_members"


def inflate(data: bytes, limit_bytes: int) -> bytes | InflateProblem:
    """A gzip or zlib body decompressed, all members of it; never more than `limit_bytes` and one byte are made.

    Cost: linear in what is read and made, and a copy of `_FEED_BYTES` at most for each member.
    """
    pieces: list[bytes] = []
    left_bytes, place = limit_bytes, 0
    view = memoryview(data)
    for _ in range(MAX_MEMBERS):
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        while not stream.eof:
            shown = view[place : place + _FEED_BYTES]
            try:
                piece = stream.decompress(shown, left_bytes + 1)
            except zlib.error:
                return InflateProblem.CORRUPT
            left_bytes -= len(piece)
            if left_bytes < 0:
                return InflateProblem.TOO_LONG
            if not shown and not stream.eof:
                return InflateProblem.CORRUPT
            pieces.append(piece)
            place += len(shown)
        padding = _PADDING.match(data, place - len(stream.unused_data))
        place = len(data) if padding is None else padding.end()
        if place == len(data):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return InflateProblem.TOO_MANY_MEMBERS
