"""`/generate` in SGLang's form."""

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.answer import Answer, Delta, Usage
from engine_shim.engine.server.body import read_body
from engine_shim.engine.server.errors import bad_request
from engine_shim.engine.server.generation import answer_job
from engine_shim.engine.server.job import Job
from engine_shim.engine.server.limits import MAX_NAME_CHARS
from engine_shim.engine.server.protocol import GenerateRequest, SamplingFields, StreamOptions
from engine_shim.engine.server.sampling import read_choices, read_stops, sglang_sampling
from engine_shim.engine.server.service import EngineService
from engine_shim.engine.server.targeting import find_rank, find_session, request_id_of

Json = dict[str, object]


class GenerateShape:
    """Answers of `/generate`; in a stream each chunk holds the whole text so far."""

    def __init__(self, public_id: str, *, as_list: bool) -> None:
        self._public_id = public_id
        self._as_list = as_list

    def body(self, answers: Sequence[Answer], usage: Usage) -> object:  # noqa: ARG002  (each answer tells its own)
        """One object, or a list where several answers were asked for."""
        bodies = [self._of(answer) for answer in answers]
        return bodies if self._as_list else bodies[0]

    def first_chunks(self, answers: int) -> list[Json]:  # noqa: ARG002
        """None."""
        return []

    def chunk(self, delta: Delta, answer: Answer) -> Json:
        """The answer so far."""
        chunk = self._of(answer)
        return chunk | {"index": delta.index} if self._as_list else chunk

    def usage(self, usage: Usage) -> Json:  # noqa: ARG002
        """None: every chunk has its own."""
        return {}

    def usage_chunk(self, usage: Usage) -> Json:  # noqa: ARG002
        """None: every chunk has its own."""
        return {}

    def _of(self, answer: Answer) -> Json:
        return {
            "text": answer.text,
            "output_ids": answer.token_ids,
            "meta_info": {
                "id": self._public_id,
                "finish_reason": _finish_json(answer),
                "prompt_tokens": answer.prompt_tokens,
                "completion_tokens": len(answer.token_ids),
                "cached_tokens": answer.cached_tokens,
                "dp_rank": answer.dp_rank,
            },
        }


def _finish_json(answer: Answer) -> Json | None:
    """SGLang's form of a finish reason."""
    match answer.finish_reason:
        case None:
            return None
        case "length":
            return {"type": "length", "length": len(answer.token_ids)}
        case "stop":
            return {"type": "stop", "matched": answer.stop_reason}
        case reason:
            return {"type": reason, "message": "aborted"}


def generate_router(service: EngineService) -> APIRouter:
    """The route, bound to a service."""
    router = APIRouter()

    @router.post("/generate")
    async def generate(request: Request) -> Response:
        """Continue texts or ids."""
        body = await read_body(request, GenerateRequest, limit_bytes=service.settings.limits.body_bytes)
        return await _answer(service, request, body)

    return router


async def _answer(service: EngineService, request: Request, body: GenerateRequest) -> Response:
    if (body.text is None) == (body.input_ids is None):
        raise bad_request("give either text or input_ids", "text")
    prompt, param = (body.text, "text") if body.input_ids is None else (body.input_ids, "input_ids")
    sampling = body.sampling_params or SamplingFields()
    job = Job(
        public_id=_read_rid(service, request, body.rid),
        prompts=await service.prompting.encode_prompts(prompt, param),
        sampling=sglang_sampling(sampling, service.settings.limits.default_generate_tokens),
        choices=read_choices(sampling.n),
        stops=read_stops(sampling.stop),
        dp_rank=find_rank(request, body.routed_dp_rank, body.data_parallel_rank, service.settings.dp_size),
        cache_salt=body.cache_salt or None,
        session_id=find_session(request, body.session_id),
    )
    as_list = job.choices > 1 or _is_batch(prompt)
    shape = GenerateShape(job.public_id, as_list=as_list)
    return await answer_job(service, request, job, shape, StreamOptions() if body.stream else None)


def _is_batch(prompt: str | list[object] | None) -> bool:
    """Several prompts, or one in a list of its own."""
    return isinstance(prompt, list) and not isinstance(prompt[0], int)


def _read_rid(service: EngineService, request: Request, rid: str | None) -> str:
    """The client's name for the request, by which it may abort it."""
    if rid is None:
        return request_id_of(request)
    if not 1 <= len(rid) <= MAX_NAME_CHARS:
        raise bad_request(f"rid must have 1 to {MAX_NAME_CHARS} characters", "rid")
    if service.hub.is_running(rid):
        raise bad_request(f"a request with rid {rid!r} is already running", "rid")
    return rid
