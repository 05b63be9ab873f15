"""What was predicted of a request's cached tokens, and whether events explain that it turned out otherwise. Pure.

Made at the decision, judged when the engine has said how many tokens it found. A difference counts as raced only
on evidence: the very block at which prediction and answer part was stored or removed on that rank in between, the
rank's cache went as a whole, or a request that ran beside this one computed it.
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
    def cleared(self) -> bool:
        """Whether everything went."""


class Prediction(msgspec.Struct, kw_only=True):
    """One prediction and what is needed to judge it."""

    #: Prompt in the block size of the rank; None where no credit was possible.
    chain: BlockChain | None
    predicted_tokens: int
    trust: Trust
    #: Number of the rank's next change at the decision.
    position: int
    #: Requests that ran on the same rank beside this one and share its first block.
    peers: list[BlockChain]
    #: A guess from chunks of text, whose outcome is learned and not judged.
    is_approximate: bool = False

    def add_peer(self, other: "Prediction") -> None:
        """Another request was placed on the rank, before or after this one."""
        if self.chain is None or other.chain is None or len(self.peers) >= MAX_PEERS:
            return
        if self.chain.hashes[:1] == other.chain.hashes[:1]:
            self.peers.append(other.chain)


def is_raced(prediction: Prediction, actual_tokens: int, evidence: Evidence) -> bool:
    """Whether something that happened after the decision explains the engine's count."""
    chain = prediction.chain
    if chain is None or prediction.predicted_tokens == actual_tokens:
        return False
    if evidence.cleared:
        return True
    # Both counts end at a block; they part at the end of the smaller one.
    place = min(prediction.predicted_tokens, actual_tokens) // chain.block_tokens
    if place >= len(chain.hashes):
        return False
    if actual_tokens < prediction.predicted_tokens:
        return chain.hashes[place] in evidence.removed
    return chain.hashes[place] in evidence.stored or _was_computed_beside(prediction, chain, actual_tokens)


def _was_computed_beside(prediction: Prediction, chain: BlockChain, actual_tokens: int) -> bool:
    """Whether a request beside this one has every block that the engine found; chained hashes: the last one tells."""
    last = actual_tokens // chain.block_tokens - 1
    if not 0 <= last < len(chain.hashes):
        return False
    return any(last < len(peer.hashes) and peer.hashes[last] == chain.hashes[last] for peer in prediction.peers)
