"""The seam between the engine and what computes: rows of tokens in, next tokens out.

The engine makes the rows from admission's plan; `toy.py` computes them with torch, `timed.py` by a
cost model. A forward owns the contents of the pages and nothing else: it never allocates one.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """How to choose a row's next token."""

    #: 0 is greedy.
    temperature: float
    #: In (0, 1].
    top_p: float
    #: The row's chance, uniform in [0, 1).
    uniform: float


class ForwardRow(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive tokens of one sequence to compute in this step."""

    #: The tokens to compute, 4 bytes little endian each; at least one.
    token_bytes: bytes
    #: Position of the first of them in the sequence; everything before it is in `pages`.
    start_token: int
    #: Pages of the sequence in order, enough for the tokens of this row. Read only.
    pages: Sequence[int]
    #: None where the sequence goes on with known tokens, so that none is sampled.
    draw: Draw | None


class Forward(Protocol):
    """Computes the rows of a step."""

    def run(self, rows: Sequence[ForwardRow]) -> list[int | None]:
        """Write the rows' keys and values into their pages; return one next token for each row with a draw."""
        ...
