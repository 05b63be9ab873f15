"""`/v1/chat/completions` and `/v1/completions`."""

import time

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.body import read_body
from engine_shim.engine.server.errors import bad_request
from engine_shim.engine.server.forced_call import read_chat_choice
from engine_shim.engine.server.generation import answer_job
from engine_shim.engine.server.job import Job
from engine_shim.engine.server.openai_shapes import ChatShape, CompletionShape, Envelope
from engine_shim.engine.server.prompting import ChatPrompt
from engine_shim.engine.server.protocol import ChatRequest, CompletionRequest, GenerationFields, StreamOptions
from engine_shim.engine.server.sampling import openai_sampling, read_choices, read_stops
from engine_shim.engine.server.service import EngineService
from engine_shim.engine.server.targeting import check_model, find_rank, find_session, request_id_of


def openai_router(service: EngineService) -> APIRouter:
    """The routes, bound to a service."""
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        """One or more answers to a conversation."""
        body = await read_body(request, ChatRequest, limit_bytes=service.settings.limits.body_bytes)
        return await _answer_chat(service, request, body)

    @router.post("/v1/completions")
    async def complete(request: Request) -> Response:
        """Continuations of one or more prompts."""
        body = await read_body(request, CompletionRequest, limit_bytes=service.settings.limits.body_bytes)
        return await _answer_completion(service, request, body)

    return router


async def _answer_chat(service: EngineService, request: Request, body: ChatRequest) -> Response:
    check_model(body.model, service.settings.model)
    if body.logprobs:
        raise bad_request("logprobs are not supported", "logprobs")
    prompt = ChatPrompt(
        messages=body.messages,
        tools=body.tools,
        add_generation_prompt=body.add_generation_prompt is not False,
        template_arguments=body.chat_template_kwargs,
    )
    max_tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    job = _build_job(service, request, body, max_tokens, service.settings.limits.default_chat_tokens)
    job = msgspec.structs.replace(job, prompts=(await service.prompting.encode_chat(prompt),))
    shape = ChatShape(_envelope(service, body, job), job.prompts, read_chat_choice(body.tool_choice, body.tools))
    return await answer_job(service, request, job, shape, _stream_options(body))


async def _answer_completion(service: EngineService, request: Request, body: CompletionRequest) -> Response:
    check_model(body.model, service.settings.model)
    unsupported = {"echo": body.echo, "logprobs": body.logprobs is not None, "suffix": body.suffix}
    for param, asked in unsupported.items():
        if asked:
            raise bad_request(f"{param} is not supported", param)
    if body.best_of not in (None, 1, body.n):
        raise bad_request("best_of is not supported beyond n", "best_of")
    job = _build_job(service, request, body, body.max_tokens, service.settings.limits.default_completion_tokens)
    job = msgspec.structs.replace(job, prompts=await service.prompting.encode_prompts(body.prompt, "prompt"))
    shape = CompletionShape(_envelope(service, body, job), job.prompts, job.choices)
    return await answer_job(service, request, job, shape, _stream_options(body))


def _build_job(
    service: EngineService, request: Request, body: GenerationFields, max_tokens: int | None, default_tokens: int
) -> Job:
    """Everything of the job but its prompts, checked before the costly work on those."""
    service.take_hints(bytes(body.kv_hints))
    asked = find_rank(request, body.routed_dp_rank, body.data_parallel_rank, service.settings.dp_size)
    return Job(
        public_id=request_id_of(request),
        prompts=(),
        sampling=openai_sampling(body, max_tokens, default_tokens),
        choices=read_choices(body.n),
        stops=read_stops(body.stop),
        dp_rank=asked,
        cache_salt=body.cache_salt or None,
        session_id=find_session(request, body.session_id),
    )


def _envelope(service: EngineService, body: GenerationFields, job: Job) -> Envelope:
    return Envelope(
        public_id=job.public_id,
        created_s=int(time.time()),
        model=service.settings.model,
        return_token_ids=bool(body.return_token_ids),
    )


def _stream_options(body: GenerationFields) -> StreamOptions | None:
    return (body.stream_options or StreamOptions()) if body.stream else None
