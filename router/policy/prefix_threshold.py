"""SGLang router's `cache_aware`, from its public description: affinity or load, switched by thresholds."""

from collections.abc import Sequence

import msgspec

from router.config.policy import Coefficients
from router.policy.base import Choice, PlacementQuery, RankView, build_table
from router.policy.ties import pick_by_hash
from wire.ids import Target


class PrefixThresholdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Its knobs, with the defaults of its command line."""

    #: Share of the prompt that must be held for affinity to count.
    cache_threshold: float = 0.3
    #: The fleet is out of balance when the most loaded rank has so many requests more than the least loaded,
    balance_abs_threshold: int = 64
    #: and so many times as many.
    balance_rel_threshold: float = 1.5


class PrefixThreshold:
    """Out of balance: the fewest requests, whatever is cached. Else the longest held prefix, if it is long enough.

    Else the rank that holds least. Where the original keeps a tree of what it sent where, this one sees what is held.
    Ties are broken by a hash of the request.

    Source: docs of sglang-router and smg (cache-aware routing).
    """

    name = "prefix_threshold"

    def __init__(self, coefficients: Coefficients, settings: PrefixThresholdSettings | None = None) -> None:
        self.coefficients = coefficients
        self._settings = settings or PrefixThresholdSettings()

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """One of the three ways."""
        loads = [rank.open_requests for rank in ranks]
        most, least = max(loads), min(loads)
        longest = max(rank.overlap_tokens for rank in ranks)
        settings = self._settings
        if most - least > settings.balance_abs_threshold and most > settings.balance_rel_threshold * least:
            totals, reason = [float(load) for load in loads], f"out of balance: fewest requests there: {least}"
        elif longest > settings.cache_threshold * query.prompt_tokens:
            totals = [float(longest - rank.overlap_tokens) for rank in ranks]
            reason = f"longest held prefix: {longest:,} tokens"
        else:
            totals = [float(rank.resident_tokens) for rank in ranks]
            reason = f"no prefix of note held; the rank that holds least: {min(totals):,.0f} tokens"
        tied = _find_lowest(ranks, totals)
        target = pick_by_hash(query.request_id, tied, seed)
        return Choice(target=target, costs=build_table(query, ranks, totals), tied_count=len(tied), reason=reason)


def _find_lowest(ranks: Sequence[RankView], totals: Sequence[float]) -> list[Target]:
    lowest = min(totals)
    return [rank.target for rank, total in zip(ranks, totals, strict=True) if total == lowest]
