"""The event loop: requests of the trace through router and ranks, in virtual time, the same for the same seed.

Events are ends of runs, due requests and begins of runs; nothing else makes time pass. Of one moment's events, what
ends comes first, then what is due, then what begins, each in the order in which it was planned: a request that is due
when a step ends is in the next one.
"""

import heapq
from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from engine_shim.engine.admission.outcome import TokenOutput
from engine_shim.engine.admission.request import EngineRequest, SamplingParams
from router.placement.instructions import Place
from simulator.fleet.rank import SimRank
from simulator.fleet.router_side import RouterSide
from simulator.graph.loop import ClosedLoop
from simulator.graph.request import BlockTrace
from wire.ids import Target

#: The router hears of progress in steps of at least so many tokens, as its proxy tells it.
PROGRESS_TOKENS = 32


class _Kind(IntEnum):
    """What happens; of one moment's events the lower come first."""

    END = 0
    DUE = 1
    BEGIN = 2


class Served(Struct):
    """What became of one request; times in seconds since the start of the trace."""

    #: Place in the trace.
    place: int
    due_s: float
    target: Target
    #: Prompt tokens the router expected to be cached.
    predicted_tokens: int = 0
    cached_tokens: int = 0
    #: Output tokens that the router was last told of.
    told_tokens: int = 0
    first_token_s: float | None = None
    end_s: float | None = None


class RefusedError(RuntimeError):
    """A request of the trace cannot be served by this fleet."""


class Simulation:
    """One run of a trace."""

    def __init__(
        self,
        trace: BlockTrace,
        ranks: Sequence[SimRank],
        router: RouterSide,
        *,
        report_interval_s: float | None = None,
    ) -> None:
        self._requests = trace.requests
        self._ranks = {rank.target: rank for rank in ranks}
        self._router = router
        self._loop = ClosedLoop(trace.requests)
        self._report_interval_s = report_interval_s
        self._next_report_s = 0.0
        #: (time, kind, serial, place of a request, or rank whose run may end or begin then).
        self._queue: list[tuple[float, _Kind, int, int | SimRank]] = []
        self._serial = 0
        #: Ranks that may have events which the router has not heard, in the order in which they began.
        self._untold: dict[SimRank, None] = {}
        self.now_s = 0.0
        self.served: dict[int, Served] = {}
        #: Those that have no answer yet, by request.
        self._open: dict[str, Served] = {}

    def run(self) -> list[Served]:
        """Serve everything; returns it in the order of the trace.

        Raises:
            RefusedError: A prompt fits no rank, or the trace waits for something that never comes.
        """
        for due_s, place in self._loop.roots():
            self._push(due_s, _Kind.DUE, place)
        queue, pop, begins = self._queue, heapq.heappop, _Kind.BEGIN
        while queue:
            self.now_s, kind, _, item = pop(queue)
            if isinstance(item, int):
                self._send(item)
            elif item.ends_s == self.now_s:
                self._finish(item)
            elif kind is begins and item.ends_s is None:
                self._begin(item)
        if len(self.served) != len(self._requests):
            raise RefusedError(f"{len(self._requests) - len(self.served)} requests wait for what never comes")
        return [self.served[place] for place in range(len(self._requests))]

    def _push(self, at_s: float, kind: "_Kind", item: int | SimRank) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (at_s, kind, self._serial, item))

    def _send(self, place: int) -> None:
        """A request is due: place it, hand it to its rank."""
        self._tell_events()
        self._report_loads()
        request = self._requests[place]
        instruction = self._router.place(request, self.now_s)
        if not isinstance(instruction, Place):
            raise RefusedError(f"{request.request_id}: {instruction.reason}")
        predicted_tokens = instruction.decision.predicted_cached_tokens
        served = Served(place, self.now_s, instruction.target, predicted_tokens)
        self.served[place] = self._open[request.request_id] = served
        rank = self._ranks[instruction.target]
        engine_request = EngineRequest(
            request_id=request.request_id,
            prompt_ids=request.blocks,
            prompt_tokens=request.prompt_tokens,
            sampling=SamplingParams(max_new_tokens=request.output_tokens, seed=0),
            session_id=request.session,
            arrival_s=self.now_s,
        )
        before_s = rank.ends_s
        refusal = rank.submit(engine_request, self.now_s)
        if refusal is not None:
            raise RefusedError(f"{request.request_id}: {refusal.message}")
        for due_s, waiter in self._loop.start(place, self.now_s):
            self._push(due_s, _Kind.DUE, waiter)
        if rank.ends_s is None:
            self._push(self.now_s, _Kind.BEGIN, rank)
        elif rank.ends_s != before_s:
            self._push(rank.ends_s, _Kind.END, rank)

    def _begin(self, rank: SimRank) -> None:
        rank.begin(self.now_s)
        self._untold[rank] = None
        ends_s = rank.ends_s
        if ends_s is not None:
            self._push(ends_s, _Kind.END, rank)

    def _finish(self, rank: SimRank) -> None:
        """A run ended: tell the router what it would see, and go on."""
        for output in rank.finish():
            self._take(output)
        if self._queue and self._queue[0][0] <= self.now_s:
            self._push(self.now_s, _Kind.BEGIN, rank)
        else:
            self._begin(rank)

    def _take(self, output: TokenOutput) -> None:
        served = self._open[output.request_id]
        request = self._requests[served.place]
        if served.first_token_s is None:
            served.first_token_s = self.now_s
            served.cached_tokens = output.cached_tokens
            self._router.see_first_token(request, self.now_s)
        if output.finish_reason is None:
            if output.output_tokens - served.told_tokens >= PROGRESS_TOKENS:
                served.told_tokens = output.output_tokens
                self._router.see_progress(request, output.output_tokens, self.now_s)
            return
        served.end_s = self.now_s
        del self._open[request.request_id]
        self._router.see_end(request, output.cached_tokens, output.output_tokens, self.now_s)
        for due_s, waiter in self._loop.end(served.place, self.now_s):
            self._push(due_s, _Kind.DUE, waiter)

    def _tell_events(self) -> None:
        """What the router would have heard by now; only a decision makes a difference of it."""
        for rank in self._untold:
            frames = rank.publish(self.now_s)
            if frames is not None:
                self._router.hear(rank.target, frames, self.now_s)
        self._untold.clear()

    def _report_loads(self) -> None:
        """The reports that came since the last request: only the newest matters."""
        if self._report_interval_s is None or self.now_s < self._next_report_s:
            return
        self._next_report_s = self.now_s + self._report_interval_s
        for target, rank in self._ranks.items():
            self._router.report(target, rank.load(), self.now_s)
