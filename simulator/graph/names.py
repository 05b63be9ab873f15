"""Global ids for blocks whose recorded ids mean something only inside their session: one per prefix."""

from collections.abc import Sequence

from msgspec import Struct


class Head(Struct, frozen=True):
    """What the prompts of one kind of agent begin with."""

    tool_tokens: int
    system_tokens: int
    block_tokens: int

    @property
    def tool_blocks(self) -> int:
        """Full blocks of the tools."""
        return self.tool_tokens // self.block_tokens

    @property
    def blocks(self) -> int:
        """Full blocks of the tools, then of the system prompt."""
        return self.tool_blocks + self.system_tokens // self.block_tokens


class BlockNames:
    """Ids by (id before it, block). Cost: memory for every different block of the corpus."""

    def __init__(self) -> None:
        self._ids: dict[tuple[object, ...], int] = {}
        self._count = 0
        #: Last prompt of each session and model, and its ids.
        self._last: dict[tuple[str, str], tuple[Sequence[int], list[int]]] = {}

    def find(self, session: str, model: str, head: Head, blocks: Sequence[int], canonical: Sequence[int]) -> list[int]:
        """The ids of a prompt.

        Args:
            session: Where the recorded ids are valid, sub-agents included.
            model: Blocks are never shared between models.
            head: What may be shared with other sessions.
            blocks: Recorded ids.
            canonical: The agent's first prompt: only what still equals it is its head.
        """
        kept = self._keep(session, model, blocks)
        ids = self._last[session, model][1][:kept] if kept else []
        before, in_head = ids[-1] if ids else -1, list(blocks[:kept]) == list(canonical[:kept])
        for place in range(kept, len(blocks)):
            block = blocks[place]
            in_head = in_head and place < min(head.blocks, len(canonical)) and block == canonical[place]
            own = (before, session, model, block)
            known = self._ids.get(own)
            if known is None:
                known = self._add(own, self._head_key(before, model, head, place) if in_head else None)
            ids.append(known)
            before = known
        self._last[session, model] = blocks, ids
        return ids

    def _keep(self, session: str, model: str, blocks: Sequence[int]) -> int:
        """How many blocks the prompt shares with the session's last one of that model: they keep their ids."""
        before = self._last.get((session, model), ((), []))[0]
        low, high = 0, min(len(before), len(blocks))
        if before[:high] == blocks[:high]:
            return high
        while high - low > 1:  # [0, low) is equal, [0, high) is not
            middle = (low + high) // 2
            if before[low:middle] == blocks[low:middle]:
                low = middle
            else:
                high = middle
        return low

    def _head_key(self, before: int, model: str, head: Head, place: int) -> tuple[object, ...]:
        if place < head.tool_blocks:
            return (before, "tools", model, head.tool_tokens)
        return (before, "system", model, head.tool_tokens, head.system_tokens)

    def _add(self, own: tuple[object, ...], shared: tuple[object, ...] | None) -> int:
        """A block new to its session: the shared one where another session had it, else a new one."""
        known = None if shared is None else self._ids.get(shared)
        if known is None:
            known = self._count
            self._count += 1
            if shared is not None:
                self._ids[shared] = known
        self._ids[own] = known
        return known
