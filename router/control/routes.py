"""The router's own routes: health, metrics, models, decisions, workers. All read-only (others: `policy_routes`).

A FastAPI application behind the hot routes. Every error, also of unknown paths and methods, has the OpenAI form.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from router.access.principal import Principal, find_principal
from router.control.describe import describe_fleet
from router.control.error_answer import answer_error
from router.control.fleet import FleetWatch
from router.fleet.agreement import Disagreement
from router.metrics import CONTENT_TYPE, RouterMetrics, StreamView
from router.placement.decision import DecisionRecord
from router.placement.placer import Placer
from wire.ids import RequestId, Target

#: Longest name of a client's that is shown to it again.
MAX_SHOWN_CHARS = 100
#: Most decisions in one answer.
MAX_LISTED = 1_000
#: Oldest decision whose hour is told.
_MAX_AGE_S = 366 * 86_400.0
_NOT_FOUND = {404: "not_found", 405: "method_not_allowed"}


def build_control_app(
    *,
    fleet: FleetWatch,
    placer: Placer,
    metrics: RouterMetrics,
    read_streams: Callable[[], Iterable[StreamView]],
    read_inflight: Callable[[], Mapping[Target, int]],
    read_agreement: Callable[[Target], Disagreement | None],
    lifespan: Any = None,
    clock: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The application.

    Args:
        fleet: Workers and their state.
        placer: Decisions.
        metrics: The metrics page.
        read_streams: Event streams as they are.
        read_inflight: Running requests by rank.
        read_agreement: How a rank's predictions and answers disagree; None where they do not.
        lifespan: What starts and stops with the application.
        clock: The one that decisions were timed by.
    """
    app = FastAPI(title="Dovecote router", openapi_url=None, lifespan=lifespan)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_bad_query)
    app.include_router(_decision_routes(placer, clock))
    app.include_router(_fleet_routes(fleet, placer, clock, read_streams, read_inflight, read_agreement))

    @app.get("/metrics")
    async def read_metrics() -> Response:
        """Prometheus text."""
        return Response(metrics.to_text(), headers={"content-type": CONTENT_TYPE})

    return app


def _decision_routes(placer: Placer, clock: Callable[[], float]) -> APIRouter:
    routes = APIRouter()

    @routes.get("/v1/decisions")
    async def decisions(limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50) -> Response:
        """The last decisions, newest first."""
        return _answer({"decisions": [_tell(record, clock()) for record in placer.decisions.find_latest(limit)]})

    @routes.get("/v1/decisions/{request_id}")
    async def decision(request_id: str) -> Response:
        """One decision with every candidate's terms."""
        record = placer.decisions.find(RequestId(request_id))
        if record is None:
            message = "no decision of that request is remembered"
            return answer_error(404, message, param="request_id", code="decision_not_found")
        return _answer(_tell(record, clock()))

    return routes


def _answer(value: object) -> Response:
    """Plain values as JSON; figures that are none, as a broken policy makes them, are null."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def _tell(record: DecisionRecord, now_s: float) -> dict[str, Any]:
    """A decision with the hour of the day beside the monotonic second, which means nothing outside this process.

    There is none where the clock jumped so far in between that it tells nothing.
    """
    told = record.to_json()
    age_s = now_s - record.decision.decided_at_s
    known = 0.0 <= age_s <= _MAX_AGE_S
    at = datetime.now(UTC) - timedelta(seconds=age_s) if known else None
    told["decision"]["decided_at"] = None if at is None else at.isoformat(timespec="milliseconds")
    return told


def _fleet_routes(  # noqa: PLR0917  (called once, in this order)
    fleet: FleetWatch,
    placer: Placer,
    clock: Callable[[], float],
    read_streams: Callable[[], Iterable[StreamView]],
    read_inflight: Callable[[], Mapping[Target, int]],
    read_agreement: Callable[[Target], Disagreement | None],
) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health")
    async def health() -> JSONResponse:
        """200 while a request could be placed, else 503."""
        usable = fleet.count_taking()
        body = {"status": "ok" if usable else "no healthy worker", "healthy_workers": usable}
        return JSONResponse(body, status_code=200 if usable else 503)

    @routes.get("/v1/models")
    async def models(request: Request) -> JSONResponse:
        """Every model that a worker serves which takes requests, and the key is for."""
        listed = _list_models(fleet, find_principal(request.scope))
        return JSONResponse({"object": "list", "data": list(listed.values())})

    @routes.get("/v1/models/{model:path}")
    async def model(request: Request, model: str) -> JSONResponse:
        """One of them."""
        found = _list_models(fleet, find_principal(request.scope)).get(model)
        if found is None:
            message = f"the model {model[:MAX_SHOWN_CHARS]!r} does not exist; GET /v1/models lists those served"
            return answer_error(404, message, param="model", code="model_not_found")
        return JSONResponse(found)

    @routes.get("/v1/workers")
    async def workers() -> JSONResponse:
        """Every worker and rank as the router sees it."""
        told = describe_fleet(
            fleet, placer, read_streams(), inflight=read_inflight(), read_agreement=read_agreement, now_s=clock()
        )
        return JSONResponse(told)

    return routes


def _list_models(fleet: FleetWatch, principal: Principal) -> dict[str, dict[str, Any]]:
    """Models by name, over all usable workers; an adapter says on which one it sits."""
    usable = [worker for worker in fleet.workers.values() if worker.takes_requests]
    parents = {name: base for worker in usable if worker.facts for name, base in worker.facts.adapters.items()}
    names = (name for worker in usable for rank in worker.to_rank_facts(fleet.model) for name in rank.models)
    head = {"object": "model", "created": 0, "owned_by": "dovecote"}
    return {name: {"id": name, **head, "parent": parents.get(name)} for name in names if principal.may_ask_for(name)}


async def _answer_http_error(_request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = str(error.detail) if isinstance(error, HTTPException) else "internal error"
    answer = answer_error(status, message, code=_NOT_FOUND.get(status))
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)
    return answer


async def _answer_bad_query(_request: Request, error: Exception) -> JSONResponse:
    details = error.errors() if isinstance(error, RequestValidationError) else []
    first = details[0] if details else {"loc": ("?",), "msg": "invalid"}
    name = str(first["loc"][-1])
    return answer_error(400, f"{name}: {first['msg']}", param=name, code="invalid_request")
