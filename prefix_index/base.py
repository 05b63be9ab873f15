"""The contract of an index: which holder has which prefix of a prompt in its cache.

Events of holders come in, tokens of reusable prefix go out. An index does no input or output.
"""

from typing import Protocol

import msgspec

from wire.events import Event
from wire.ids import Target


class BlockChain(msgspec.Struct, frozen=True):
    """A prompt as canonical block hashes (`wire.block_hash`), in one namespace and block size."""

    block_tokens: int
    #: Hash of each full block, in order.
    hashes: tuple[int, ...]
    #: Tokens of the whole prompt, its last partial block included.
    token_count: int

    @property
    def reusable_blocks(self) -> int:
        """Most blocks that can be reused: a prompt's last token is always computed."""
        return max(0, min(len(self.hashes), (self.token_count - 1) // self.block_tokens))


class Change(msgspec.Struct, frozen=True):
    """What one event changed for one holder's device cache, in canonical hashes."""

    #: Blocks that became resident: first copy, known place in its chain.
    stored: tuple[int, ...] = ()
    #: Blocks whose last copy went.
    removed: tuple[int, ...] = ()
    #: The holder's whole cache went.
    cleared: bool = False
    #: Blocks put aside because their parent is not known yet.
    orphaned: int = 0
    #: Removals of blocks the holder was not known to have.
    unknown_removals: int = 0


class PrefixIndex(Protocol):
    """Who holds which block."""

    def attach(self, holder: Target, *, model: str) -> None:
        """Start to accept events of `holder`, whose blocks live in `model`'s namespace; anything held is dropped."""

    def apply(self, holder: Target, event: Event) -> Change:
        """Take in one event; of a holder that is not attached it changes nothing."""

    def drop(self, holder: Target) -> int:
        """Forget `holder` and refuse its events until it is attached again; says how many blocks it held."""

    def clear(self, holder: Target) -> int:
        """Forget the blocks of `holder`, which stays attached; says how many it held."""

    def doubt(self, holder: Target) -> int:
        """Events of `holder` were lost: count none of its blocks until there is proof; says how many it held.

        A block stored below a doubted one proves it and all before it, for an engine keeps no block without
        those before it.
        """

    def find_reuse(self, chain: BlockChain) -> dict[Target, int]:
        """Tokens [0, n) of the prompt that each holder can reuse; only holders with n above 0.

        At most `chain.reusable_blocks` blocks; a block after a hole does not count.
        """

    def block_count(self, holder: Target) -> int:
        """Blocks that count as resident for `holder`; 0 when it is unknown."""

    def block_sizes(self) -> set[int]:
        """Tokens a block, for every size that some holder's resident blocks have or had."""

    def is_modelled(self, holder: Target) -> bool:
        """False once `holder` reported blocks of a group that decides hits but is not modelled (window, recurrent)."""

    def check_invariants(self) -> None:
        """Raise AssertionError where the index contradicts itself."""
