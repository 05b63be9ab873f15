"""Term `transfer`: seconds to bring a prefill's cache to the rank that generates. Only for pairs of ranks."""

import msgspec

from router.config.policy import Coefficients
from router.policy.base import PlacementQuery, RankView


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """How a prefill rank reaches a decode rank."""

    #: Bytes a second; None takes the coefficient.
    bytes_per_s: float | None = None
    #: Factor on the time for the way between them: 1 in one switch, more across them.
    topology_factor: float = 1.0


DEFAULT_LINK = Link()


class TransferTerm:
    """Seconds: bytes that the decode rank lacks over the link's bandwidth, times its topology factor.

    The decode rank has the head of the prompt that it holds itself; only the rest travels. Nothing travels within one
    rank.
    """

    name = "transfer"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def pair_cost_s(self, query: PlacementQuery, prefill: RankView, decode: RankView, link: Link) -> float:
        """Seconds on the way."""
        if prefill.target == decode.target:
            return 0.0
        lacking_tokens = max(0, query.prompt_tokens - decode.overlap_tokens)
        size_bytes = lacking_tokens * self._coefficients.kv_bytes_per_token
        bandwidth = self._coefficients.link_bytes_per_s if link.bytes_per_s is None else link.bytes_per_s
        return size_bytes / bandwidth * link.topology_factor if bandwidth > 0 else float("inf")
