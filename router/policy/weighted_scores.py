"""llm-d's scheduler, from its public description: a weighted sum of scores between 0 and 1, the highest wins."""

from collections.abc import Sequence

import msgspec

from router.config.policy import Coefficients
from router.policy.base import Choice, PlacementQuery, RankView, build_table
from router.policy.ties import pick_by_hash


class WeightedScoresSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of the scorers; the defaults are those of its gateway extension."""

    #: Share of the prompt that is held.
    prefix: float = 3.0
    #: 1 for the shortest queue of the candidates, 0 for the longest.
    queue: float = 2.0
    #: Share of the KV cache that running requests leave free.
    kv_utilization: float = 2.0


class WeightedScores:
    """Prefix, queue and utilisation; ties are broken by a hash of the request.

    Source: docs of llm-d and of the Gateway API inference extension (scheduler, default plugins).
    """

    name = "weighted_scores"

    def __init__(self, coefficients: Coefficients, settings: WeightedScoresSettings | None = None) -> None:
        self.coefficients = coefficients
        self._settings = settings or WeightedScoresSettings()

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """The highest score; costs are what is missing to the highest possible."""
        weights = self._settings
        queues = [max(0, rank.open_requests - rank.decoding_requests) for rank in ranks]
        longest, shortest = max(queues), min(queues)
        most = weights.prefix + weights.queue + weights.kv_utilization
        totals = []
        for rank, queue in zip(ranks, queues, strict=True):
            prefix = rank.overlap_tokens / query.prompt_tokens if query.prompt_tokens > 0 else 0.0
            relative = (longest - queue) / (longest - shortest) if longest > shortest else 1.0
            used = min(1.0, rank.context_tokens / rank.capacity_tokens) if rank.capacity_tokens else 0.0
            score = weights.prefix * prefix + weights.queue * relative + weights.kv_utilization * (1.0 - used)
            totals.append(most - score)
        lowest = min(totals)
        tied = [rank.target for rank, total in zip(ranks, totals, strict=True) if total == lowest]
        target = pick_by_hash(query.request_id, tied, seed)
        reason = f"highest score: {most - lowest:.3f} of {most:g}"
        return Choice(target=target, costs=build_table(query, ranks, totals), tied_count=len(tied), reason=reason)
