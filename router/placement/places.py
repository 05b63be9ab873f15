"""Where a prompt is noted: at 1, 2, 4, 8, ... blocks, where its chained hash stands for all before."""

from collections.abc import Sequence

_POWERS = tuple(1 << power for power in range(64))


def find_places(chain_hashes: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers of blocks at which one prompt is noted, with the hash there."""
    return [(blocks, chain_hashes[blocks - 1]) for blocks in _POWERS[: len(chain_hashes).bit_length()]]
