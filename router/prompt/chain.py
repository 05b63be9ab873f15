"""Block hashes of growing prompts: a prompt that continues a known one is hashed from there on.

Takes token ids, gives the chain of their full blocks. Bounded by entries and by tokens; a chain that is not
remembered is hashed whole, so the result never depends on what is remembered.
"""

import threading
from array import array
from collections import OrderedDict

from prefix_index.base import BlockChain
from wire.block_hash import block_hashes

#: Tokens remembered over all chains: some 120 MB with their hashes at 16 tokens a block.
DEFAULT_LIMIT_TOKENS = 16_000_000
_BYTES_PER_TOKEN = 4
#: Two prompts are taken for turns of one conversation when this many first tokens are equal.
_HEAD_TOKENS = 256


class ChainCache:
    """Chains by conversation, least recently used out first. Safe to call from several threads."""

    def __init__(self, limit_tokens: int = DEFAULT_LIMIT_TOKENS) -> None:
        self.limit_tokens = limit_tokens
        self.held_tokens = 0
        self._lock = threading.Lock()
        self._chains: OrderedDict[tuple[object, ...], tuple[bytes, tuple[int, ...]]] = OrderedDict()

    def find_chain(self, ids: "array[int]", block_tokens: int, seed: int, conversation: str | None) -> BlockChain:
        """Chain of `ids`, equal to hashing all of them.

        Args:
            ids: Prompt tokens.
            block_tokens: Tokens in a block.
            seed: Namespace of the prompt.
            conversation: Session where known; it only decides which remembered chain is tried.
        """
        data = ids.tobytes()
        key = (seed, block_tokens, conversation, data[: _HEAD_TOKENS * _BYTES_PER_TOKEN])
        with self._lock:
            known = self._chains.get(key)
        hashes = self._continue(known, ids, data, block_tokens, seed)
        self._remember(key, data, hashes)
        return BlockChain(block_tokens=block_tokens, hashes=hashes, token_count=len(ids))

    @staticmethod
    def _continue(
        known: tuple[bytes, tuple[int, ...]] | None, ids: "array[int]", data: bytes, block_tokens: int, seed: int
    ) -> tuple[int, ...]:
        kept = () if known is None else known[1][: _common_bytes(known[0], data) // (_BYTES_PER_TOKEN * block_tokens)]
        start = len(kept) * block_tokens
        return (*kept, *block_hashes(ids[start:], block_tokens, kept[-1] if kept else seed))

    def _remember(self, key: tuple[object, ...], data: bytes, hashes: tuple[int, ...]) -> None:
        with self._lock:
            old = self._chains.pop(key, None)
            if old is not None:
                self.held_tokens -= len(old[0]) // _BYTES_PER_TOKEN
            self._chains[key] = (data, hashes)
            self.held_tokens += len(data) // _BYTES_PER_TOKEN
            while self.held_tokens > self.limit_tokens:
                _, (dropped, _hashes) = self._chains.popitem(last=False)
                self.held_tokens -= len(dropped) // _BYTES_PER_TOKEN


def _common_bytes(left: bytes, right: bytes) -> int:
    """Length of the common start. Cost: a few comparisons of memory, none a byte in Python."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    # Invariant: [0, low) is equal, [0, high) is not.
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
