"""Canonical identity of a block: XXH3-64 chained over tokens, started from a namespace.

Tokens come in, 64-bit hashes go out; the same numbers in every process that shares the secret.
An engine's own block hash never enters here: it is opaque and only resolves parents and removals.
"""

from array import array
from collections.abc import Sequence
from sys import byteorder

from xxhash import xxh3_64_intdigest

#: Largest token id a block can hold, exclusive.
TOKEN_LIMIT = 1 << 32
_DOMAIN = b"dovecote-namespace-1\0"
_LARGEST = (1 << 64) - 1


def namespace_seed(
    model: str,
    *,
    adapter: str | None = None,
    cache_salt: str | None = None,
    bigram: bool = False,
    secret: int = 0,
) -> int:
    """Start of the chain for one namespace: equal prompts of different namespaces share no block.

    Args:
        model: Name of the base model.
        adapter: LoRA name, or its id as text; None without one.
        cache_salt: Tenant's salt; None without one, which differs from an empty salt.
        bigram: The engine keys its cache by pairs of tokens (EAGLE).
        secret: Number shared by the routers of a fleet, so that outsiders cannot aim at a block.
    """
    fields = b"".join(_encode_text(text) for text in (model, adapter, cache_salt))
    return xxh3_64_intdigest(_DOMAIN + fields + (b"\1" if bigram else b"\0"), secret & 0xFFFF_FFFF_FFFF_FFFF)


def block_hashes(token_ids: Sequence[int], block_tokens: int, seed: int) -> list[int]:
    """Hash of every full block of `token_ids`, each chained to the one before it.

    Args:
        token_ids: Tokens from the first token after `seed`'s block, each below 2**32.
        block_tokens: Tokens in a block.
        seed: `namespace_seed` at the start of a prompt, else the hash of the block before.

    Raises:
        ValueError: `block_tokens` is below 1, or a token does not fit 32 bits.

    Cost: about 0.5 us a block of 16 tokens.
    Reference: tests/wire/block_hash_vectors.json.
    """
    if block_tokens < 1:
        raise ValueError(f"block_tokens must be 1 or more, not {block_tokens}")
    tokens = token_array(token_ids)
    if byteorder == "big":
        tokens.byteswap()
    data = tokens.tobytes()
    block_bytes = 4 * block_tokens
    parent = seed
    hashes: list[int] = []
    for start in range(0, len(data) - block_bytes + 1, block_bytes):
        parent = xxh3_64_intdigest(parent.to_bytes(8, "little") + data[start : start + block_bytes])
        hashes.append(parent)
    return hashes


def token_array(token_ids: Sequence[int]) -> "array[int]":
    """Tokens as 32-bit numbers in the machine's byte order.

    Raises:
        ValueError: A token is negative, does not fit 32 bits or is no integer.
    """
    try:
        return array("I", token_ids)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"token ids must be integers from 0 to {TOKEN_LIMIT - 1}: {error}") from error


def fold_keys(parent: int, keys: Sequence[str | int | bytes]) -> int:
    """Parent of a block whose content is more than its tokens (an image, a prompt embedding).

    Two blocks of equal tokens and different keys get different hashes, and so do all after them.
    """
    encoded = b"".join(_encode_key(key) for key in keys)
    return xxh3_64_intdigest(b"dovecote-keys-1\0" + parent.to_bytes(8, "little") + encoded)


def fold_name(name: int | bytes) -> int:
    """An engine's own name of a block as 64 bits: integers that fit as they are, all else hashed.

    The same in every process, so that a name in a snapshot is known again in an event. -1 and 2^64 - 1 stay apart.
    """
    if isinstance(name, bytes):
        return xxh3_64_intdigest(name, 0x5851_F42D_4C95_7F2D)
    if -(1 << 63) <= name < 1 << 63:
        return name & _LARGEST
    if 0 <= name <= _LARGEST:
        return _avalanche(name ^ 0xD6E8_FEB8_6659_FD93)
    return xxh3_64_intdigest(str(name).encode(), 1)


def _avalanche(bits: int) -> int:
    """How XXH3 mixes its last 64 bits."""
    bits = (bits ^ bits >> 37) * 0x1656_6791_9E37_79F9 & _LARGEST
    return bits ^ bits >> 32


def _encode_text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode("utf-8", "surrogatepass")
    return b"\1" + len(data).to_bytes(4, "little") + data


def _encode_key(key: str | int | bytes) -> bytes:
    if isinstance(key, bytes):
        return b"\2" + len(key).to_bytes(4, "little") + key
    return _encode_text(key) if isinstance(key, str) else b"\3" + _encode_text(str(key))
