"""Conversations that were prepared before, found again by the bytes of their messages.

A turn's end is kept as the length and digest of the messages member up to its last message. A new request's member is
digested once, in steps of the lengths known for its beginning; the longest known end is the conversation it goes on
with. Bounded by count and bytes, least recently used out first.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from prefix_index import block_hashes
from router.prompt.append import Opening, TurnState
from router.prompt.native import Json
from router.prompt.prefixes import Beginning, PrefixDigest, find_end, name_beginnings

#: Bytes kept over all conversations: some 300 of 100k tokens with one block size of 16.
DEFAULT_BYTES = 256 << 20
DEFAULT_CONVERSATIONS = 4_096
#: Ends of earlier turns kept of one conversation, for clients that go back a step or ask twice.
ENDS_PER_CONVERSATION = 4
#: Chains kept of one conversation: block sizes and namespaces.
_MAX_CHAINS = 8
#: A hash in a tuple: the number and its slot.
_HASH_BYTES = 40

ChainKey = tuple[int, int]


class TokenRun:
    """Ids of one conversation and their block hashes; ids are never changed in place."""

    __slots__ = ("_chains", "ids")

    def __init__(self, ids: "array[int]", chains: Mapping[ChainKey, tuple[int, ...]] | None = None) -> None:
        self.ids = ids
        self._chains = dict(chains or {})

    def hash_blocks(self, block_tokens: int, seed: int) -> tuple[int, ...]:
        """Hash of every full block from `seed` on; only blocks that were not hashed before cost anything."""
        known = self._chains.get((block_tokens, seed), ())
        start = len(known) * block_tokens
        if len(self.ids) - start < block_tokens:
            return known
        hashes = known + tuple(block_hashes(self.ids[start:], block_tokens, known[-1] if known else seed))
        if len(self._chains) < _MAX_CHAINS or (block_tokens, seed) in self._chains:
            self._chains[block_tokens, seed] = hashes
        return hashes

    def extend(self, kept_tokens: int, more: "array[int]") -> "TokenRun":
        """A run that keeps the first tokens, and the hashes of their blocks, and goes on with others."""
        kept = {key: hashes[: kept_tokens // key[0]] for key, hashes in tuple(self._chains.items())}
        ids: array[int] = array("I")
        # One copy; a slice and a sum would be two of them.
        ids.frombytes(memoryview(self.ids).cast("B")[: kept_tokens * ids.itemsize])
        ids.extend(more)
        return TokenRun(ids, kept)

    @property
    def size_bytes(self) -> int:
        """Memory it takes, nearly."""
        return 4 * len(self.ids) + _HASH_BYTES * sum(map(len, self._chains.values()))


class KnownPart(msgspec.Struct, frozen=True):
    """What is known of a turn."""

    state: TurnState | Opening
    #: Ids of its run that stand for it up to its last cut; of an opening all that it has.
    tokens: int


class TurnEnd:
    """The end of one known turn."""

    __slots__ = ("conversation", "digest", "known", "length", "run")

    def __init__(self, length: int, digest: int, run: TokenRun, known: KnownPart) -> None:
        #: Bytes of the messages member up to its last message, and their digest.
        self.length, self.digest = length, digest
        #: Ids of the latest turn of its conversation, which begin with those of this one that are known to stay.
        self.run = run
        #: Settled once another turn goes on from it; by whatever thread, and always to the same.
        self.known = known
        self.conversation: Conversation | None = None


class Messages:
    """A request's messages as they are looked for and kept: each byte is digested once."""

    __slots__ = ("beginnings", "digest", "member")

    def __init__(self, setting: bytes, member: Json, seed: int) -> None:
        self.member = member
        self.beginnings = name_beginnings(setting, member, seed)
        self.digest = PrefixDigest(member, seed)


class Conversation:
    """Ends of one conversation's turns, oldest first; all of one run."""

    __slots__ = ("beginnings", "ends", "size_bytes")

    def __init__(self) -> None:
        self.ends: list[TurnEnd] = []
        self.beginnings: list[int] = []
        self.size_bytes = 0


class ConversationCounts(msgspec.Struct, frozen=True):
    """What is held."""

    conversations: int
    tokens: int
    size_bytes: int


class ConversationStore:
    """Known conversations of one prompter. Safe in several threads."""

    def __init__(
        self, *, limit_bytes: int = DEFAULT_BYTES, limit_conversations: int = DEFAULT_CONVERSATIONS, seed: int = 0
    ) -> None:
        self._limit_bytes = limit_bytes
        self._limit_conversations = limit_conversations
        self._seed = seed
        self._lock = threading.Lock()
        self._beginnings: dict[int, Beginning[TurnEnd]] = {}
        self._conversations: OrderedDict[int, Conversation] = OrderedDict()
        self._size_bytes = 0
        self._tokens = 0

    def count(self) -> ConversationCounts:
        """What is held now; the bytes never exceed the limit."""
        return ConversationCounts(len(self._conversations), self._tokens, self._size_bytes)

    def read(self, setting: bytes, member: Json) -> Messages:
        """A messages member, to be looked for.

        Args:
            setting: What must be equal besides the messages: tools, template options.
            member: The messages as JSON.
        """
        return Messages(setting, member, self._seed)

    def find(self, messages: Messages) -> TurnEnd | None:
        """The longest known turn that messages go on from."""
        with self._lock:
            for name in reversed(messages.beginnings):
                known = self._beginnings.get(name)
                end = None if known is None else known.find(messages.digest)
                if end is not None and end.conversation is not None:
                    self._conversations.move_to_end(id(end.conversation))
                    return end
        return None

    def put(
        self, messages: Messages, run: TokenRun, known: KnownPart, *, after: TurnEnd | None = None,
        instead_of: TurnEnd | None = None,
    ) -> None:  # fmt: skip
        """Keep a turn.

        Args:
            messages: Its messages.
            run: Its ids.
            known: What is needed to go on.
            after: The turn whose kept ids its run goes on from; None for a new conversation.
            instead_of: A turn it goes on from with other ids, whose conversation is forgotten.
        """
        length = find_end(messages.member)
        if length is None:
            return
        end = TurnEnd(length, messages.digest.at(length), run, known)
        with self._lock:
            if instead_of is not None and instead_of.conversation is not None:
                self._forget(instead_of.conversation)
            conversation = self._choose_conversation(after)
            self._add(conversation, end, messages.beginnings[-1])
            self._shrink()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._beginnings.clear()
            self._conversations.clear()
            self._size_bytes = self._tokens = 0

    def _choose_conversation(self, after: TurnEnd | None) -> Conversation:
        known = None if after is None else after.conversation
        # A turn that goes on from an earlier end is a fork: a conversation of its own.
        if known is not None and known.ends[-1] is after and id(known) in self._conversations:
            return known
        fresh = Conversation()
        self._conversations[id(fresh)] = fresh
        return fresh

    def _add(self, conversation: Conversation, end: TurnEnd, beginning: int) -> None:
        if conversation.ends:
            self._tokens -= len(conversation.ends[-1].run.ids)
        for earlier in conversation.ends:
            earlier.run = end.run
        end.conversation = conversation
        conversation.ends.append(end)
        conversation.beginnings.append(beginning)
        self._tokens += len(end.run.ids)
        if len(conversation.ends) > ENDS_PER_CONVERSATION:
            self._forget_end(conversation.ends.pop(0), conversation.beginnings.pop(0))
        size_bytes = end.run.size_bytes + sum(map(_state_bytes, conversation.ends))
        self._size_bytes += size_bytes - conversation.size_bytes
        conversation.size_bytes = size_bytes
        self._conversations.move_to_end(id(conversation))
        crowded = self._beginnings.setdefault(beginning, Beginning()).add(end)
        if crowded is not None and crowded.conversation is not None and crowded.conversation is not conversation:
            self._forget(crowded.conversation)

    def _shrink(self) -> None:
        while self._conversations and (
            self._size_bytes > self._limit_bytes or len(self._conversations) > self._limit_conversations
        ):
            self._forget(next(iter(self._conversations.values())))

    def _forget(self, conversation: Conversation) -> None:
        if self._conversations.pop(id(conversation), None) is None:
            return
        self._size_bytes -= conversation.size_bytes
        self._tokens -= len(conversation.ends[-1].run.ids)
        for end, beginning in zip(conversation.ends, conversation.beginnings, strict=True):
            self._forget_end(end, beginning)

    def _forget_end(self, end: TurnEnd, beginning: int) -> None:
        known = self._beginnings.get(beginning)
        end.conversation = None
        if known is not None:
            known.discard(end)
            if not known.lengths:
                del self._beginnings[beginning]


def _state_bytes(end: TurnEnd) -> int:
    state = end.known.state
    texts = (value for message in state.context for value in message.values() if isinstance(value, str))
    tail_chars = len(state.tail) if isinstance(state, Opening) else 0
    return 1_000 + 500 * len(state.context) + sum(map(len, texts)) + tail_chars
