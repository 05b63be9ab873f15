"""Reuse without a tokenizer: chunks of a prompt's text, and which rank is likely to hold which. Pure.

A rank that answered a request holds its chunks; the `cached_tokens` of answers correct that: a chunk that should have
been found and was not is gone, and with it all that was used longer ago. A guess, labelled `approximate` wherever it
shows, and never counted among exact predictions.
"""

from array import array
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from prefix_index.hashing import unpack_hashes
from router.prompt.held_chunks import HASH_BYTES, HeldChunks
from router.prompt.native import Json, chain_chunks
from wire.block_hash import namespace_seed
from wire.ids import Target, WorkerId

#: Bytes of a chunk: some 64 tokens.
CHUNK_BYTES = 256
#: Chunks remembered of one rank: some 4 million tokens.
MAX_CHUNKS = 65_536
#: Chunks of one prompt that are looked at: 8 MB of text.
MAX_PROMPT_CHUNKS = 32_768
#: Bytes taken for one token until answers say better, and what is believed of them.
BYTES_PER_TOKEN = 4.0
_PLAUSIBLE_BYTES = (0.5, 64.0)
_LEARNING_RATE = 0.1


class TextChain(msgspec.Struct, frozen=True):
    """A prompt as chained hashes of its text's chunks, in one namespace."""

    #: The hashes one behind the other, `HASH_BYTES` each.
    packed: bytes
    size_bytes: int

    @property
    def hashes(self) -> "array[int]":
        """The hashes as numbers."""
        return unpack_hashes(self.packed)


def chain_text(
    pieces: Iterable[Json], *, model: str, adapter: str | None = None, cache_salt: str | None = None
) -> TextChain:
    """Chunk a prompt's text.

    Args:
        pieces: What comes first in the prompt first: tools, then messages.
        model: Start of the namespace, which no token chain shares.
        adapter: LoRA adapter.
        cache_salt: Tenant's salt.
    """
    text = tuple(pieces)
    packed = chain_chunks(
        text, chunk_bytes=CHUNK_BYTES, seed=_find_seed(model, adapter, cache_salt), max_chunks=MAX_PROMPT_CHUNKS
    )
    return TextChain(packed, sum(map(len, text)) + max(0, len(text) - 1))


@lru_cache(maxsize=1_024)
def _find_seed(model: str, adapter: str | None, cache_salt: str | None) -> int:
    return namespace_seed(f"text\0{model}", adapter=adapter, cache_salt=cache_salt)


class ApproximateReuse:
    """Chunks of every rank. Owned by the event loop."""

    def __init__(self, *, max_chunks: int = MAX_CHUNKS) -> None:
        self._max_chunks = max_chunks
        self._chunks: dict[Target, HeldChunks] = {}
        self._admitted: set[WorkerId] = set()
        #: Those of `_chunks` that get credit.
        self._credited: dict[Target, HeldChunks] = {}
        #: Bytes of text a token stands for, learned from answers.
        self.bytes_per_token = BYTES_PER_TOKEN

    def count_chunks(self) -> int:
        """Chunks remembered over all ranks."""
        return sum(map(len, self._chunks.values()))

    def estimate_tokens(self, size_bytes: int) -> int:
        """Length of a prompt of that many bytes."""
        return max(1, round(size_bytes / self.bytes_per_token))

    def find_reuse(self, chain: TextChain, prompt_tokens: int) -> dict[Target, int]:
        """Tokens that each admitted rank is likely to hold of a prompt of that length; 0 included."""
        per_chunk = prompt_tokens * CHUNK_BYTES / max(1, chain.size_bytes)
        most = prompt_tokens - 1
        return {target: min(most, int(held.count(chain.packed) * per_chunk)) for target, held in self._credited.items()}

    def learn(self, target: Target, chain: TextChain, *, prompt_tokens: int | None, cached_tokens: int | None) -> None:
        """A rank answered.

        Args:
            target: The rank, which now holds the prompt.
            chain: The prompt.
            prompt_tokens: Its length, None where the engine does not say.
            cached_tokens: What the rank found of it.
        """
        held = self._chunks.get(target)
        if held is None:
            held = self._chunks[target] = HeldChunks(self._max_chunks)
            self._find_credited()
        if prompt_tokens and chain.size_bytes >= CHUNK_BYTES:
            self._learn_length(chain.size_bytes / prompt_tokens)
            if cached_tokens is not None:
                found = round(len(chain.packed) // HASH_BYTES * min(1.0, cached_tokens / prompt_tokens))
                # One chunk more may be missing only because chunks and blocks end at different places.
                held.forget_from(chain.packed, found + 1)
        held.use(chain.packed)

    def forget(self, target: Target) -> None:
        """A rank's cache is gone."""
        self._chunks.pop(target, None)
        self._find_credited()

    @property
    def is_needed(self) -> bool:
        """Whether any worker gets credit this way."""
        return bool(self._admitted)

    def admits(self, worker: WorkerId) -> bool:
        """Whether a worker's ranks get credit this way."""
        return worker in self._admitted

    def admit(self, worker: WorkerId, *, admitted: bool) -> None:
        """Give a worker's ranks credit this way, or none; what they were thought to hold is then forgotten."""
        if admitted:
            self._admitted.add(worker)
        else:
            self._admitted.discard(worker)
            for target in [target for target in self._chunks if target.worker == worker]:
                del self._chunks[target]
        self._find_credited()

    def _find_credited(self) -> None:
        self._credited = {target: held for target, held in self._chunks.items() if target.worker in self._admitted}

    def _learn_length(self, bytes_per_token: float) -> None:
        low, high = _PLAUSIBLE_BYTES
        if low <= bytes_per_token <= high:
            self.bytes_per_token += _LEARNING_RATE * (bytes_per_token - self.bytes_per_token)
