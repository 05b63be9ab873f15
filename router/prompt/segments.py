"""Ids of text segments that were tokenized before, bounded by tokens and bytes, least recently used out first.

Lets a new conversation with a known head (tools, system prompt) pay only for what is its own.
"""

from array import array
from collections import OrderedDict

#: Tokens kept over all segments: about 40 conversations of 100k tokens.
DEFAULT_TOKENS = 4_000_000
#: Bytes of their texts and ids.
DEFAULT_BYTES = 128 << 20
#: What an entry costs besides text and ids: dict slot, two objects.
_ENTRY_BYTES = 200


class SegmentCache:
    """Ids by segment text. Owned by one `Tokenizer`; calls hold its lock."""

    def __init__(self, limit_tokens: int = DEFAULT_TOKENS, limit_bytes: int = DEFAULT_BYTES) -> None:
        self.limit_tokens = limit_tokens
        self.limit_bytes = limit_bytes
        #: Tokens held now, plus one a segment so that empty ones count; never above the limit after `put`.
        self.held_tokens = 0
        #: Bytes held now, never above the limit after `put`.
        self.held_bytes = 0
        self._ids: OrderedDict[str, array[int]] = OrderedDict()

    def find(self, segment: str) -> "array[int] | None":
        """Ids of a segment, which is then the most recently used."""
        ids = self._ids.get(segment)
        if ids is not None:
            self._ids.move_to_end(segment)
        return ids

    def put(self, segment: str, ids: "array[int]") -> None:
        """Keep a segment; what was not used longest makes room. One larger than the limits is not kept."""
        if segment in self._ids or len(ids) >= self.limit_tokens or _size_bytes(segment, ids) > self.limit_bytes:
            return
        self._ids[segment] = ids
        self._count(segment, ids, 1)
        while self.held_tokens > self.limit_tokens or self.held_bytes > self.limit_bytes:
            self._count(*self._ids.popitem(last=False), -1)

    def clear(self) -> None:
        """Forget all segments."""
        self._ids.clear()
        self.held_tokens = self.held_bytes = 0

    def _count(self, segment: str, ids: "array[int]", sign: int) -> None:
        self.held_tokens += sign * (len(ids) + 1)
        self.held_bytes += sign * _size_bytes(segment, ids)


def _size_bytes(segment: str, ids: "array[int]") -> int:
    # A text of wide characters takes up to four bytes each; the highest one decides and is not looked for.
    return len(segment) * (1 if segment.isascii() else 4) + 4 * len(ids) + _ENTRY_BYTES
