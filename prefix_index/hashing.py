"""Block hashing by the fastest code that was built: the native module, else Python. Same results."""

from collections.abc import Sequence

from wire import block_hash

try:
    from prefix_index import _core
except ImportError:
    _core = None  # type: ignore[assignment]


def native_available() -> bool:
    """True when the compiled module was built and loads."""
    return _core is not None


def block_hashes(token_ids: Sequence[int], block_tokens: int, seed: int) -> list[int]:
    """`wire.block_hash.block_hashes`, with the GIL released while native code runs."""
    if _core is None:
        return block_hash.block_hashes(token_ids, block_tokens, seed)
    if block_tokens < 1:
        raise ValueError(f"block_tokens must be 1 or more, not {block_tokens}")
    hashes: list[int] = _core.block_hashes(block_hash.token_bytes(token_ids), block_tokens, seed)
    return hashes
