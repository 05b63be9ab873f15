"""What a run comes to: reuse, times and balance in one value, as JSON and as a row of a table. Nothing of real time."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from simulator.fleet.rank import SimRank
from simulator.fleet.simulation import Served
from simulator.graph.request import BlockTrace


class Spread(Struct, frozen=True):
    """Of one kind of time, milliseconds."""

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float


class RunReport(Struct, frozen=True, kw_only=True):
    """One policy on one trace."""

    policy: str
    requests: int
    #: Share of the prompt tokens that were found in a cache when their request was first admitted.
    reuse_ratio: float
    #: From when a request was due to its first token, and to its last.
    ttft: Spread
    e2e: Spread
    #: Between two tokens of an answer, on average over requests with more than one.
    tpot_mean_ms: float
    #: Requests of the busiest and of the idlest rank, 1 being an equal share.
    busiest_share: float
    idlest_share: float
    #: Share of the time until the last answer in which a rank computed, on average.
    busy_ratio: float
    #: Requests of which the router predicted exactly what the engine then reused.
    exact_predictions_ratio: float
    retracted_requests: int
    evicted_blocks: int
    #: When the last answer was complete, seconds.
    span_s: float


def summarize(policy: str, trace: BlockTrace, served: Sequence[Served], ranks: Sequence[SimRank]) -> RunReport:
    """The figures of a run that is over."""
    prompt_tokens = sum(request.prompt_tokens for request in trace.requests)
    ends_s = [each.end_s or 0.0 for each in served]
    firsts_s = [each.first_token_s or 0.0 for each in served]
    span_s = max(ends_s)
    share = Counter(each.target for each in served)
    per_rank = [share[rank.target] * len(ranks) / len(served) for rank in ranks]
    steps = [
        (end_s - first_s) / (request.output_tokens - 1)
        for request, first_s, end_s in zip(trace.requests, firsts_s, ends_s, strict=True)
        if request.output_tokens > 1
    ]
    return RunReport(
        policy=policy,
        requests=len(served),
        reuse_ratio=round(sum(each.cached_tokens for each in served) / prompt_tokens, 4),
        ttft=_spread([first_s - each.due_s for each, first_s in zip(served, firsts_s, strict=True)]),
        e2e=_spread([end_s - each.due_s for each, end_s in zip(served, ends_s, strict=True)]),
        tpot_mean_ms=_ms(fmean(steps) if steps else 0.0),
        busiest_share=round(max(per_rank), 3),
        idlest_share=round(min(per_rank), 3),
        busy_ratio=round(fmean(rank.busy_s for rank in ranks) / span_s, 4),
        exact_predictions_ratio=round(fmean(each.predicted_tokens == each.cached_tokens for each in served), 4),
        retracted_requests=sum(rank.counters.retracted_requests for rank in ranks),
        evicted_blocks=sum(rank.evicted_pages for rank in ranks),
        span_s=round(span_s, 3),
    )


def _spread(durations_s: Sequence[float]) -> Spread:
    ordered = sorted(durations_s)
    p50, p90, p99 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.9, 0.99))
    return Spread(_ms(fmean(ordered)), _ms(p50), _ms(p90), _ms(p99))


def _ms(duration_s: float) -> float:
    return round(1e3 * duration_s, 3)
