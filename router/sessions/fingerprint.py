"""Which conversation a request goes on with when it names none: the longest known one whose chain starts it.

Takes the block hashes of prompts, gives session names. A conversation is known by the hash of its last full blocks;
its name comes from its first request, the same in every router. Two requests that go on from the same end in
different ways are two conversations: equal heads never become one session that everybody shares.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from wire.ids import SessionId

#: Conversation ends that are remembered.
MAX_ENDS = 100_000
#: Shorter prompts are too alike to be told apart.
MIN_PROMPT_TOKENS = 256
#: Full blocks at the end that may be followed: the last one may hold a generation prompt that the next turn lacks.
_END_BLOCKS = 2
#: Blocks looked at from a prompt's end; more new text than that starts a new conversation.
_MAX_NEW_BLOCKS = 16_384


class _End(msgspec.Struct):
    session: SessionId
    #: First block after it in the turn that went on from it; None while none did.
    next_block: int | None = None


class Fingerprints:
    """Ends of conversations without names. Owned by the event loop."""

    def __init__(self, *, max_ends: int = MAX_ENDS) -> None:
        self._max_ends = max_ends
        self._ends: OrderedDict[int, _End] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ends)

    def find(self, hashes: Sequence[int], prompt_tokens: int) -> SessionId | None:
        """The conversation of a prompt, as `identify` would name it now. Changes nothing.

        Args:
            hashes: Its full blocks, chained; they start with model, adapter and salt.
            prompt_tokens: Its length.
        """
        if not _can_be_told(hashes, prompt_tokens):
            return None
        return self._name(hashes, self._find_end(hashes))

    def identify(self, hashes: Sequence[int], prompt_tokens: int) -> SessionId | None:
        """The conversation of a prompt, which is then known by its new end; None for a short prompt. See `find`."""
        if not _can_be_told(hashes, prompt_tokens):
            return None
        place = self._find_end(hashes)
        session = self._name(hashes, place)
        if place is not None and place + 1 < len(hashes):
            self._ends[hashes[place]].next_block = hashes[place + 1]
        for block in hashes[-_END_BLOCKS:]:
            self._keep(block, session)
        return session

    def _name(self, hashes: Sequence[int], place: int | None) -> SessionId:
        return SessionId(f"chain-{hashes[-1]:016x}") if place is None else self._ends[hashes[place]].session

    def _find_end(self, hashes: Sequence[int]) -> int | None:
        """Last block of the known conversation that goes on; None where none does."""
        if self._ends.keys().isdisjoint(hashes):
            return None
        last = len(hashes) - 1
        for place in range(last, max(-1, last - _MAX_NEW_BLOCKS), -1):
            end = self._ends.get(hashes[place])
            if end is not None:
                goes_on = place == last or end.next_block in {None, hashes[place + 1]}
                return place if goes_on else None
        return None

    def _keep(self, block: int, session: SessionId) -> None:
        known = self._ends.get(block)
        if known is None or known.session != session:
            self._ends[block] = _End(session)
        self._ends.move_to_end(block)
        if len(self._ends) > self._max_ends:
            self._ends.popitem(last=False)


def _can_be_told(hashes: Sequence[int], prompt_tokens: int) -> bool:
    return prompt_tokens >= MIN_PROMPT_TOKENS and bool(hashes)
