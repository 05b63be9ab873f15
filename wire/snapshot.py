"""Blocks of one rank as records: what a mirror of an engine's cache hands to one that starts anew.

Taken from an index by `dump` and given to another by `load`; no tokens, so a block whose place in
its chain is not known has no record.
"""

import msgspec

from wire.events import EngineHash, Medium


class BlockRecord(msgspec.Struct, frozen=True, array_like=True):
    """One block of one cache group in one tier of a rank. Parents come before their children."""

    #: The engine's own name of the block, by which it removes it and names it as a parent.
    engine_hash: EngineHash
    #: The engine's name of the block before it; None at the start of a prompt.
    parent_hash: EngineHash | None
    #: Place of the block: canonical hash in the rank's namespace (`wire.block_hash`).
    canonical_hash: int
    #: Tokens in the block.
    block_tokens: int
    #: Tier that has it; a word that is not known is kept and never counts.
    medium: Medium | str
    #: Cache group; None where the dialect has one.
    group_idx: int | None
    #: Kind of the group as the engine says it; None where it does not.
    group_kind: str | None
    #: Window of a sliding group, in tokens.
    window_tokens: int | None
    #: Physical copies, each with a removal of its own.
    copies: int
    #: Blocks of this size before it in its chain.
    position: int
    #: Events were lost since it was stored: counts only once a block stored below proves it.
    is_doubted: bool = False
