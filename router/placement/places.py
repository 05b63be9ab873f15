"""Where a prompt is noted: at 1, 2, 4, 8, ... blocks, where its chained hash stands for all before."""

from collections.abc import Sequence

_POWERS = tuple(1 << power for power in range(64))


def note(chain_hashes: Sequence[int]) -> list[int]:
    """The hashes there: the one at place `n` stands for the first `2 ** n` blocks."""
    return [chain_hashes[blocks - 1] for blocks in _POWERS[: len(chain_hashes).bit_length()]]
