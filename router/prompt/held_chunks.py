"""Chunks of text that one rank is thought to hold, the most recently used kept. Pure.

A chunk's hash names everything before it too, so what is held is a tree of prompts. It is kept as runs of chunks that
nothing branches off from, each with its hashes in a row: to find a prompt or to use it once more is one comparison of
bytes a run, however long the prompt. A chunk is never used without those before it, so that the run used longest ago
ends in the chunk to forget first.
"""

from collections import OrderedDict
from typing import Final

#: Bytes of one chunk's hash.
HASH_BYTES: Final = 8


class _Run:
    """Chunks in a row, used at the same time; what goes on from its last one."""

    __slots__ = ("above", "hashes", "next")

    def __init__(self, hashes: bytes, above: "_Run | None" = None) -> None:
        self.hashes = hashes
        #: The one before it; the start of all prompts has none.
        self.above = self if above is None else above
        self.next: dict[bytes, _Run] = {}

    def append(self, hashes: bytes) -> "_Run":
        """What goes on with these, in a run of its own."""
        run = self.next[hashes[:HASH_BYTES]] = _Run(hashes, self)
        return run

    def split(self, length: int) -> "_Run":
        """Leave only what is behind the first `length` bytes here; the run of those."""
        upper = self.above.append(self.hashes[:length])
        self.hashes, self.above = self.hashes[length:], upper
        upper.next[self.hashes[:HASH_BYTES]] = self
        return upper

    def leave(self) -> None:
        """Be gone from the run before it."""
        del self.above.next[self.hashes[:HASH_BYTES]]


class HeldChunks:
    """Chunks of one rank. A prompt is the hashes of its chunks, `HASH_BYTES` each, one behind the other."""

    def __init__(self, max_chunks: int) -> None:
        self._max_bytes = max_chunks * HASH_BYTES
        self._start = _Run(b"")
        #: The run used longest ago first; of those used together the last of the prompt.
        self._runs: OrderedDict[_Run, None] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return self._bytes // HASH_BYTES

    def count(self, prompt: bytes) -> int:
        """Chunks of a prompt's beginning that are held."""
        place, run = 0, self._start.next.get(prompt[:HASH_BYTES])
        while run is not None:
            if not prompt.startswith(run.hashes, place):
                place += _count_equal(run.hashes, prompt, place)
                break
            place += len(run.hashes)
            run = run.next.get(prompt[place : place + HASH_BYTES])
        return place // HASH_BYTES

    def use(self, prompt: bytes) -> None:
        """All of a prompt is held and was just used, its beginning last, which is thus the last to go."""
        run, place, used = self._start, 0, []
        while (after := run.next.get(prompt[place : place + HASH_BYTES])) is not None:
            length = _count_equal(after.hashes, prompt, place)
            place += length
            run = after if length == len(after.hashes) else after.split(length)
            used.append(run)
        if place < len(prompt):
            if used and not run.next:
                run.hashes += prompt[place:]
            else:
                used.append(run.append(prompt[place:]))
            self._bytes += len(prompt) - place
        for each in reversed(used):
            self._runs[each] = None
            self._runs.move_to_end(each)
        while self._bytes > self._max_bytes:
            self._forget_oldest(self._bytes - self._max_bytes)

    def forget_from(self, prompt: bytes, chunk: int) -> None:
        """Forget a chunk of a prompt, where it is held, and all that was used before it."""
        run, place, wanted = self._start, 0, chunk * HASH_BYTES
        if wanted >= len(prompt):
            return
        while place <= wanted:
            after = run.next.get(prompt[place : place + HASH_BYTES])
            if after is None:
                return
            length = _count_equal(after.hashes, prompt, place)
            if length < len(after.hashes) and place + length <= wanted:
                return
            run, place = after, place + len(after.hashes)
        while (oldest := next(iter(self._runs))) is not run:
            self._forget_oldest(len(oldest.hashes))
        self._forget_oldest(place - wanted)

    def _forget_oldest(self, most_bytes: int) -> None:
        """Forget so much of the run used longest ago, which nothing goes on from."""
        run = next(iter(self._runs))
        gone = min(most_bytes, len(run.hashes))
        self._bytes -= gone
        if gone < len(run.hashes):
            run.hashes = run.hashes[:-gone]
        else:
            run.leave()
            del self._runs[run]


def _count_equal(hashes: bytes, prompt: bytes, place: int) -> int:
    """Bytes of whole hashes that a run and a prompt have in common from a place of the prompt on."""
    if prompt.startswith(hashes, place):
        return len(hashes)
    # Halves the range: where two chunks are equal all before them are.
    low, high = 0, min(len(hashes), len(prompt) - place) // HASH_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if prompt.startswith(hashes[low * HASH_BYTES : middle * HASH_BYTES], place + low * HASH_BYTES):
            low = middle
        else:
            high = middle - 1
    return low * HASH_BYTES
