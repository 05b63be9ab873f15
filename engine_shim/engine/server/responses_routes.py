"""`/v1/responses`: made, streamed, kept for a while, read, deleted and gone on from."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.answer import Answer, Usage
from engine_shim.engine.server.body import read_body
from engine_shim.engine.server.errors import ApiError, bad_request, json_response
from engine_shim.engine.server.generation import answer_with
from engine_shim.engine.server.job import Job
from engine_shim.engine.server.named_events import NamedShape, stream_named
from engine_shim.engine.server.prompting import ChatPrompt
from engine_shim.engine.server.protocol import ResponseRequest
from engine_shim.engine.server.responses_chat import to_chat, to_forced_call, to_tools
from engine_shim.engine.server.responses_shapes import ResponseShape
from engine_shim.engine.server.sampling import openai_sampling, read_stops
from engine_shim.engine.server.service import EngineService
from engine_shim.engine.server.targeting import check_model, find_rank, find_session, request_id_of

Json = dict[str, Any]
#: Responses that are kept, the oldest first out.
MAX_KEPT = 1_024


class KeptResponse(msgspec.Struct, frozen=True):
    """A response, and the conversation up to its end."""

    body: Json
    messages: list[Json]


class ResponseStore:
    """Responses by id. In this process alone: no other engine has them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, KeptResponse] = OrderedDict()

    def put(self, response: KeptResponse) -> None:
        """Keep one."""
        self._kept[response.body["id"]] = response
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def find(self, response_id: str) -> KeptResponse:
        """One that is kept.

        Raises:
            ApiError: 404.
        """
        kept = self._kept.get(response_id)
        if kept is None:
            raise ApiError(HTTPStatus.NOT_FOUND, f"Response with id '{response_id}' not found.", param="response_id")
        return kept

    def drop(self, response_id: str) -> None:
        """Keep it no longer."""
        del self._kept[response_id]


class _KeepingShape:
    """A shape whose whole answer is kept when it is made."""

    def __init__(self, shape: ResponseShape, store: ResponseStore, messages: list[Json]) -> None:
        self._shape = shape
        self._store = store
        self._messages = messages
        self.start, self.delta, self.error = shape.start, shape.delta, shape.error

    def body(self, answers: Sequence[Answer], usage: Usage) -> Json:
        """The whole answer."""
        body = self._shape.body(answers, usage)
        self._keep(body, answers[0])
        return body

    def end(self, answer: Answer, usage: Usage) -> list[Json]:
        """Events after the last text."""
        events = self._shape.end(answer, usage)
        self._keep(events[-1]["response"], answer)
        return events

    def _keep(self, body: Json, answer: Answer) -> None:
        said: Json = {"role": "assistant", "content": answer.text}
        if body["output"][0]["type"] != "message":
            item = body["output"][0]
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "function": function, "type": "function"}
            said = {"role": "assistant", "tool_calls": [call]}
        self._store.put(KeptResponse(body, [*self._messages, said]))


def responses_router(service: EngineService) -> APIRouter:
    """The routes, bound to a service."""
    router, store = APIRouter(), ResponseStore()

    @router.post("/v1/responses")
    async def respond(request: Request) -> Response:
        """A response, kept unless told otherwise."""
        body = await read_body(request, ResponseRequest, limit_bytes=service.settings.limits.body_bytes)
        return await _answer(service, store, request, body)

    @router.get("/v1/responses/{response_id}")
    async def read(response_id: str) -> Response:
        """One that is kept."""
        return json_response(store.find(response_id).body)

    @router.delete("/v1/responses/{response_id}")
    async def delete(response_id: str) -> Response:
        """Keep one no longer."""
        store.find(response_id)
        store.drop(response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    @router.post("/v1/responses/{response_id}/cancel")
    async def cancel(response_id: str) -> Response:
        """None is made in the background, so that there is nothing to cancel."""
        store.find(response_id)
        raise bad_request("Cannot cancel a synchronous response.", "response_id")

    return router


async def _answer(service: EngineService, store: ResponseStore, request: Request, body: ResponseRequest) -> Response:
    check_model(body.model, service.settings.model)
    if body.background:
        raise bad_request("background responses are not supported", "background")
    earlier = [] if body.previous_response_id is None else store.find(body.previous_response_id).messages
    messages = to_chat(body, earlier)
    call = to_forced_call(body)
    job = Job(
        public_id=request_id_of(request),
        prompts=(await service.prompting.encode_chat(ChatPrompt(messages=messages, tools=to_tools(body))),),
        sampling=openai_sampling(body, body.max_output_tokens, service.settings.limits.default_chat_tokens),
        stops=read_stops(body.stop),
        dp_rank=find_rank(request, body.routed_dp_rank, body.data_parallel_rank, service.settings.dp_size),
        cache_salt=body.cache_salt or None,
        session_id=find_session(request, body.session_id),
    )
    plain = ResponseShape(job.public_id, int(time.time()), service.settings.model, body, call)
    kept = [message for message in messages if message.get("role") != "system"]
    shape: NamedShape = plain if body.store is False else _KeepingShape(plain, store, kept)
    events = (lambda generation: stream_named(generation, shape)) if body.stream else None
    return await answer_with(service, request, job, shape.body, events)
