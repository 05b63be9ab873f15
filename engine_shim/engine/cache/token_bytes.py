"""Token ids as packed bytes: 4 bytes each, little endian, as the page hash wants them.

A sequence keeps its ids in this form once, so that comparing and hashing 100k tokens costs no Python loop.
"""

import sys
from array import array
from collections.abc import Sequence

#: Bytes of one packed token id.
TOKEN_BYTES = 4


def pack_tokens(token_ids: Sequence[int]) -> bytes:
    """Pack ids; raises `OverflowError` for an id outside 32 unsigned bits."""
    packed = array("I", token_ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_tokens(token_bytes: bytes | bytearray) -> tuple[int, ...]:
    """The ids that `pack_tokens` was given."""
    packed = array("I")
    packed.frombytes(token_bytes)
    if sys.byteorder == "big":
        packed.byteswap()
    return tuple(packed)
