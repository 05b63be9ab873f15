"""Chance as a function: the n-th draw of a request depends on its seed and n, and on nothing else.

So a request samples the same tokens alone, in a batch, and after it was retracted.
"""

from hashlib import blake2b

_DRAW_BITS = 53


def uniform_draw(seed: int, output_index: int) -> float:
    """Uniform in [0, 1): the draw for output token `output_index` of a request with this seed."""
    digest = blake2b(f"{seed}:{output_index}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> (64 - _DRAW_BITS)) / (1 << _DRAW_BITS)


def seed_of_request(engine_seed: int, request_id: str) -> int:
    """Seed for a request that brings none."""
    digest = blake2b(f"{engine_seed}:{request_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
