"""Routes by which workers come and go: registration, and draining by hand. For admins' keys only."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from router.access.principal import OPERATOR, find_principal
from router.config.model import describe_refusal
from router.config.workers import WorkerConfig
from router.control.error_answer import answer_error
from router.control.fleet import FleetWatch
from router.control.registrations import Refused, Registrations
from router.shown_value import may_be_secret
from wire.ids import WorkerId

#: Longest body of a registration.
MAX_BODY_BYTES = 64 << 10


def build_worker_routes(fleet: FleetWatch, registrations: Registrations) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.post("/v1/workers")
    async def register(request: Request) -> JSONResponse:
        """A worker registers: 201, or the same again 200; 401 without an admin's key, 422 where it is not allowed."""
        if find_principal(request.scope) is OPERATOR:
            message = "workers register with an admin's key only, and this router has no keys (access.keys)"
            return _refuse(Refused(401, "missing_key", message))
        config = await _read_worker(request)
        is_known = not isinstance(config, Refused) and WorkerId(config.worker_id) in fleet.workers
        taken = config if isinstance(config, Refused) else await registrations.add(config)
        if isinstance(taken, Refused):
            return _refuse(taken)
        return JSONResponse({"id": taken.worker, "url": taken.config.url}, status_code=200 if is_known else 201)

    @routes.delete("/v1/workers/{worker_id}")
    async def remove(worker_id: str) -> JSONResponse:
        """A worker that registered itself goes: it gets nothing new, finishes what it has, and leaves."""
        refused = registrations.remove(WorkerId(worker_id))
        return _refuse(refused) if refused is not None else JSONResponse({"id": worker_id, "leaving": True})

    @routes.post("/v1/workers/{worker_id}/drain")
    async def drain(worker_id: str) -> JSONResponse:
        """A worker gets nothing new from now on."""
        return _tell_draining(fleet, worker_id, is_known=fleet.drain(WorkerId(worker_id)))

    @routes.delete("/v1/workers/{worker_id}/drain")
    async def resume(worker_id: str) -> JSONResponse:
        """It is used again."""
        return _tell_draining(fleet, worker_id, is_known=fleet.resume(WorkerId(worker_id)))

    return routes


def _tell_draining(fleet: FleetWatch, worker_id: str, *, is_known: bool) -> JSONResponse:
    if not is_known:
        return _refuse(Refused(404, "worker_not_found", "there is no worker of that id"))
    return JSONResponse({"id": worker_id, "draining": fleet.workers[WorkerId(worker_id)].is_draining})


async def _read_worker(request: Request) -> WorkerConfig | Refused:
    """What a worker says of itself: the keys of `workers` in the configuration."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            return Refused(413, "body_too_large", f"a registration has at most {MAX_BODY_BYTES} bytes")
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
        if "api_key_file" in fields:
            return Refused(422, "not_allowed", "a worker that registers names no file of this machine", "api_key_file")
        return WorkerConfig.model_validate(fields)
    except ValidationError as error:
        path, _, problem, _ = describe_refusal(error.errors(include_url=False)[0])
        key = ".".join(path)
        return Refused(422, "invalid_worker", f"{key}: {problem}" if not may_be_secret(key) else f"{key}: wrong", key)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refused(400, "invalid_request", "the body is not a JSON object")


def _refuse(refused: Refused) -> JSONResponse:
    return answer_error(refused.status, refused.message, param=refused.param, code=refused.code)
