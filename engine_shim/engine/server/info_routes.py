"""What the engine is and how it does.

`/health`, `/server_info`, `/v1/models`, `/v1/loads`, `/metrics`.
"""

import time
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version

import msgspec
from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.errors import ApiError, bad_request, json_response
from engine_shim.engine.server.rank_thread import RankThread
from engine_shim.engine.server.service import EngineService
from wire.load import LoadReport, encode_sglang_loads


def info_router(service: EngineService) -> APIRouter:
    """The read-only routes, bound to a service."""
    router = APIRouter()
    started_s = int(time.time())

    @router.get("/health")
    async def health() -> Response:
        """200 while every rank serves."""
        if service.hub.draining or not all(rank.is_alive for rank in service.ranks):
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "the engine is not serving")
        return Response()

    @router.get("/server_info")
    @router.get("/get_server_info")
    async def server_info() -> Response:
        """Facts that a router needs, in SGLang's names."""
        return json_response(describe(service))

    @router.get("/v1/models")
    async def models() -> Response:
        """The one model."""
        model = {
            "id": service.settings.model,
            "object": "model",
            "created": started_s,
            "owned_by": "dovecote",
            "root": service.settings.model,
            "max_model_len": service.settings.spec.max_model_len,
        }
        return json_response({"object": "list", "data": [model]})

    @router.get("/v1/loads")
    async def loads(request: Request) -> Response:
        """Load of every rank, or of the one named by `dp_rank`."""
        ranks = _select_ranks(service, request.query_params.get("dp_rank"))
        reports = [_report(service, rank) for rank in ranks]
        timestamp = datetime.now(UTC).isoformat()
        return json_response(encode_sglang_loads(reports, timestamp=timestamp, version=version("dovecote")))

    @router.get("/metrics")
    async def metrics() -> Response:
        """Prometheus text."""
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router


def describe(service: EngineService) -> dict[str, object]:
    """The body of `/server_info`."""
    settings, spec = service.settings, service.settings.spec
    return {
        "version": version("dovecote"),
        "served_model_name": settings.model,
        "model_path": settings.model,
        "tokenizer_path": str(service.tokenizer.folder),
        "page_size": spec.page_tokens,
        "dp_size": settings.dp_size,
        "max_total_num_tokens": spec.capacity_tokens,
        "max_running_requests": spec.max_running_requests,
        "context_length": spec.max_model_len,
        "chunked_prefill_size": spec.prefill_chunk_tokens,
        "disaggregation_mode": "null",
        "speculative_algorithm": None,
        "kv_events": service.describe_events(),
        "kv_hints": service.hint_outcomes.describe(),
    }


def _select_ranks(service: EngineService, dp_rank: str | None) -> tuple[RankThread, ...]:
    if dp_rank is None:
        return service.ranks
    wanted = [rank for rank in service.ranks if str(rank.dp_rank) == dp_rank]
    if not wanted:
        raise bad_request(f"dp_rank must be 0 to {len(service.ranks) - 1}", "dp_rank")
    return tuple(wanted)


def _report(service: EngineService, rank: RankThread) -> LoadReport:
    """The rank's own report, with what was handed to it since counted as waiting."""
    report = rank.snapshot.load
    handed_over = service.hub.requests[rank.dp_rank]
    if not handed_over:  # an idle rank makes no new report, and its last speed is past
        return msgspec.structs.replace(report, generated_tokens_per_s=0.0)
    waiting_requests = max(report.waiting_requests, handed_over - report.running_requests)
    return msgspec.structs.replace(report, waiting_requests=waiting_requests)
