"""A snapshot as a chunked answer. Few are made at a time, so that memory is bounded; the others wait."""

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from wire.snapshot import CONTENT_TYPE

#: Snapshots that are whole in memory at a time, and callers that wait for theirs.
MAX_AT_ONCE = 2
MAX_WAITING = 256
#: Longest a caller may take from its turn to the last byte.
SEND_LIMIT_S = 120.0
#: Bytes handed to the socket at once.
_PIECE_BYTES = 1 << 20


class SnapshotSlots:
    """Who may have a snapshot made."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting = 0

    def take_place(self) -> bool:
        """Stand in the queue; False where it is full."""
        if self._waiting >= MAX_WAITING:
            return False
        self._waiting += 1
        return True

    def leave(self) -> None:
        """Leave the queue, served or not."""
        self._waiting -= 1


class SnapshotResponse(StreamingResponse):
    """One caller's snapshot, made when it is its turn."""

    def __init__(self, slots: SnapshotSlots, take: Callable[[], list[bytes]]) -> None:
        """Make nothing yet.

        Args:
            slots: The queue, in which this caller has its place already.
            take: Makes the snapshot's frames; runs in a thread.
        """
        super().__init__(self._pieces(take), media_type=CONTENT_TYPE)
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the turn, make, send; the place in the queue is left in any case."""
        try:
            async with self._slots.turns, asyncio.timeout(SEND_LIMIT_S):
                await super().__call__(scope, receive, send)
        except TimeoutError:
            # The caller does not read: without a last chunk it sees that the answer is not whole.
            return
        finally:
            self._slots.leave()

    @staticmethod
    async def _pieces(take: Callable[[], list[bytes]]) -> AsyncIterator[bytes]:
        frames = await asyncio.to_thread(take)
        piece: list[bytes] = []
        size_bytes = 0
        for place, frame in enumerate(frames):
            piece.append(frame)
            size_bytes += len(frame)
            # What is on its way needs no second place in memory.
            frames[place] = b""
            if size_bytes >= _PIECE_BYTES:
                yield b"".join(piece)
                piece, size_bytes = [], 0
        yield b"".join(piece)
