"""What an operator or a router tells the engine: `/flush_cache`, `/abort_request`, `/v1/kv_hints`."""

import asyncio
from http import HTTPStatus

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.body import read_body
from engine_shim.engine.server.errors import bad_request, json_response
from engine_shim.engine.server.protocol import AbortRequest
from engine_shim.engine.server.service import EngineService
from wire.hints import PROTOCOL_VERSION, decode_hints
from wire.malformed import Malformed


def control_router(service: EngineService) -> APIRouter:
    """The routes, bound to a service."""
    router = APIRouter()

    @router.api_route("/flush_cache", methods=["GET", "POST"])
    async def flush_cache() -> Response:
        """Drop the cache of every rank; 400 while requests run."""
        if not await _flush(service):
            return Response("Cache not flushed: requests are running.\n", status_code=HTTPStatus.BAD_REQUEST)
        return Response("Cache flushed.\n", media_type="text/plain")

    @router.post("/abort_request")
    async def abort_request(request: Request) -> Response:
        """End the requests of one name, or all; an unknown name is no error."""
        body = await read_body(request, AbortRequest, limit_bytes=service.settings.limits.body_bytes)
        if not body.abort_all and not body.rid:
            raise bad_request("give rid or abort_all", "rid")
        return json_response({"aborted": service.hub.abort(None if body.abort_all else body.rid)})

    @router.post("/v1/kv_hints")
    async def kv_hints(request: Request) -> Response:
        """Take an envelope of advice; every action is rejected so far."""
        body = await read_body(request, msgspec.Raw, limit_bytes=service.settings.limits.body_bytes)
        hints = decode_hints(bytes(body))
        if isinstance(hints, Malformed):
            raise bad_request(f"not a kv_hints {PROTOCOL_VERSION} envelope: {hints.reason}", "kv_hints")
        outcomes = service.hint_outcomes.answer(hints)
        return json_response(
            {"protocol_version": PROTOCOL_VERSION, "message_id": hints.message_id, "outcomes": outcomes}
        )

    return router


async def _flush(service: EngineService) -> bool:
    """Flush all ranks or none, as far as this server knows who is busy."""
    if any(service.hub.requests):
        return False
    answers = [asyncio.wrap_future(rank.flush()) for rank in service.ranks]
    return all(await asyncio.gather(*answers))
