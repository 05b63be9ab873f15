"""What a router can know of each rank's active blocks from the requests it placed there itself.

State of a policy that asks for it, told of requests by whoever owns the policy: never by looking at a rank.
"""

from collections.abc import Sequence

import msgspec

from wire.ids import RequestId, Target


class ActiveTokens(msgspec.Struct, frozen=True):
    """One rank, as one prompt meets it."""

    #: Uncached prompt tokens of requests there that have shown no token yet, as charged when they were placed.
    waiting: int = 0
    #: Different tokens of the prompts open there, shared heads once.
    open: int = 0
    #: Tokens of this prompt's head among them.
    shared: int = 0


_NOTHING = ActiveTokens()


class _Prompt(msgspec.Struct):
    chain_hashes: Sequence[int]
    block_tokens: int
    target: Target | None = None
    waiting_tokens: int = 0


class _Rank:
    def __init__(self) -> None:
        self.prompts: dict[RequestId, _Prompt] = {}
        self.waiting_tokens = 0
        self.open_tokens = 0

    def find_shared(self, prompt: _Prompt) -> int:
        """Tokens of the longest head that it shares with one that is open."""
        others = (other for other in self.prompts.values() if other.block_tokens == prompt.block_tokens)
        shared = max((count_shared(other.chain_hashes, prompt.chain_hashes) for other in others), default=0)
        return shared * prompt.block_tokens


class ActiveBlocks:
    """Prompts by rank, from their arrival to their end. Unknown and repeated requests change nothing."""

    def __init__(self) -> None:
        self._prompts: dict[RequestId, _Prompt] = {}
        self._ranks: dict[Target, _Rank] = {}

    def __len__(self) -> int:
        return len(self._prompts)

    def arrive(self, request_id: RequestId, chain_hashes: Sequence[int], block_tokens: int) -> None:
        """A request is about to be placed: its prompt as a chain, where each hash stands for all before it."""
        self.end(request_id)
        self._prompts[request_id] = _Prompt(chain_hashes, block_tokens)

    def place(self, request_id: RequestId, target: Target, uncached_tokens: int) -> None:
        """It was placed. Cost: a bisection for each prompt open there."""
        prompt = self._prompts.get(request_id)
        if prompt is None or prompt.target is not None:
            return
        rank = self._ranks.setdefault(target, _Rank())
        rank.open_tokens += _length(prompt) - rank.find_shared(prompt)
        rank.waiting_tokens += uncached_tokens
        prompt.target, prompt.waiting_tokens = target, uncached_tokens
        rank.prompts[request_id] = prompt

    def start_decode(self, request_id: RequestId) -> None:
        """Its first token came."""
        prompt = self._prompts.get(request_id)
        if prompt is not None and prompt.target is not None:
            self._ranks[prompt.target].waiting_tokens -= prompt.waiting_tokens
            prompt.waiting_tokens = 0

    def end(self, request_id: RequestId) -> None:
        """It is over, or was not placed."""
        prompt = self._prompts.pop(request_id, None)
        if prompt is None or prompt.target is None:
            return
        rank = self._ranks[prompt.target]
        del rank.prompts[request_id]
        rank.waiting_tokens -= prompt.waiting_tokens
        rank.open_tokens -= _length(prompt) - rank.find_shared(prompt)
        if not rank.prompts:
            del self._ranks[prompt.target]

    def find(self, target: Target, request_id: RequestId) -> ActiveTokens:
        """A rank as an arrived request meets it."""
        rank = self._ranks.get(target)
        if rank is None:
            return _NOTHING
        prompt = self._prompts.get(request_id)
        shared = 0 if prompt is None else rank.find_shared(prompt)
        return ActiveTokens(rank.waiting_tokens, rank.open_tokens, shared)


def count_shared(left: Sequence[int], right: Sequence[int]) -> int:
    """Blocks that two chains share from their start: equal at one place means equal at all before, so it bisects."""
    low, high = 0, min(len(left), len(right))
    if not high or left[0] != right[0]:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if left[middle - 1] == right[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


def _length(prompt: _Prompt) -> int:
    return len(prompt.chain_hashes) * prompt.block_tokens
