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
#: Prompts of so few blocks are first looked at as a whole: most are of no known conversation.
_FEW_BLOCKS = 64
#: Blocks looked at from a prompt's end; more new text than that starts a new conversation.
_MAX_NEW_BLOCKS = 16_384


class _End(msgspec.Struct):
    session: SessionId
    #: Where in its prompt it stands, and the hash that is looked under for it; see `_find_landmark`.
    place: int
    landmark: int
    #: First block after it in the turn that went on from it; None while none did.
    next_block: int | None = None


class Fingerprints:
    """Ends of conversations without names. Owned by the event loop."""

    def __init__(self, *, max_ends: int = MAX_ENDS) -> None:
        self._max_ends = max_ends
        self._ends: OrderedDict[int, _End] = OrderedDict()
        #: Where ends stand, by landmark, and how many do: a prompt is looked at in those places alone.
        self._places: dict[int, dict[int, int]] = {}

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
        for at in range(max(0, len(hashes) - _END_BLOCKS), len(hashes)):
            self._keep(hashes, at, session)
        return session

    def _name(self, hashes: Sequence[int], place: int | None) -> SessionId:
        return SessionId(f"chain-{hashes[-1]:016x}") if place is None else self._ends[hashes[place]].session

    def _find_end(self, hashes: Sequence[int]) -> int | None:
        """Last block of the known conversation that goes on; None where none does."""
        last = len(hashes) - 1
        if last < _FEW_BLOCKS and self._ends.keys().isdisjoint(hashes):
            return None
        least = max(0, last - _MAX_NEW_BLOCKS + 1)
        landmark = _find_landmark(last)
        while landmark >= 0 and 2 * landmark >= least:
            places = self._places.get(hashes[landmark])
            # Of a landmark that very many conversations have there is at most one look a block.
            for place in sorted((each for each in places or () if least <= each <= last), reverse=True):
                end = self._ends.get(hashes[place])
                if end is not None:
                    goes_on = place == last or end.next_block in {None, hashes[place + 1]}
                    return place if goes_on else None
            landmark = (landmark + 1) // 2 - 1
        return None

    def _keep(self, hashes: Sequence[int], place: int, session: SessionId) -> None:
        block = hashes[place]
        known = self._ends.get(block)
        if known is None or known.session != session:
            if known is not None:
                self._leave(known)
            end = self._ends[block] = _End(session, place, hashes[_find_landmark(place)])
            places = self._places.get(end.landmark)
            if places is None:
                self._places[end.landmark] = {place: 1}
            else:
                places[place] = places.get(place, 0) + 1
        self._ends.move_to_end(block)
        if len(self._ends) > self._max_ends:
            self._leave(self._ends.popitem(last=False)[1])

    def _leave(self, end: _End) -> None:
        places = self._places[end.landmark]
        places[end.place] -= 1
        if not places[end.place]:
            del places[end.place]
        if not places:
            del self._places[end.landmark]


def _find_landmark(place: int) -> int:
    """The block whose hash an end is looked under: 0, 1, 3, 7, ... Conversations that part before have another one."""
    return (1 << (place + 1).bit_length() - 1) - 1


def _can_be_told(hashes: Sequence[int], prompt_tokens: int) -> bool:
    return prompt_tokens >= MIN_PROMPT_TOKENS and bool(hashes)
