"""One rank of the engine, composed: a step is plan, compute, settle, and what to publish of it.

Takes requests and the clock from the server, gives it tokens and cache events. Single-threaded, and blocks
only inside the forward. Decides nothing itself: admission does.
"""

from engine_shim.engine.admission.admission import Admission, AdmissionCounters, PlannedRow
from engine_shim.engine.admission.draws import uniform_draw
from engine_shim.engine.admission.outcome import TokenOutput
from engine_shim.engine.admission.request import EngineRequest, Refusal
from engine_shim.engine.cache.pages import PageCounts
from engine_shim.engine.cache.prefix_cache import PrefixCache
from engine_shim.engine.cache.token_bytes import TOKEN_BYTES
from engine_shim.engine.forward.base import Draw, Forward, ForwardRow
from engine_shim.engine.spec import EngineSpec
from engine_shim.engine.step_result import EngineCounters, StepResult
from wire.load import LoadReport

__all__ = ["Engine", "EngineCounters", "StepResult", "TokenOutput"]


class Engine:
    """Serves requests on one pool of pages."""

    def __init__(self, spec: EngineSpec, forward: Forward, *, dp_rank: int, cache: PrefixCache | None = None) -> None:
        spec.validate()
        if spec.id_tokens != 1:
            raise ValueError(f"id_tokens={spec.id_tokens}: a forward computes tokens, not ids of blocks")
        self.spec = spec
        self.dp_rank = dp_rank
        self._forward = forward
        self._cache = cache or PrefixCache(page_tokens=spec.page_tokens, pool_pages=spec.pool_pages)
        self._admission = Admission(spec, self._cache)
        #: Ends of aborted requests, told by the next step.
        self._ended: list[TokenOutput] = []
        #: Clock and generated tokens at the last load report; None before the first.
        self._last_report: tuple[float, int] | None = None

    @property
    def has_work(self) -> bool:
        """Whether a step would tell anything: requests, ends of aborted ones, or events to publish."""
        return bool(len(self._admission.queues) or self._ended or self._cache.has_events)

    @property
    def pages(self) -> PageCounts:
        """Where the pool's pages are now."""
        return self._cache.count_pages()

    @property
    def counters(self) -> EngineCounters:
        """Sums since the start."""
        sums: AdmissionCounters = self._admission.counters
        return EngineCounters(
            prompt_tokens=sums.prompt_tokens,
            cached_tokens=sums.cached_tokens,
            computed_tokens=sums.computed_tokens,
            generated_tokens=sums.generated_tokens,
            evicted_pages=self._cache.evicted_pages,
            retracted_requests=sums.retracted_requests,
            finished_requests=sums.finished_requests,
            aborted_requests=sums.aborted_requests,
        )

    def submit(self, request: EngineRequest) -> Refusal | None:
        """Take a request in, or say why not; a refused one leaves no trace."""
        return self._admission.submit(request)

    def abort(self, request_id: str) -> bool:
        """End a request and free its pages now; the next step tells its end. False where it is unknown."""
        output = self._admission.abort(request_id)
        if output is None:
            return False
        self._ended.append(output)
        return True

    def step(self, now_s: float) -> StepResult:
        """Admit, match, allocate, compute, settle; events come out in the order the cache changed.

        The first step's first event is `AllBlocksCleared`: whoever listens forgets an earlier engine.
        """
        rows = self._admission.plan()
        token_ids = self._forward.run([_to_forward_row(row) for row in rows]) if rows else []
        outputs = (*self._ended, *self._admission.settle(rows, token_ids))
        self._ended.clear()
        return StepResult(now_s=now_s, outputs=outputs, events=self._cache.take_events())

    def flush_cache(self) -> bool:
        """Drop everything cached; False, and nothing dropped, while any request has not ended."""
        return not len(self._admission.queues) and self._cache.flush()

    def load(self, now_s: float) -> LoadReport:
        """How busy this rank is. Cost: one match a waiting request."""
        queues = self._admission.queues
        return LoadReport(
            dp_rank=self.dp_rank,
            running_requests=len(queues.running),
            waiting_requests=len(queues.waiting) + len(queues.retracted),
            waiting_uncached_tokens=self._admission.count_waiting_uncached_tokens(),
            used_tokens=self.pages.leased * self.spec.page_tokens,
            capacity_tokens=self.spec.capacity_tokens,
            max_running_requests=self.spec.max_running_requests,
            generated_tokens_per_s=self._measure_speed(now_s),
        )

    def _measure_speed(self, now_s: float) -> float | None:
        """Output tokens per second since the last report; None for the first, or where no time has passed."""
        generated_tokens = self._admission.counters.generated_tokens
        last, self._last_report = self._last_report, (now_s, generated_tokens)
        if last is None or now_s <= last[0]:
            return None
        return (generated_tokens - last[1]) / (now_s - last[0])

    def check_invariants(self) -> None:
        """Raise `RuntimeError` where a page or a request is in no place, or in two. Cost: O(pages)."""
        self._cache.check_invariants()
        self._admission.queues.check_invariants()


def _to_forward_row(row: PlannedRow) -> ForwardRow:
    sequence = row.sequence
    span = slice(sequence.computed_tokens * TOKEN_BYTES, row.end_token * TOKEN_BYTES)
    return ForwardRow(
        token_bytes=bytes(sequence.token_bytes[span]),
        start_token=sequence.computed_tokens,
        pages=row.lease.pages,
        draw=_find_draw(row) if row.samples else None,
    )


def _find_draw(row: PlannedRow) -> Draw:
    sampling = row.sequence.request.sampling
    uniform = uniform_draw(row.sequence.draw_seed, row.sequence.output_tokens)
    return Draw(temperature=sampling.temperature, top_p=sampling.top_p, uniform=uniform)
