"""The ASGI application: routes, errors in the OpenAI form, start and stop of the service."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.control_routes import control_router
from engine_shim.engine.server.embedding_routes import embedding_router
from engine_shim.engine.server.errors import ApiError, ClientGone, json_response
from engine_shim.engine.server.generate_routes import generate_router
from engine_shim.engine.server.info_routes import info_router
from engine_shim.engine.server.messages_routes import messages_router
from engine_shim.engine.server.messages_shapes import error_json
from engine_shim.engine.server.openai_routes import openai_router
from engine_shim.engine.server.request_ids import RequestIds
from engine_shim.engine.server.responses_routes import responses_router
from engine_shim.engine.server.service import EngineService
from engine_shim.engine.server.token_routes import token_router

_log = logging.getLogger(__name__)
#: Nginx's status for a client that closed the connection; nobody reads it.
_CLIENT_CLOSED = 499


def build_app(service: EngineService) -> FastAPI:
    """The application of one service, which starts and stops with it."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.stop()

    app = FastAPI(title="dovecote engine", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    routers = (openai_router, messages_router, responses_router, embedding_router, generate_router, token_router)
    for router in (*routers, info_router, control_router):
        app.include_router(router(service))
    app.add_middleware(RequestIds)
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(ClientGone, _answer_nobody)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_our_fault)
    return app


async def _answer_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101  (registered for it)
    if request.url.path.startswith("/v1/messages"):
        return json_response(error_json(error), status=error.status)
    return error.response()


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for it)
    message = f"{error.detail}: {request.method} {request.url.path}"
    return ApiError(HTTPStatus(error.status_code), message).response()


async def _answer_our_fault(request: Request, error: Exception) -> Response:
    """The log has the story; the client gets none of the internals."""
    _log.error("request failed path=%s", request.url.path, exc_info=error)
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the engine's log").response()
