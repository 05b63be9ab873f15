"""Ids that nobody can guess, drawn from the system's randomness by the hundred: one call of the kernel for many.

One process draws from one store; a fork would repeat it, and no part of a router forks.
"""

import os
from collections.abc import Iterator

#: Ids of one draw.
DRAWN_AT_ONCE = 256
_ID_BYTES = 16


def _draw() -> Iterator[str]:
    while True:
        digits = os.urandom(DRAWN_AT_ONCE * _ID_BYTES).hex()
        for start in range(0, len(digits), 2 * _ID_BYTES):
            yield digits[start : start + 2 * _ID_BYTES]


_IDS = _draw()


def make_fresh_id() -> str:
    """32 hexadecimal digits that no other request has."""
    return next(_IDS)
