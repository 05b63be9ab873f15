"""Between candidates that cost the same: the session's home, else a seeded hash, never the order of a list."""

from collections.abc import Sequence
from functools import lru_cache

import xxhash

from router.policy.base import PlacementQuery
from wire.ids import Target

#: Costs this close to the lowest are tied, in seconds,
TIE_S = 1e-3
#: or as a share of the lowest, whichever is more.
TIE_RATIO = 0.02

_MASK_64 = (1 << 64) - 1
#: Prime modulus of the weights in a tie.
_PRIME = (1 << 61) - 1


def hash_to_target(key: str, target: Target, seed: int) -> int:
    """Rendezvous weight of a key on a target: the highest wins, and only the losers of a lost target move."""
    return xxhash.xxh3_64_intdigest(f"{key}\0{target.worker}\0{target.dp_rank}".encode(), seed=seed & _MASK_64)


@lru_cache(maxsize=1 << 16)
def hash_target(target: Target) -> int:
    """A number that stands for a target, below the modulus of the weights."""
    return xxhash.xxh3_64_intdigest(f"{target.worker}\0{target.dp_rank}".encode()) % _PRIME


def pick_by_hash(key: str, targets: Sequence[Target], seed: int) -> Target:
    """The target with the highest weight for the key.

    Weights are `(a * hash(target) + b) mod p`, with `a` and `b` drawn from key and seed: each target is as likely to
    have the highest, and only what a lost target had moves. Thousands are weighed in a millisecond.
    """
    if len(targets) == 1:
        return targets[0]
    factor, offset = draw(key, seed)
    weights = [(factor * hash_target(target) + offset) % _PRIME for target in targets]
    highest = max(weights)
    if weights.count(highest) > 1:
        return max(target for target, weight in zip(targets, weights, strict=True) if weight == highest)
    return targets[weights.index(highest)]


def draw(key: str, seed: int) -> tuple[int, int]:
    """Factor and offset of a key's weights."""
    drawn = xxhash.xxh3_128_intdigest(key.encode(), seed=seed & _MASK_64)
    return (drawn >> 64) % (_PRIME - 1) + 1, (drawn & _MASK_64) % _PRIME


def find_window_s(lowest_s: float) -> float:
    """How far above the lowest cost a cost may lie and still be tied with it."""
    return max(TIE_S, TIE_RATIO * abs(lowest_s))


def find_tied(totals_s: Sequence[float]) -> list[int]:
    """Places of the costs within the tie window of the lowest, in their order."""
    lowest_s = min(totals_s)
    bound_s = lowest_s + find_window_s(lowest_s)
    return [place for place, total_s in enumerate(totals_s) if total_s <= bound_s]


def break_tie(tied: Sequence[Target], query: PlacementQuery, seed: int) -> Target:
    """One of the tied."""
    if query.home is not None and query.home in tied:
        return query.home
    return pick_by_hash(query.request_id, tied, seed)
