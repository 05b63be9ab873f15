"""What is done to every byte of a body, by the fastest code that was built: the native module, else Python.

Compiled from `router/prompt/text`. Hashes and places are the same either way. Looking a body over is native only: the
scan accepts, in one pass, what every decoder takes, and leaves all else to the decoder, which says what is wrong.
"""

import re
from importlib import import_module
from itertools import islice
from types import ModuleType

from xxhash import xxh3_64_intdigest

#: JSON as it was received.
Json = bytes | memoryview

_native: ModuleType | None
try:
    _native = import_module("router.prompt._text")
except ImportError:
    _native = None

_ROLE = re.compile(rb'"role"')


def text_available() -> bool:
    """True when the compiled module was built and loads."""
    return _native is not None


def look_over(data: bytes) -> dict[str, memoryview] | None:
    """Members of a JSON object that is sound; None where that is not sure.

    Sound: no name stands twice in it, and every part of it can be decoded.

    Cost: 30 us for 512 KB of prose, 65 us of code, 130 us of JSON within JSON.
    """
    if _native is None:
        return None
    members: dict[str, memoryview] | None = _native.look_over(data)
    return members


def find_roles(text: Json, most: int) -> list[int]:
    """The first places where `"role"` begins."""
    if _native is None:
        return [match.start() for match in islice(_ROLE.finditer(text), most)]
    places: list[int] = _native.find_roles(text, most)
    return places


def chain_chunks(pieces: tuple[Json, ...], *, chunk_bytes: int, seed: int, max_chunks: int) -> bytes:
    """Chained hashes of the whole chunks of some pieces with a zero byte between each two, packed.

    Args:
        pieces: The text.
        chunk_bytes: Bytes of a chunk.
        seed: Start of the chain.
        max_chunks: Chunks that are hashed at most.

    Cost: 45 us for 512 KB.
    """
    if _native is not None:
        packed: bytes = _native.chain_chunks(pieces, chunk_bytes, seed, max_chunks)
        return packed
    text, hashes = b"\0".join(pieces), bytearray()
    for start in range(0, min(len(text) // chunk_bytes, max_chunks) * chunk_bytes, chunk_bytes):
        seed = xxh3_64_intdigest(seed.to_bytes(8, "little") + text[start : start + chunk_bytes])
        hashes += seed.to_bytes(8, "little")
    return bytes(hashes)
