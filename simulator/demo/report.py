"""The figures of the demo's table, computed from replies and scraped counters. Pure.

Nothing is printed here; `table_rows` gives labels and cells in the order of the policies.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from simulator.demo.client import Reply


class RouterCounters(Struct, frozen=True):
    """What the router's metrics page says after a run."""

    predicted_cached_tokens: int
    actual_cached_tokens: int
    #: Predictions by accuracy class.
    predictions: dict[str, int]


class Summary(Struct, frozen=True):
    """The figures of one policy. Ratios are in 0..1; None where there was nothing to measure."""

    policy: str
    requests: int
    failed_requests: int
    #: Of all prompt tokens that the engines took, the share they had cached, by their own count.
    cached_ratio: float | None
    computed_tokens: int
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    e2e_mean_s: float | None
    #: Requests of the busiest rank over the mean of all ranks, idle ones included.
    busiest_over_mean: float | None
    router: RouterCounters
    wall_s: float

    @property
    def failed_ratio(self) -> float:
        """Share of the requests that failed; 1.0 when none was sent."""
        return self.failed_requests / self.requests if self.requests else 1.0


def summarise(policy: str, replies: Sequence[Reply], *, ranks: int, router: RouterCounters, wall_s: float) -> Summary:
    """Add up one policy's run over a fleet of `ranks` ranks."""
    complete = [reply for reply in replies if reply.failure is None]
    prompt_tokens = sum(reply.prompt_tokens for reply in complete)
    cached_tokens = sum(reply.cached_tokens for reply in complete)
    ttfts_s = [reply.ttft_s for reply in complete if reply.ttft_s is not None]
    return Summary(
        policy=policy,
        requests=len(replies),
        failed_requests=len(replies) - len(complete),
        cached_ratio=cached_tokens / prompt_tokens if prompt_tokens else None,
        computed_tokens=prompt_tokens - cached_tokens,
        ttft_mean_s=_mean(ttfts_s),
        ttft_p50_s=quantile(ttfts_s, 0.5),
        ttft_p99_s=quantile(ttfts_s, 0.99),
        e2e_mean_s=_mean([reply.e2e_s for reply in complete if reply.e2e_s is not None]),
        busiest_over_mean=busiest_over_mean(complete, ranks),
        router=router,
        wall_s=wall_s,
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all values do not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    place = -(-len(ordered) * round(share * 10_000) // 10_000) - 1
    return ordered[max(0, min(place, len(ordered) - 1))]


def busiest_over_mean(replies: Sequence[Reply], ranks: int) -> float | None:
    """Requests of the busiest (worker, rank) over requests / ranks; None without replies that name their rank."""
    counts = Counter((reply.worker, reply.dp_rank) for reply in replies if reply.worker is not None)
    if not counts or ranks < 1:
        return None
    return max(counts.values()) * ranks / sum(counts.values())


def table_rows(summaries: Sequence[Summary]) -> list[tuple[str, list[str]]]:
    """Label and one cell a policy, in reading order."""
    return [
        ("requests", [f"{s.requests:,}" for s in summaries]),
        ("failed requests", [f"{s.failed_requests:,}" for s in summaries]),
        ("cached-token ratio (engines)", [_ratio(s.cached_ratio) for s in summaries]),
        ("prompt tokens computed", [f"{s.computed_tokens:,}" for s in summaries]),
        ("TTFT mean", [_milliseconds(s.ttft_mean_s) for s in summaries]),
        ("TTFT p50", [_milliseconds(s.ttft_p50_s) for s in summaries]),
        ("TTFT p99", [_milliseconds(s.ttft_p99_s) for s in summaries]),
        ("end to end mean", [_milliseconds(s.e2e_mean_s) for s in summaries]),
        ("busiest rank / mean (requests)", [_times(s.busiest_over_mean) for s in summaries]),
        ("cached tokens predicted", [f"{s.router.predicted_cached_tokens:,}" for s in summaries]),
        ("cached tokens actual", [f"{s.router.actual_cached_tokens:,}" for s in summaries]),
        ("predictions", [accuracy_text(s.router.predictions) for s in summaries]),
        ("time taken", [f"{s.wall_s:.1f} s" for s in summaries]),
    ]


def accuracy_text(predictions: Mapping[str, int]) -> str:
    """The accuracy classes that occurred, most frequent first."""
    met = sorted(((count, name) for name, count in predictions.items() if count), reverse=True)
    return ", ".join(f"{name} {count:,}" for count, name in met) or "-"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:,.0f} ms"
