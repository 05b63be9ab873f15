"""The sidecar's HTTP face: facts, health, metrics, load, snapshots, hints.

Takes a service, gives an ASGI application. Whatever the engine does, an answer here is an answer or an error in the
OpenAI form.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from engine_shim.sidecar.describe import describe, describe_health
from engine_shim.sidecar.metrics import render_metrics
from engine_shim.sidecar.service import SidecarService
from engine_shim.sidecar.snapshot_response import SnapshotResponse, SnapshotSlots
from wire.hints import MAX_ENVELOPE_BYTES, PROTOCOL_VERSION, decode_hints, reject_all
from wire.load import encode_sglang_loads
from wire.malformed import Malformed

#: What becomes of every hint.
NOT_SUPPORTED = "not supported by the engine"


def build_app(service: SidecarService) -> FastAPI:
    """The routes, bound to a service whose life is the application's."""
    slots = SnapshotSlots()

    @asynccontextmanager
    async def live(_app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(title="dovecote sidecar", lifespan=live, openapi_url=None)
    _add_info(app, service)

    @app.get("/snapshot/{dp_rank}")
    async def snapshot(dp_rank: str) -> Response:
        """Everything a rank holds, at the number of the last batch that was published."""
        hub = service.hub
        if hub is None:
            return _error(503, service.problem or "the mirrors are not open")
        if not dp_rank.isdecimal() or len(dp_rank) > 6 or int(dp_rank) >= hub.rank_count:
            return _error(404, f"ranks are 0 to {hub.rank_count - 1}")
        if not slots.take_place():
            return _error(503, "too many snapshots are asked for; try again soon")
        return SnapshotResponse(slots, lambda: hub.take_snapshot(int(dp_rank)))

    @app.post("/v1/kv_hints")
    async def kv_hints(request: Request) -> Response:
        """Take an envelope of advice; the engine beside this takes none."""
        body = await _read_body(request)
        hints = Malformed("payload size") if body is None else decode_hints(body)
        if isinstance(hints, Malformed):
            return _error(400, f"not a kv_hints {PROTOCOL_VERSION} envelope: {hints.reason}")
        outcomes = reject_all(hints, NOT_SUPPORTED)
        return _json({"protocol_version": PROTOCOL_VERSION, "message_id": hints.message_id, "outcomes": outcomes})

    return app


def _add_info(app: FastAPI, service: SidecarService) -> None:
    @app.get("/health")
    async def health() -> Response:
        """200 while the engine lives and its mirrors are open."""
        return _json(describe_health(service), status=200 if service.is_ready else 503)

    @app.get("/server_info")
    @app.get("/get_server_info")
    async def server_info() -> Response:
        """Facts of the engine in SGLang's names, the sidecar's sockets in place of its own."""
        facts = describe(service)
        return _error(503, service.problem or "the mirrors are not open") if facts is None else _json(facts)

    @app.get("/v1/loads")
    async def loads() -> Response:
        """Load of every rank, asked of the engine now."""
        reports = await service.read_loads()
        if reports is None:
            return _error(503, "the engine does not say its load")
        timestamp = datetime.now(UTC).isoformat()
        return _json(encode_sglang_loads(reports, timestamp=timestamp, version=version("dovecote")))

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus text."""
        views = [] if service.hub is None else await asyncio.to_thread(service.hub.to_views)
        has_redis = None if service.redis is None else service.redis.problem is None
        page = render_metrics(views, is_ready=service.is_ready, has_redis=has_redis)
        return Response(page, media_type=CONTENT_TYPE_LATEST)


async def _read_body(request: Request) -> bytes | None:
    """The body; None where it is longer than any envelope."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_ENVELOPE_BYTES:
            return None
    return bytes(body)


def _json(body: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")


def _error(status: int, message: str) -> Response:
    kinds = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}
    error = {"message": message, "type": kinds[status], "param": None, "code": status}
    answer = _json({"error": error}, status=status)
    if status == 503:
        answer.headers["retry-after"] = "1"
    return answer
