"""A generating request from hand-over to answer, whole or streamed, whatever endpoint it came through."""

from collections.abc import AsyncIterator, Callable, Sequence
from http import HTTPStatus
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.answer import Answer, Delta, Usage, sum_usage
from engine_shim.engine.server.errors import ApiError, json_response
from engine_shim.engine.server.hub import Run
from engine_shim.engine.server.job import Job
from engine_shim.engine.server.protocol import StreamOptions
from engine_shim.engine.server.service import EngineService
from engine_shim.engine.server.streaming import DONE, EventStream, sse, unless_client_leaves
from engine_shim.engine.tokenizer import OutputText

#: Response header that says which rank served.
RANK_HEADER = "x-dovecote-dp-rank"


class Shape(Protocol):
    """How one endpoint writes answers."""

    def body(self, answers: Sequence[Answer], usage: Usage) -> object:
        """The whole answer."""
        ...

    def first_chunks(self, answers: int) -> Sequence[dict[str, object]]:
        """What a stream says before its first token."""
        ...

    def chunk(self, delta: Delta, answer: Answer) -> dict[str, object]:
        """One output of one answer."""
        ...

    def usage(self, usage: Usage) -> dict[str, object]:
        """Fields that tell usage."""
        ...

    def usage_chunk(self, usage: Usage) -> dict[str, object]:
        """A last chunk of usage alone."""
        ...


class Generation:
    """Outputs of one run, collected into answers, and what is counted of it."""

    def __init__(self, service: EngineService, run: Run) -> None:
        self._service = service
        self._run = run
        self._opened_s = service.clock()
        self._has_token = False
        self._outcome: str = "cancelled"
        self._closed = False
        job, tokenizer = run.job, service.tokenizer
        self.answers = [
            Answer(
                index,
                OutputText(tokenizer.token_bytes, job.stops),
                dp_rank=run.dp_rank,
                prompt_tokens=len(job.prompts[index // job.choices]),
                eos_id=tokenizer.eos_id,
            )
            for index in range(len(job.prompts) * job.choices)
        ]

    @property
    def dp_rank(self) -> int:
        """Rank that serves it."""
        return self._run.dp_rank

    @property
    def usage(self) -> Usage:
        """Counts so far."""
        return sum_usage(self.answers, self._run.job.choices)

    async def wait_accepted(self) -> None:
        """Return when the engine took the request."""
        try:
            await self._run.wait_accepted()
        except ApiError as error:
            self._outcome = _outcome_of(error)
            raise

    async def complete(self) -> None:
        """Return when every answer is complete."""
        async for _ in self.deltas():
            pass

    async def deltas(self) -> AsyncIterator[Delta]:
        """What each output adds, answer by answer as they come.

        Raises:
            ApiError: The engine refused, broke or is shutting down.
        """
        try:
            async for index, output in self._run.outputs():
                answer = self.answers[index]
                if answer.finish_reason is not None:
                    continue
                self._note_first_token(output.token_id)
                delta = answer.take(output)
                if delta.finish_reason is not None:
                    self._run.end_answer(index)
                yield delta
        except ApiError as error:
            self._outcome = _outcome_of(error)
            raise
        if all(answer.finish_reason != "abort" for answer in self.answers):
            self._outcome = "done"

    async def events(self, shape: Shape, options: StreamOptions) -> AsyncIterator[bytes]:
        """The answers as server-sent events; an error ends them without `[DONE]`."""
        first = shape.first_chunks(len(self.answers))
        try:
            async for delta in self.deltas():
                for chunk in first:
                    yield sse(chunk)
                first = ()
                chunk = shape.chunk(delta, self.answers[delta.index])
                if options.continuous_usage_stats:
                    chunk |= shape.usage(self.usage)
                yield sse(chunk)
        except ApiError as error:
            yield sse(error.body())
            return
        if options.include_usage and (last := shape.usage_chunk(self.usage)):
            yield sse(last)
        yield DONE

    def close(self) -> None:
        """Free what still runs and count how it ended; may be called again."""
        self._run.close()
        if not self._closed:
            self._closed = True
            self._service.metrics.count_end(self._outcome)

    def _note_first_token(self, token_id: int | None) -> None:
        if token_id is not None and not self._has_token:
            self._has_token = True
            self._service.metrics.observe_first_token(self._run.dp_rank, self._service.clock() - self._opened_s)


async def answer_job(
    service: EngineService, request: Request, job: Job, shape: Shape, stream: StreamOptions | None
) -> Response:
    """Run a job and answer with it: as events when `stream` is given, else as one body; see `answer_with`."""
    events = None if stream is None else (lambda generation: generation.events(shape, stream))
    return await answer_with(service, request, job, shape.body, events)


async def answer_with(
    service: EngineService,
    request: Request,
    job: Job,
    write: Callable[[Sequence[Answer], Usage], object],
    stream: Callable[[Generation], AsyncIterator[bytes]] | None,
) -> Response:
    """Run a job and answer with it.

    Args:
        service: The engine.
        request: Whose client is watched.
        job: What is asked.
        write: Makes the whole answer.
        stream: Makes its events instead; None for one body.

    Raises:
        ApiError: Before anything was sent.
        ClientGone: The client hung up; the job's pages are free.
    """
    generation = _open(service, job)
    headers = {RANK_HEADER: str(generation.dp_rank)}
    if stream is None:
        try:
            await unless_client_leaves(request.receive, generation.complete())
        finally:
            generation.close()
        return json_response(write(generation.answers, generation.usage), headers=headers)
    try:
        await unless_client_leaves(request.receive, generation.wait_accepted())
    except BaseException:
        generation.close()
        raise
    return EventStream(stream(generation), headers=headers, close=generation.close)


def _open(service: EngineService, job: Job) -> Generation:
    try:
        return Generation(service, service.hub.open(job))
    except ApiError as error:
        service.metrics.count_end(_outcome_of(error))
        raise


def _outcome_of(error: ApiError) -> str:
    return "error" if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "refused"
