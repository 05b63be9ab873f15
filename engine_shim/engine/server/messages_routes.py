"""`/v1/messages` and `/v1/messages/count_tokens` in Anthropic's form."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.body import read_body
from engine_shim.engine.server.errors import bad_request, json_response
from engine_shim.engine.server.generation import answer_with
from engine_shim.engine.server.job import Job
from engine_shim.engine.server.messages_chat import to_chat, to_forced_call, to_tools
from engine_shim.engine.server.messages_shapes import MessageShape
from engine_shim.engine.server.named_events import stream_named
from engine_shim.engine.server.prompting import ChatPrompt
from engine_shim.engine.server.protocol import MessagesRequest
from engine_shim.engine.server.sampling import openai_sampling, read_stops
from engine_shim.engine.server.service import EngineService
from engine_shim.engine.server.targeting import check_model, find_rank, find_session, request_id_of


def messages_router(service: EngineService) -> APIRouter:
    """The routes, bound to a service."""
    router = APIRouter()

    @router.post("/v1/messages")
    async def messages(request: Request) -> Response:
        """The next turn of a conversation."""
        body = await read_body(request, MessagesRequest, limit_bytes=service.settings.limits.body_bytes)
        return await _answer(service, request, body)

    @router.post("/v1/messages/count_tokens")
    async def count_tokens(request: Request) -> Response:
        """Tokens of a conversation."""
        body = await read_body(request, MessagesRequest, limit_bytes=service.settings.limits.body_bytes)
        check_model(body.model, service.settings.model)
        return json_response({"input_tokens": len(await _encode(service, body))})

    return router


async def _encode(service: EngineService, body: MessagesRequest) -> tuple[int, ...]:
    prompt = ChatPrompt(messages=to_chat(body), tools=to_tools(body), template_arguments=body.chat_template_kwargs)
    return await service.prompting.encode_chat(prompt)


async def _answer(service: EngineService, request: Request, body: MessagesRequest) -> Response:
    check_model(body.model, service.settings.model)
    if body.max_tokens is None:
        raise bad_request("max_tokens is missing", "max_tokens")
    call = to_forced_call(body)
    job = Job(
        public_id=request_id_of(request),
        prompts=(await _encode(service, body),),
        sampling=openai_sampling(body, body.max_tokens, body.max_tokens),
        stops=read_stops(body.stop_sequences),
        dp_rank=find_rank(request, body.routed_dp_rank, body.data_parallel_rank, service.settings.dp_size),
        cache_salt=body.cache_salt or None,
        session_id=find_session(request, body.session_id),
    )
    shape = MessageShape(job.public_id, service.settings.model, call)
    events = (lambda generation: stream_named(generation, shape)) if body.stream else None
    return await answer_with(service, request, job, shape.body, events)
