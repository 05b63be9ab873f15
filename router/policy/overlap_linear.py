"""Dynamo's KV router, from its public documents: the fewest blocks to prefill and to keep active wins."""

from collections.abc import Sequence

import msgspec

from router.config.policy import Coefficients
from router.policy.active_blocks import ActiveBlocks
from router.policy.base import Choice, PlacementQuery, RankView, build_table
from router.policy.ties import pick_by_hash


class OverlapLinearSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Its knobs, with the defaults of ai-dynamo-runtime 1.6."""

    #: Weight of a block to prefill against one that is active.
    prefill_load_scale: float = 1.0
    #: Blocks of prefill that a cached block saves.
    overlap_score_credit: float = 1.0
    #: Whether active blocks count.
    track_active_blocks: bool = True


class OverlapLinear:
    """`scale * (waiting + prompt - credit * cached) + active`, in tokens; ties by a hash of the request.

    Waiting are the uncached tokens of requests placed there that showed no token yet; active the different tokens of
    all prompts open there, this one's included, shared heads once. Both are what the router itself placed. Softmax
    temperature 0. Placement tells `active` of every request.

    Source: docs.nvidia.com/dynamo (routing concepts, router design).
    """

    name = "overlap_linear"

    def __init__(self, coefficients: Coefficients, settings: OverlapLinearSettings | None = None) -> None:
        self.coefficients = coefficients
        self._settings = settings or OverlapLinearSettings()
        self.active = ActiveBlocks()

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """The rank with the fewest tokens."""
        settings = self._settings
        totals = []
        for rank in ranks:
            cached_tokens = settings.overlap_score_credit * rank.overlap_tokens
            active = self.active.find(rank.target, query.request_id)
            prefill_tokens = max(0.0, active.waiting + query.prompt_tokens - cached_tokens)
            active_tokens = active.open + query.prompt_tokens - active.shared
            weighed = active_tokens if settings.track_active_blocks else 0
            totals.append(settings.prefill_load_scale * prefill_tokens + weighed)
        lowest = min(totals)
        tied = [rank.target for rank, total in zip(ranks, totals, strict=True) if total == lowest]
        target = pick_by_hash(query.request_id, tied, seed)
        costs = build_table(query, ranks, totals)
        reason = f"fewest tokens to prefill and to keep active: {lowest:,.0f}"
        return Choice(target=target, costs=costs, tied_count=len(tied), reason=reason)
