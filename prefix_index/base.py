"""The contract of an index: which holder has which prefix of a prompt, and what else it could get at.

Events of ranks come in; tokens of reusable prefix go out, by the hybrid rule of `prefix_index.reuse`. An index
does no input or output. What an implementation can do beyond one full-attention group stands in `supports`.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import ClassVar, Protocol

import msgspec

from prefix_index.layout import Layout
from wire.events import Event
from wire.ids import Target
from wire.snapshot import BlockRun


class CopyRule(StrEnum):
    """What a second store of the same block means in a dialect."""

    #: One more physical copy, with a removal of its own.
    COUNTED = "counted"
    #: The same copy said again: one removal drops it.
    REFRESHED = "refreshed"


class BlockChain(msgspec.Struct, frozen=True):
    """A prompt as canonical block hashes (`wire.block_hash`), in one namespace and block size."""

    block_tokens: int
    #: Hash of each full block, in order.
    hashes: tuple[int, ...]
    #: Tokens of the whole prompt, its last partial block included.
    token_count: int
    #: The same prompt in other block sizes, for holders whose groups or tiers differ in theirs.
    others: tuple["BlockChain", ...] = ()

    @property
    def by_size(self) -> dict[int, tuple[int, ...]]:
        """Hashes for every block size given; the first of a size counts."""
        return {each.block_tokens: each.hashes for each in (*reversed(self.others), self)}


class Change(msgspec.Struct, frozen=True):
    """What one event changed for one holder, in canonical hashes."""

    #: Blocks that became resident in every full-attention group of the device cache: first copy, known place.
    stored: tuple[int, ...] = ()
    #: Blocks of them whose last copy went.
    removed: tuple[int, ...] = ()
    #: Places that a window or recurrent group, or another tier, gained or lost.
    touched: tuple[int, ...] = ()
    #: The holder's whole cache went.
    cleared: bool = False
    #: Blocks put aside because their parent is not known yet.
    orphaned: int = 0
    #: Removals of blocks the holder was not known to have.
    unknown_removals: int = 0
    #: Blocks not taken in: tokens that do not fill them, a block size or kind that changed, an unknown tier.
    refused: int = 0


class Reach(StrEnum):
    """Which holders an alternative draws on; each includes those before it."""

    DEVICE = "device"
    HOST = "host"
    POOLS = "pools"


class Load(msgspec.Struct, frozen=True):
    """What one group must fetch into the device cache from one class of holder."""

    group_idx: int | None
    #: Name of the group's component.
    component: str
    #: Where it lies: `HOST` or `POOLS`.
    source: Reach
    tokens: int
    #: None where the worker's layout does not say bytes.
    size_bytes: int | None


class Alternative(msgspec.Struct, frozen=True):
    """One way to serve a prompt on a rank: what is reused, what must be fetched, what is computed again."""

    reach: Reach
    #: Tokens [0, n) of the prompt that need no prefill of all layers from nothing.
    reuse_tokens: int
    loads: tuple[Load, ...] = ()
    #: Tokens before the boundary to compute again, so that window groups have their window.
    window_tokens: int = 0
    #: Tokens from the last common checkpoint to the boundary, to be run again for recurrent groups.
    replay_tokens: int = 0

    @property
    def recompute_tokens(self) -> int:
        """Tokens before the boundary that are computed again."""
        return max(self.window_tokens, self.replay_tokens)

    def load_tokens(self, source: Reach) -> int:
        """Tokens to fetch from `source`, summed over groups."""
        return sum(load.tokens for load in self.loads if load.source is source)

    def load_bytes(self, source: Reach) -> int | None:
        """Bytes to fetch from `source`; None where a group's size is not known."""
        sizes = [load.size_bytes for load in self.loads if load.source is source]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None


class IndexSize(msgspec.Struct, frozen=True):
    """What an index holds, for metrics."""

    #: Engine blocks of all ranks and places of all pools.
    blocks: int
    #: Blocks among them that wait for their parent.
    parked_blocks: int
    #: Blocks forgotten since the start because a cap was reached.
    evicted_blocks: int


class PrefixIndex(Protocol):
    """Who holds which block."""

    #: Features beyond one full-attention group in one tier: of FEATURES.
    supports: ClassVar[frozenset[str]]

    def attach(
        self,
        holder: Target,
        *,
        model: str,
        host: str | None = None,
        pools: tuple[str, ...] = (),
        layout: Layout | None = None,
        rule: CopyRule = CopyRule.COUNTED,
        bigram: bool = False,
    ) -> int:
        """Start to accept events of `holder`; anything it held is dropped.

        Args:
            holder: A rank: its device cache, and what it reports of other tiers.
            model: Namespace of its blocks.
            host: Host domain whose blocks the rank can read, shared by the ranks that name it; None for one of
                its own. What a rank reported goes with the rank.
            pools: Shared pools the rank can read. What it reports of `DISK` and `EXTERNAL` belongs to the first,
                and stays when the rank goes; without a pool it is the rank's own.
            layout: Groups of the model as the worker declares them: sizes in bytes, and the groups that a
                dialect does not report.
            rule: What a second store of the same block means in its dialect.
            bigram: Its engine keys blocks by pairs of tokens (EAGLE), a namespace of its own.

        Returns:
            Number of this registration, for `apply`.
        """

    def apply(self, holder: Target, event: Event, *, generation: int | None = None) -> Change:
        """Take in one event; of a holder that is not attached, or of an earlier `generation`, it changes nothing."""

    def drop(self, holder: Target) -> int:
        """Forget `holder` and refuse its events until it is attached again; says how many blocks it held."""

    def clear(self, holder: Target) -> int:
        """Forget the blocks of `holder`, which stays attached; says how many it held."""

    def doubt(self, holder: Target) -> int:
        """Events of `holder` were lost: count none of its blocks until there is proof; says how many it held.

        A block stored in a full-attention group below a doubted one proves it and all before it, for an engine
        keeps no block there without those before it; up to a place that several doubted names claim.
        """

    def drop_pool(self, pool: str) -> int:
        """Forget what a shared pool holds; says how many blocks it held."""

    def find_reuse(self, chain: BlockChain) -> dict[Target, int]:
        """Tokens [0, n) of the prompt that each holder can reuse from its device; only holders with n above 0.

        At most `token_count - 1` tokens; a block after a hole does not count. A holder whose groups have
        another block size than `chain` and its `others` is not named.
        """

    def find_alternatives(self, chain: BlockChain, holder: Target) -> tuple[Alternative, ...]:
        """Ways to serve the prompt on `holder`, narrowest reach first; one that reuses no more is out."""

    def correct(self, holder: Target, chain: BlockChain, cached_tokens: int) -> int:
        """An engine's answer about a prompt settles what is believed of groups that it does not report.

        Boundaries above `cached_tokens` lose their belief; the one at it gets it where full attention has all
        before it. Groups that are reported stay as they are. Says what `find_reuse` believes now.
        """

    def dump(self, holder: Target) -> Iterator[BlockRun]:
        """Everything `holder` reported whose place is known, as runs of records, parents first in each.

        Records of no copies come first: they say which groups and tiers there are, for an empty one decides hits
        too. Take it whole before the next event.
        """

    def load(self, holder: Target, runs: Iterable[BlockRun]) -> int:
        """Put what `dump` gave into an attached `holder` that holds nothing; says how many records it took."""

    def block_count(self, holder: Target) -> int:
        """Blocks that count as resident on the device of `holder`; 0 when it is unknown."""

    def block_sizes(self) -> set[int]:
        """Tokens a block, for every size that some holder's groups have or had."""

    def is_modelled(self, holder: Target) -> bool:
        """False once `holder` reported a group whose rule is not known; it gets no credit then."""

    def size(self) -> IndexSize:
        """What the index holds, for metrics."""

    def check_invariants(self) -> None:
        """Raise AssertionError where the index contradicts itself."""


#: Names for `supports`; a contract test of a feature is skipped where an implementation does not declare it.
FEATURES = frozenset({"groups", "tiers", "layout", "dump", "caps", "components", "generations"})
