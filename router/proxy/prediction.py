"""What was predicted of a request's cached tokens, and whether events explain that it turned out otherwise. Pure.

Made at the decision, judged when the engine has said how many tokens it found. A difference counts as raced only
on evidence: the very block at which prediction and answer part was stored or removed on that rank in between (of a
window or recurrent group, some block between the two counts), the rank's cache went as a whole, or a request that ran
beside this one computed it.
"""

from collections.abc import Set as AbstractSet
from typing import Protocol

import msgspec

from prefix_index import BlockChain
from prefix_index.trust import Trust

#: Events may be read this long after the first byte of the answer they belong to.
EVENT_DELAY_S = 0.5
#: Requests beside this one that are remembered.
MAX_PEERS = 64


class Evidence(Protocol):
    """What changed on a rank within a span."""

    @property
    def stored(self) -> AbstractSet[int]:
        """Blocks that came."""

    @property
    def removed(self) -> AbstractSet[int]:
        """Blocks that went."""

    @property
    def gained(self) -> AbstractSet[int]:
        """Blocks that came in a window or recurrent group, or another tier."""

    @property
    def lost(self) -> AbstractSet[int]:
        """Blocks that went there."""

    @property
    def cleared(self) -> bool:
        """Whether everything went."""


class Prediction(msgspec.Struct, kw_only=True):
    """One prediction and what is needed to judge it."""

    #: Prompt in the rank's namespace and every block size known; None where no credit was possible, and nothing is
    #: judged.
    chain: BlockChain | None
    predicted_tokens: int
    trust: Trust = Trust.LOST
    #: Number of the rank's next change at the decision.
    position: int = 0
    #: Requests that ran on the same rank beside this one and share its first block.
    peers: list[BlockChain] = []
    #: A guess from chunks of text, whose outcome is learned and not judged.
    is_approximate: bool = False
    #: Tokens that may be too many, because events do not tell all of what the engine compares.
    slack_tokens: int = 0
    #: It rests on groups that the rank's events do not tell of.
    is_believed: bool = False

    @property
    def head(self) -> tuple[int, ...] | None:
        """The prompt's first block, if it fills one; None without a chain."""
        return None if self.chain is None else self.chain.hashes[:1]

    def add_peer(self, other: "Prediction") -> None:
        """Another request was placed on the rank, before or after this one."""
        if self.chain is None or other.chain is None or len(self.peers) >= MAX_PEERS:
            return
        if self.head == other.head:
            self.peers.append(other.chain)


def cut_chain(chain: BlockChain, token_count: int) -> BlockChain:
    """The prompt's first tokens, in every block size; a boundary at `token_count` can still be reused."""
    return BlockChain(
        chain.block_tokens,
        chain.hashes[: token_count // chain.block_tokens],
        token_count + 1,
        tuple(cut_chain(other, token_count) for other in chain.others),
    )


def is_raced(prediction: Prediction, actual_tokens: int, evidence: Evidence) -> bool:
    """Whether something that happened after the decision explains the engine's count."""
    chain = prediction.chain
    if chain is None or prediction.predicted_tokens == actual_tokens:
        return False
    if evidence.cleared:
        return True
    low, high = sorted((prediction.predicted_tokens, actual_tokens))
    is_more = actual_tokens > prediction.predicted_tokens
    first, group = (evidence.stored, evidence.gained) if is_more else (evidence.removed, evidence.lost)
    # Hashes of one size are none of another, so that no look at the rank's own size is needed.
    for size, hashes in chain.by_size.items():
        # Both counts end at a block; they part at the end of the smaller one.
        if hashes[low // size : low // size + 1] and hashes[low // size] in first:
            return True
        if group and not group.isdisjoint(hashes[low // size : -(-high // size)]):
            return True
    return is_more and _was_computed_beside(prediction, chain, actual_tokens)


def _was_computed_beside(prediction: Prediction, chain: BlockChain, actual_tokens: int) -> bool:
    """Whether a request beside this one has every block that the engine found; chained hashes: the last one tells."""
    for size, hashes in chain.by_size.items():
        last = actual_tokens // size - 1
        # A count that ends in the middle of a block of this size is not the rank's.
        if actual_tokens % size or not 0 <= last < len(hashes):
            continue
        beside = (peer.by_size.get(size, ()) for peer in prediction.peers)
        if any(last < len(others) and others[last] == hashes[last] for others in beside):
            return True
    return False
