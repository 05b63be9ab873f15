"""Add up the outcomes of a load while they come, and give the figures at any moment. Pure, of bounded memory."""

from array import array
from collections import Counter
from itertools import pairwise
from random import Random
from statistics import fmean

from msgspec import Struct

from simulator.demo.report import quantile
from simulator.replay.run import Outcome

#: Times kept of each kind; of more, so many drawn by chance stand for all.
KEPT_TIMES = 100_000
#: Different workers and failures told apart; the rest is added up as one.
MAX_NAMES = 1_000
OTHERS = "(others)"


class Spread(Struct, frozen=True):
    """Of one kind of time, milliseconds."""

    count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


class Times:
    """Durations of one kind."""

    def __init__(self, rng: Random) -> None:
        self._kept = array("d")
        self._rng = rng
        self._count, self._sum_s, self._max_s = 0, 0.0, 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self._count += 1
        self._sum_s += seconds
        self._max_s = max(self._max_s, seconds)
        if len(self._kept) < KEPT_TIMES:
            self._kept.append(seconds)
        elif (place := self._rng.randrange(self._count)) < KEPT_TIMES:
            self._kept[place] = seconds

    def spread(self) -> Spread | None:
        """Mean and maximum of all, quantiles of those kept; None without any."""
        if not self._count:
            return None
        p50, p90, p99 = (1e3 * (quantile(self._kept, share) or 0.0) for share in (0.5, 0.9, 0.99))
        return Spread(self._count, 1e3 * self._sum_s / self._count, p50, p90, p99, 1e3 * self._max_s)


class ErrorCount(Struct, frozen=True):
    """Failures of one kind, with the text of the first."""

    kind: str
    count: int
    example: str


class WorkerShare(Struct, frozen=True):
    """What one worker, or rank of it, answered, by the router's own words."""

    worker: str
    requests: int
    share_ratio: float
    prompt_tokens: int
    cached_tokens: int


class Figures(Struct, frozen=True, kw_only=True):
    """What was measured; ratios are in 0..1, None where there was nothing to measure."""

    complete: int
    failed: int
    retries: int
    retry_wait_s: float
    #: Of complete answers: prompt tokens by the recording, scaled, and by the target's count.
    recorded_prompt_tokens: int
    prompt_tokens: int
    #: Of them those that the engine had cached, and of how many answers that is known.
    cached_tokens: int
    answers_with_cached_tokens: int
    cached_ratio: float | None
    output_tokens: int
    #: Complete answers shorter than asked for, and those without a usage block.
    short_answers: int
    answers_without_usage: int
    ttft: Spread | None
    #: Mean time between two tokens of one answer, by the target's count of tokens.
    inter_token: Spread | None
    #: Between two pieces of text as they arrived; a piece may hold several tokens.
    piece_gap: Spread | None
    e2e: Spread | None
    #: How much later than due requests were sent.
    late: Spread | None
    errors: tuple[ErrorCount, ...]
    workers: tuple[WorkerShare, ...]
    #: Requests of the busiest worker over the mean of those that answered.
    busiest_over_mean: float | None

    @property
    def failed_ratio(self) -> float:
        """Share of the ended requests that failed; 1.0 when none ended."""
        ended = self.complete + self.failed
        return self.failed / ended if ended else 1.0


class _Share(Struct):
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Measurements:
    """The figures of a load so far.

    Args:
        worker_header: Response header that names the worker.
        rank_header: The one that names the rank in it; None when there is none.
        prompt_ratio: By which recorded prompts were scaled.
        secret: What no text kept here may hold.
    """

    def __init__(
        self, worker_header: str, rank_header: str | None, *, prompt_ratio: float = 1.0, secret: str | None = None
    ) -> None:
        self._worker_header = worker_header.lower()
        self._rank_header = None if rank_header is None else rank_header.lower()
        self._prompt_ratio, self._secret = prompt_ratio, secret
        rng = Random("kept times")
        self._ttft, self._inter_token, self._gaps, self._e2e, self._late = (Times(rng) for _ in range(5))
        self._counts: Counter[str] = Counter()
        self._retry_wait_s = 0.0
        self._errors: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._workers: dict[str, _Share] = {}

    def take(self, outcome: Outcome) -> str | None:
        """Count one request; what went wrong with it, without the secret, or None."""
        self._late.add(outcome.late_s)
        self._counts["retries"] += outcome.retries
        self._retry_wait_s += outcome.retry_wait_s
        failure = outcome.exchange.failure
        if failure is None:
            self._take_complete(outcome)
            return None
        text = failure.text if self._secret is None else failure.text.replace(self._secret, "(the key)")
        self._counts["failed"] += 1
        kind = failure.kind if failure.kind in self._errors or len(self._errors) < MAX_NAMES else OTHERS
        self._errors[kind] += 1
        self._examples.setdefault(kind, text)
        return text

    def _take_complete(self, outcome: Outcome) -> None:
        made, request = outcome.exchange, outcome.request
        prompt_tokens, output_tokens = made.count("prompt_tokens"), made.count("completion_tokens")
        self._counts.update(
            complete=1,
            recorded_prompt_tokens=max(1, round(request.prompt_tokens * self._prompt_ratio)),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            short_answers=int(bool(made.usage) and output_tokens < request.output_tokens),
            answers_without_usage=int(not made.usage),
        )
        if made.cached_tokens is not None:
            self._counts.update(
                cached_tokens=made.cached_tokens, answers_with_cached_tokens=1, known_prompt_tokens=prompt_tokens
            )
        self._take_times(outcome, output_tokens)
        self._take_worker(outcome, prompt_tokens)

    def _take_times(self, outcome: Outcome, output_tokens: int) -> None:
        made = outcome.exchange
        self._e2e.add(made.end_s - made.start_s)
        if made.first_s is not None:
            self._ttft.add(made.first_s - made.start_s)
        times_s = made.piece_times_s
        for earlier_s, later_s in pairwise(times_s):
            self._gaps.add(later_s - earlier_s)
        if len(times_s) > 1 and output_tokens > 1:
            self._inter_token.add((times_s[-1] - times_s[0]) / (output_tokens - 1))

    def _take_worker(self, outcome: Outcome, prompt_tokens: int) -> None:
        headers = outcome.exchange.headers
        worker = headers.get(self._worker_header)
        if worker is None:
            return
        rank = None if self._rank_header is None else headers.get(self._rank_header)
        name = worker if rank is None else f"{worker} rank {rank}"
        if name not in self._workers and len(self._workers) >= MAX_NAMES:
            name = OTHERS
        share = self._workers.setdefault(name, _Share())
        share.requests += 1
        share.prompt_tokens += prompt_tokens
        share.cached_tokens += outcome.exchange.cached_tokens or 0

    @property
    def ended(self) -> int:
        """Requests counted."""
        return self._counts["complete"] + self._counts["failed"]

    @property
    def cached_ratio(self) -> float | None:
        """Share of the prompt tokens that were cached, over the answers that say so."""
        known = self._counts["known_prompt_tokens"]
        return self._counts["cached_tokens"] / known if known else None

    def figures(self) -> Figures:
        """The figures now."""
        counts = self._counts
        return Figures(
            complete=counts["complete"],
            failed=counts["failed"],
            retries=counts["retries"],
            retry_wait_s=self._retry_wait_s,
            recorded_prompt_tokens=counts["recorded_prompt_tokens"],
            prompt_tokens=counts["prompt_tokens"],
            cached_tokens=counts["cached_tokens"],
            answers_with_cached_tokens=counts["answers_with_cached_tokens"],
            cached_ratio=self.cached_ratio,
            output_tokens=counts["output_tokens"],
            short_answers=counts["short_answers"],
            answers_without_usage=counts["answers_without_usage"],
            ttft=self._ttft.spread(),
            inter_token=self._inter_token.spread(),
            piece_gap=self._gaps.spread(),
            e2e=self._e2e.spread(),
            late=self._late.spread(),
            errors=tuple(ErrorCount(kind, count, self._examples[kind]) for kind, count in self._errors.most_common()),
            workers=self._shares(),
            busiest_over_mean=self._busiest_over_mean(),
        )

    def _shares(self) -> tuple[WorkerShare, ...]:
        total = sum(share.requests for share in self._workers.values())
        ordered = sorted(self._workers.items(), key=lambda item: (-item[1].requests, item[0]))
        return tuple(
            WorkerShare(name, share.requests, share.requests / total, share.prompt_tokens, share.cached_tokens)
            for name, share in ordered
        )

    def _busiest_over_mean(self) -> float | None:
        requests = [share.requests for share in self._workers.values()]
        return max(requests) / fmean(requests) if requests else None
