"""Reuse without a tokenizer: chunks of a prompt's text, and which rank is likely to hold which. Pure.

A rank that answered a request holds its chunks; the `cached_tokens` of answers correct that: a chunk that should have
been found and was not is gone, and with it all that was used longer ago. A guess, labelled `approximate` wherever it
shows, and never counted among exact predictions.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from prefix_index import block_hashes
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

    hashes: tuple[int, ...]
    size_bytes: int


def chain_text(
    pieces: Iterable[bytes], *, model: str, adapter: str | None = None, cache_salt: str | None = None
) -> TextChain:
    """Chunk a prompt's text.

    Args:
        pieces: What comes first in the prompt first: tools, then messages.
        model: Start of the namespace, which no token chain shares.
        adapter: LoRA adapter.
        cache_salt: Tenant's salt.
    """
    text = b"\0".join(pieces)
    whole = len(text) // CHUNK_BYTES * CHUNK_BYTES
    words = array("I", text[: min(whole, CHUNK_BYTES * MAX_PROMPT_CHUNKS)])
    seed = namespace_seed(f"text\0{model}", adapter=adapter, cache_salt=cache_salt)
    return TextChain(tuple(block_hashes(words, CHUNK_BYTES // words.itemsize, seed)), len(text))


class ApproximateReuse:
    """Chunks of every rank, most recently used last. Owned by the event loop."""

    def __init__(self, *, max_chunks: int = MAX_CHUNKS) -> None:
        self._max_chunks = max_chunks
        self._chunks: dict[Target, OrderedDict[int, None]] = {}
        self._admitted: set[WorkerId] = set()
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
        return {
            target: min(prompt_tokens - 1, int(_count_held(held, chain.hashes) * per_chunk))
            for target, held in self._chunks.items()
            if target.worker in self._admitted
        }

    def learn(self, target: Target, chain: TextChain, *, prompt_tokens: int | None, cached_tokens: int | None) -> None:
        """A rank answered.

        Args:
            target: The rank, which now holds the prompt.
            chain: The prompt.
            prompt_tokens: Its length, None where the engine does not say.
            cached_tokens: What the rank found of it.
        """
        held = self._chunks.setdefault(target, OrderedDict())
        if prompt_tokens and chain.size_bytes >= CHUNK_BYTES:
            self._learn_length(chain.size_bytes / prompt_tokens)
            if cached_tokens is not None:
                found = round(len(chain.hashes) * min(1.0, cached_tokens / prompt_tokens))
                self._correct(held, chain.hashes, found)
        # The start of a prompt is the last to go, so it is the most recently used.
        for chunk in reversed(chain.hashes):
            held[chunk] = None
            held.move_to_end(chunk)
        while len(held) > self._max_chunks:
            held.popitem(last=False)

    def forget(self, target: Target) -> None:
        """A rank's cache is gone."""
        self._chunks.pop(target, None)

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
            return
        self._admitted.discard(worker)
        for target in [target for target in self._chunks if target.worker == worker]:
            del self._chunks[target]

    def _learn_length(self, bytes_per_token: float) -> None:
        low, high = _PLAUSIBLE_BYTES
        if low <= bytes_per_token <= high:
            self.bytes_per_token += _LEARNING_RATE * (bytes_per_token - self.bytes_per_token)

    @staticmethod
    def _correct(held: OrderedDict[int, None], hashes: tuple[int, ...], found: int) -> None:
        """Drop the first chunk that was thought held and was not, and what was used before it."""
        # One chunk more may be missing only because chunks and blocks end at different places.
        missed = found + 1
        if missed >= len(hashes) or hashes[missed] not in held:
            return
        for chunk in list(held):
            del held[chunk]
            if chunk == hashes[missed]:
                break


def _count_held(held: OrderedDict[int, None], hashes: tuple[int, ...]) -> int:
    """Chunks in a row that are held; halves the range, for a rank that holds a chunk mostly holds those before it."""
    if not hashes or hashes[0] not in held:
        return 0
    low, high = 1, len(hashes)
    while low < high:
        middle = (low + high + 1) // 2
        if hashes[middle - 1] in held:
            low = middle
        else:
            high = middle - 1
    return low
