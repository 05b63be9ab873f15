"""Write prompts for a trace that records block ids: equal ids give equal text, so what was shared is shared.

A block's words depend on the seed and its id alone. As chat, a prompt is cut into messages, and where it is cut
depends on its blocks alone, so that two prompts are equal, message marks included, up to their last common block:
what several conversations begin with is the system message; what a turn adds is, over the recorded length of the
answer before it, an assistant message, and for the rest a user message. Pure.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from struct import unpack

from simulator.graph.request import BlockRequest, BlockTrace
from simulator.traces.session import Message
from simulator.traces.words import block_text

#: Block texts kept, so that a prompt that grows costs its new blocks; about 25 MB.
KEPT_BLOCKS = 1 << 16


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class PromptWriter:
    """Prompts of one trace, in any order, each as often as needed.

    Args:
        trace: All requests that will be asked for.
        seed: Equal seeds give equal prompts; different ones share nothing.
        prompt_ratio: Share of the recorded length that is written, above 0 and at most 1.
        token_ids: Half-open range that ids are drawn from, where prompts are asked for as ids.
    """

    def __init__(
        self, trace: BlockTrace, *, seed: int, prompt_ratio: float = 1.0, token_ids: range = range(1_000, 4_000)
    ) -> None:
        self._block_tokens, self._seed, self._token_ids = trace.block_tokens, seed, token_ids
        self._ratio = prompt_ratio
        self._words = lru_cache(KEPT_BLOCKS)(self._draw_words)
        self._ids = lru_cache(KEPT_BLOCKS)(self._draw_ids)
        self._cuts = _MessageCuts(trace)

    def write_text(self, request: BlockRequest) -> str:
        """The prompt as one text of about as many words as the recording has tokens."""
        pieces = [self._words(block) for block in request.blocks]
        return " ".join(piece for piece in (*pieces, self._tail_words(request)) if piece)

    def write_ids(self, request: BlockRequest) -> list[int]:
        """The prompt as token ids, of exactly the recorded length, scaled."""
        ids: list[int] = []
        for block in request.blocks:
            ids += self._ids(block)
        wanted = max(1, round(request.prompt_tokens * self._ratio))
        tail = self._draw(f"tail/{request.request_id}", max(0, wanted - len(ids)))
        return [*ids, *tail][:wanted]

    def write_messages(self, request: BlockRequest) -> tuple[Message, ...]:
        """The prompt as chat messages; the last one is the user's."""
        messages: list[tuple[Role, list[str]]] = []
        for role, words in self._pieces(request):
            if not words:
                continue
            if messages and messages[-1][0] is role:
                messages[-1][1].append(words)
            else:
                messages.append((role, [words]))
        return tuple(Message(role.value, " ".join(words)) for role, words in _end_with_user(messages))

    def _pieces(self, request: BlockRequest) -> Iterator[tuple[Role, str]]:
        """(role, words) of the prompt, in order."""
        role = Role.USER
        for block in request.blocks:
            words = self._words(block)
            cuts = self._cuts.of_block(block)
            if not cuts:
                yield role, words
                continue
            cut_words = words.split(" ")
            places = [round(token * self._ratio) for token, _ in cuts]
            yield role, " ".join(cut_words[: places[0]])
            for (start, end), (_, role) in zip(pairwise([*places, len(cut_words)]), cuts, strict=True):
                yield role, " ".join(cut_words[start:end])
        tail = self._tail_words(request).split(" ")
        answer_words = round(self._cuts.answer_tokens(request) * self._ratio)
        if answer_words:
            yield Role.ASSISTANT, " ".join(tail[:answer_words])
        yield Role.USER, " ".join(tail[answer_words:])

    def _tail_words(self, request: BlockRequest) -> str:
        tokens = request.prompt_tokens - len(request.blocks) * self._block_tokens
        return block_text(f"{self._seed}/tail/{request.request_id}", max(0, tokens) * self._ratio)

    def _draw_words(self, block: int) -> str:
        return block_text(f"{self._seed}/{block}", self._block_tokens * self._ratio)

    def _draw_ids(self, block: int) -> "array[int]":
        # A block's share of the scaled length is that of its words.
        count = self._block_tokens if self._ratio == 1.0 else len(self._words(block).split())
        return array("I", self._draw(str(block), count))

    def _draw(self, name: str, count: int) -> list[int]:
        first, size = self._token_ids.start, len(self._token_ids)
        drawn: list[int] = []
        for serial in range(-(-count // 16)):
            digest = blake2b(f"{self._seed}/ids/{name}#{serial}".encode(), digest_size=64).digest()
            drawn.extend(first + number % size for number in unpack("<16I", digest))
        return drawn[:count]


def _end_with_user(messages: list[tuple[Role, list[str]]]) -> list[tuple[Role, list[str]]]:
    """The messages so that the last is the user's: the last word of another's becomes one."""
    if not messages:
        return [(Role.USER, ["go"])]  # shorter than a word after scaling; no endpoint takes an empty prompt
    role, pieces = messages[-1]
    if role is Role.USER:
        return messages
    *before, last = " ".join(pieces).split(" ")
    kept = [*messages[:-1], (role, before)] if before else messages[:-1]
    if kept and kept[-1][0] is Role.USER:
        return [*kept[:-1], (Role.USER, [*kept[-1][1], last])]
    return [*kept, (Role.USER, [last])]


class _MessageCuts:
    """Where messages begin, by the block in which they do; read from the whole trace once."""

    def __init__(self, trace: BlockTrace) -> None:
        self._block_tokens = trace.block_tokens
        #: block -> (token in it, role) of the messages that begin there, in order.
        self._cuts: dict[int, tuple[tuple[int, Role], ...]] = {}
        #: request -> tokens of its tail that are the answer before it.
        self._tail_answers: dict[str, int] = {}
        shared = _find_shared(trace)
        known: set[int] = set()
        last_outputs: dict[str, int] = {}
        for request in trace.requests:
            blocks = request.blocks
            common = _count_leading(blocks, known)
            output_tokens = last_outputs.get(request.session or "")
            if output_tokens is None or common == 0:
                self._begin(blocks, common, shared)
            elif self._role_at(blocks, common) is Role.USER:
                self._answer(request, common, output_tokens)
            elif common < len(blocks):
                self._cuts[blocks[common]] = ((0, Role.USER),)
            known.update(blocks[common:])
            if request.session is not None:
                last_outputs[request.session] = request.output_tokens

    def of_block(self, block: int) -> tuple[tuple[int, Role], ...]:
        """(token, role) of the messages that begin in a block."""
        return self._cuts.get(block, ())

    def answer_tokens(self, request: BlockRequest) -> int:
        """Tokens at the start of a prompt's tail that repeat the answer before it."""
        return self._tail_answers.get(request.request_id, 0)

    def _begin(self, blocks: Sequence[int], common: int, shared: set[int]) -> None:
        """The first prompt of a conversation: its shared head, then what is its own."""
        head = _count_leading(blocks, shared)
        if head and not common:
            self._cuts[blocks[0]] = ((0, Role.SYSTEM),)
        start = max(head, common)
        if start < len(blocks) and self._role_at(blocks, start) is not Role.USER:
            self._cuts[blocks[start]] = ((0, Role.USER),)

    def _answer(self, request: BlockRequest, common: int, output_tokens: int) -> None:
        """What a turn adds: the answer before it, then the user's part, of one token at the least."""
        new_tokens = request.prompt_tokens - common * self._block_tokens
        answer_tokens = min(output_tokens, new_tokens - 1)
        if answer_tokens < 1:
            return
        new_blocks = request.blocks[common:]
        if not new_blocks:
            self._tail_answers[request.request_id] = answer_tokens
            return
        place, token = divmod(answer_tokens, self._block_tokens)
        self._cuts[new_blocks[0]] = ((0, Role.ASSISTANT),)
        if place < len(new_blocks):
            self._cuts[new_blocks[place]] = (*self.of_block(new_blocks[place]), (token, Role.USER))
        else:
            self._tail_answers[request.request_id] = token + (place - len(new_blocks)) * self._block_tokens

    def _role_at(self, blocks: Sequence[int], end: int) -> Role:
        """Whose message holds the last token before block `end`."""
        for place in range(end - 1, -1, -1):
            if cuts := self.of_block(blocks[place]):
                return cuts[-1][1]
        return Role.USER


def _count_leading(blocks: Sequence[int], among: set[int]) -> int:
    """How many blocks at the start are among these; as ids name prefixes, none is that follows one that is not."""
    return bisect_left(range(len(blocks)), 1, key=lambda place: blocks[place] not in among)


def _find_shared(trace: BlockTrace) -> set[int]:
    """The blocks with which more than one conversation begins."""
    counts: Counter[int] = Counter()
    begun: set[str] = set()
    for request in trace.requests:
        if request.session is None or request.session not in begun:
            counts.update(request.blocks)
        if request.session is not None:
            begun.add(request.session)
    return {block for block, count in counts.items() if count > 1}
