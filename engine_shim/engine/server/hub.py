"""Between HTTP requests and rank threads: hands requests to ranks, routes signals back, aborts what is left.

Lives on the event loop; only `deliver` is called from other threads. A `Run` is one HTTP request's
share of the engine: leaving it, on whatever path, frees everything it still holds.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from http import HTTPStatus

from engine_shim.engine.admission.outcome import TokenOutput
from engine_shim.engine.admission.refuse import find_refusal
from engine_shim.engine.admission.request import Refusal, RefusalReason
from engine_shim.engine.server.errors import ApiError
from engine_shim.engine.server.job import Job
from engine_shim.engine.server.rank_choice import RankChoice
from engine_shim.engine.server.rank_thread import Accepted, Failed, RankThread, Refused, Signal
from engine_shim.engine.spec import EngineSpec

_SHUTTING_DOWN = "the server is shutting down"


class Run:
    """The engine requests of one HTTP request, all on one rank, as one stream of outputs."""

    def __init__(self, hub: "RequestHub", job: Job, dp_rank: int, request_ids: Sequence[str]) -> None:
        self._hub = hub
        self.job = job
        self.dp_rank = dp_rank
        self._index_of = {request_id: index for index, request_id in enumerate(request_ids)}
        self._id_of = list(request_ids)
        self._open = set(request_ids)
        self._unaccepted = set(request_ids)
        self._outputs: deque[tuple[int, TokenOutput]] = deque()
        self._failure: ApiError | None = None
        self._changed = asyncio.Event()

    @property
    def public_id(self) -> str:
        """Name the client gave or was given."""
        return self.job.public_id

    async def wait_accepted(self) -> None:
        """Return when the engine took every request.

        Raises:
            ApiError: It refused one, or broke.
        """
        while self._unaccepted and self._failure is None:
            await self._wait_for_change()
        self._raise_failure()

    async def outputs(self) -> AsyncIterator[tuple[int, TokenOutput]]:
        """Outputs of all answers, each with its answer's index, until every answer has ended.

        Raises:
            ApiError: The engine broke or the server is shutting down.
        """
        while True:
            while self._outputs:
                yield self._outputs.popleft()
            self._raise_failure()
            if not self._open:
                return
            await self._wait_for_change()

    def end_answer(self, index: int) -> None:
        """Free one answer that needs no more tokens."""
        self._end(self._id_of[index], tell_engine=True)

    def close(self) -> None:
        """Free whatever is still running; may be called again."""
        for request_id in tuple(self._open):
            self._end(request_id, tell_engine=True)

    def fail(self, error: ApiError) -> None:
        """End every answer with an error."""
        self._failure = self._failure or error
        self.close()
        self._changed.set()

    def cancel(self) -> None:
        """End every answer with finish reason `abort`, as a client asked."""
        for request_id in tuple(self._open):
            aborted = TokenOutput(
                request_id=request_id,
                token_id=None,
                finish_reason="abort",
                prompt_tokens=0,
                cached_tokens=0,
                output_tokens=0,
            )
            self._outputs.append((self._index_of[request_id], aborted))
        self._unaccepted.clear()
        self.close()
        self._changed.set()

    def take(self, signal: Signal) -> None:
        """Note one signal of one of this run's requests."""
        self._unaccepted.discard(signal.request_id)
        match signal:
            case Accepted():
                pass
            case Refused(request_id, refusal):
                self._end(request_id, tell_engine=False)
                self.fail(_refusal_error(refusal))
            case Failed(request_id, message):
                self._end(request_id, tell_engine=False)
                self.fail(ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, message))
            case TokenOutput(request_id=request_id, finish_reason=finish_reason):
                self._outputs.append((self._index_of[request_id], signal))
                if finish_reason is not None:
                    self._end(request_id, tell_engine=False)
        self._changed.set()

    def _end(self, request_id: str, *, tell_engine: bool) -> None:
        if request_id in self._open:
            self._open.remove(request_id)
            self._hub.forget(self.dp_rank, request_id, tell_engine=tell_engine)

    async def _wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class RequestHub:
    """Every run of the process."""

    def __init__(self, spec: EngineSpec, clock: Callable[[], float], dp_size: int) -> None:
        self._spec = spec
        self._clock = clock
        self._choice = RankChoice(dp_size)
        self._serials = itertools.count()
        self._run_of: dict[str, Run] = {}
        self._ranks: Sequence[RankThread] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = False

    def attach(self, loop: asyncio.AbstractEventLoop, ranks: Sequence[RankThread]) -> None:
        """Say where signals go and which ranks take requests."""
        self._loop, self._ranks = loop, ranks

    @property
    def requests(self) -> Sequence[int]:
        """Engine requests under way, by rank."""
        return self._choice.requests

    @property
    def draining(self) -> bool:
        """No new request is taken."""
        return self._draining

    def open(self, job: Job) -> Run:
        """Hand a job to a rank. The caller must close the run.

        Raises:
            ApiError: The server is shutting down, or the engine can never serve this.
        """
        if self._draining:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, _SHUTTING_DOWN)
        rank = self._choice.choose() if job.dp_rank is None else job.dp_rank
        if not self._ranks[rank].is_alive:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"rank {rank} has stopped")
        requests = job.engine_requests(next(self._serials), self._clock())
        for request in requests:
            if refusal := find_refusal(request, self._spec):
                raise _refusal_error(refusal)
        run = Run(self, job, rank, [request.request_id for request in requests])
        self._choice.reserve(rank, len(requests))
        for request in requests:
            self._run_of[request.request_id] = run
            self._ranks[rank].submit(request)
        return run

    def is_running(self, public_id: str) -> bool:
        """Whether a request of this name is under way."""
        return any(run.public_id == public_id for run in self._run_of.values())

    def abort(self, public_id: str | None) -> int:
        """End the runs of exactly this name, or all of them; returns how many."""
        runs = {id(run): run for run in self._run_of.values() if public_id in (None, run.public_id)}
        for run in runs.values():
            run.cancel()
        return len(runs)

    def forget(self, dp_rank: int, request_id: str, *, tell_engine: bool) -> None:
        """A request has ended, or must."""
        del self._run_of[request_id]
        self._choice.release(dp_rank)
        if tell_engine:
            self._ranks[dp_rank].abort(request_id)

    def drain(self) -> None:
        """Take no new request."""
        self._draining = True

    def fail_all(self) -> None:
        """End every run with 503."""
        for run in {id(run): run for run in self._run_of.values()}.values():
            run.fail(ApiError(HTTPStatus.SERVICE_UNAVAILABLE, _SHUTTING_DOWN))

    def deliver(self, signals: tuple[Signal, ...]) -> None:
        """Called from a rank's thread: hand its signals to the loop. Dropped once the loop is gone."""
        loop = self._loop
        with suppress(RuntimeError):  # the loop closed: nobody waits any more
            if loop is not None:
                loop.call_soon_threadsafe(self._take, signals)

    def _take(self, signals: tuple[Signal, ...]) -> None:
        for signal in signals:
            run = self._run_of.get(signal.request_id)
            if run is not None:
                run.take(signal)


def _refusal_error(refusal: Refusal) -> ApiError:
    """Refusals are the client's fault, but for a full queue."""
    full = refusal.reason is RefusalReason.QUEUE_FULL
    return ApiError(HTTPStatus.TOO_MANY_REQUESTS if full else HTTPStatus.BAD_REQUEST, refusal.message)
