"""Compressed bodies made plain, within a limit, so that a few bytes cannot become gigabytes. Pure."""

import zlib
from enum import StrEnum

#: Content codings that are taken.
CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})


class InflateProblem(StrEnum):
    """Why a body cannot be made plain."""

    CORRUPT = "corrupt"
    TOO_LONG = "too_long"


def inflate(data: bytes, limit_bytes: int) -> bytes | InflateProblem:
    """A gzip or zlib body decompressed, all members of it; never more than `limit_bytes` and one byte are made."""
    pieces: list[bytes] = []
    left_bytes = limit_bytes
    while True:
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        try:
            piece = stream.decompress(data, left_bytes + 1)
        except zlib.error:
            return InflateProblem.CORRUPT
        left_bytes -= len(piece)
        if left_bytes < 0:
            return InflateProblem.TOO_LONG
        if not stream.eof:
            return InflateProblem.CORRUPT
        pieces.append(piece)
        # A gzip file may be padded.
        data = stream.unused_data.lstrip(b"\0")
        if not data:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
