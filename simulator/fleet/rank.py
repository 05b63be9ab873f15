"""One engine rank on the virtual clock: the real admission and cache, timed by a model, in runs of like steps.

Takes requests, gives events as wire frames and outputs. A run is one step, or as many steps in a row as do the same
thing: until a request ends or a page is full. A request that arrives cuts it at the end of the step under way.
"""

from collections.abc import Callable

from msgspec import Struct

from engine_shim.engine.admission.admission import Admission, AdmissionCounters, PlannedRow
from engine_shim.engine.admission.outcome import TokenOutput
from engine_shim.engine.admission.request import EngineRequest, Refusal
from engine_shim.engine.cache.page_hash import NAMED_PAGES
from engine_shim.engine.cache.prefix_cache import PrefixCache
from engine_shim.engine.publish.dialect import EventDialect
from engine_shim.engine.publish.journal import Journal
from engine_shim.engine.spec import EngineSpec
from simulator.fleet.times import EngineTimes, StepTimes
from wire.events import EventBatch
from wire.frames import encode_live
from wire.ids import Target
from wire.load import LoadReport

#: Events of a step, as they would come off the socket.
Frames = list[bytes]


class _Run(Struct):
    rows: tuple[PlannedRow, ...]
    times: StepTimes
    begun_s: float
    steps: int
    #: Outputs of a step that was settled when it began; None where that is done at its end.
    outputs: tuple[TokenOutput, ...] | None = None


class SimRank:
    """Serves requests in virtual time; the caller wakes it at `ends_s`.

    Cost: one plan a run, so that it grows with requests and filled pages and not with tokens.
    """

    def __init__(
        self,
        target: Target,
        spec: EngineSpec,
        times: EngineTimes,
        *,
        encode: Callable[[EventBatch], bytes] | None = None,
    ) -> None:
        spec.validate()
        self.target = target
        self.spec = spec
        self._times = times
        self._cache = PrefixCache(page_tokens=spec.page_ids, pool_pages=spec.pool_pages, naming=NAMED_PAGES)
        self._admission = Admission(spec, self._cache)
        encoder = encode or EventDialect.SGLANG_MAP.encoder()
        self._journal = Journal(encoder, dp_rank=target.dp_rank, window_batches=0)
        self._run: _Run | None = None
        #: When the run under way ends; None where nothing is computed. The rank's own to write.
        self.ends_s: float | None = None
        #: Seconds in which something was computed.
        self.busy_s = 0.0

    @property
    def counters(self) -> AdmissionCounters:
        """Sums since the start."""
        return self._admission.counters

    @property
    def evicted_pages(self) -> int:
        """Pages dropped to make room."""
        return self._cache.evicted_pages

    def submit(self, request: EngineRequest, now_s: float) -> Refusal | None:
        """Take a request in; a run of several steps then ends with the step under way."""
        refusal = self._admission.submit(request)
        run = self._run
        if refusal is None and run is not None and run.steps > 1:
            run.steps = run.times.count_begun(now_s - run.begun_s, run.steps)
            self.ends_s = run.begun_s + run.times.sum_s(run.steps)
        return refusal

    def begin(self, now_s: float) -> None:
        """Plan the next run, if there is anything to do.

        A single step is settled at once: nobody looks at the rank before it ends, and its blocks are told when the step
        begins, as engines do that publish what they schedule.
        """
        rows = self._admission.plan()
        if not rows:
            return
        times = self._times.measure(rows)
        steps = self._admission.count_like_steps(rows)
        steps = steps if times.steps is None else min(steps, times.steps)
        self.ends_s = now_s + times.sum_s(steps)
        self._run = _Run(rows, times, now_s, steps, self._settle(rows) if steps == 1 else None)

    def finish(self) -> tuple[TokenOutput, ...]:
        """The run's end: what it gave."""
        run, ends_s = self._run, self.ends_s
        if run is None or ends_s is None:
            raise RuntimeError(f"{self.target} has nothing under way")
        self._run = self.ends_s = None
        self.busy_s += ends_s - run.begun_s
        if run.outputs is not None:
            return run.outputs
        return self._settle(self._admission.lengthen(run.rows, run.steps))

    def load(self) -> LoadReport:
        """What the rank would say of itself. Cost: one match a waiting request."""
        queues = self._admission.queues
        return LoadReport(
            dp_rank=self.target.dp_rank,
            running_requests=len(queues.running),
            waiting_requests=len(queues.waiting) + len(queues.retracted),
            waiting_uncached_tokens=self._admission.count_waiting_uncached_tokens(),
            used_tokens=self._cache.count_pages().leased * self.spec.page_tokens,
            capacity_tokens=self.spec.capacity_tokens,
            max_running_requests=self.spec.max_running_requests,
        )

    def check_invariants(self) -> None:
        """Raise `RuntimeError` where a page or a request is in no place, or in two. Cost: O(pages)."""
        self._cache.check_invariants()
        self._admission.queues.check_invariants()

    def _settle(self, rows: tuple[PlannedRow, ...]) -> tuple[TokenOutput, ...]:
        return self._admission.settle(rows, [0 if row.samples else None for row in rows])

    def publish(self, now_s: float) -> Frames | None:
        """A message with the events since the last one; None where there are none."""
        events = self._cache.take_events()
        if not events:
            return None
        entry = self._journal.append(events, now_s)
        return encode_live("", entry.seq, entry.payload)
