"""The OpenAPI page of a router: its own routes as FastAPI describes them, and the data plane's beside them.

Bodies of the data plane are described by what the router reads of them; all else in them is the engine's to take.
"""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from router.proxy.api import PATHS, SHAPES, Api
from router.proxy.legs.aborts import ABORT_PATH
from router.proxy.token_calls import COUNT_PATH, TOKEN_PATHS

Json = dict[str, Any]
PAGE_PATH = "/openapi.json"
_TEXT: Json = {"type": "string"}
_ID: Json = {"type": "string", "minLength": 1, "maxLength": 256}
_OBJECTS: Json = {"type": "array", "items": {"type": "object"}}
_IDS: Json = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_TEXTS_OR_IDS: Json = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}, _IDS]}
_COUNT: Json = {"type": "integer", "minimum": 1}
_MESSAGE: Json = {
    "type": "object",
    "properties": {"role": {"enum": ["system", "user", "assistant", "tool"]}, "content": {"anyOf": [_TEXT, _OBJECTS]}},
    "required": ["role", "content"],
}
_MESSAGES: Json = {"type": "array", "items": _MESSAGE, "minItems": 1}
_ERROR: Json = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": _TEXT, "type": _TEXT, "code": {"type": ["string", "null"]}},
            "required": ["message", "type"],
        }
    },
    "required": ["error"],
}
_MODEL: Json = {"model": _TEXT}
_STREAM: Json = {"stream": {"type": "boolean"}}
_BODIES: dict[Api, tuple[str, Json, list[str]]] = {
    Api.CHAT: (
        "A chat completion",
        {**_STREAM, "messages": _MESSAGES, "tools": _OBJECTS, "max_tokens": _COUNT, "n": _COUNT},
        ["model", "messages"],
    ),
    Api.COMPLETION: (
        "A text completion",
        {**_STREAM, "prompt": _TEXTS_OR_IDS, "max_tokens": _COUNT, "n": _COUNT},
        ["model", "prompt"],
    ),
    Api.RESPONSE: (
        "A response",
        {**_STREAM, "input": {"anyOf": [_TEXT, _OBJECTS]}, "instructions": _TEXT, "previous_response_id": _ID},
        ["model", "input"],
    ),
    Api.MESSAGES: (
        "A message in Anthropic's form",
        {**_STREAM, "messages": _MESSAGES, "system": {"anyOf": [_TEXT, _OBJECTS]}, "max_tokens": _COUNT},
        ["model", "messages", "max_tokens"],
    ),
    Api.GENERATE: (
        "SGLang's own form of a completion",
        {**_STREAM, "text": _TEXT, "input_ids": _IDS, "sampling_params": {"type": "object"}, "rid": _ID},
        [],
    ),
    Api.EMBEDDING: ("Embeddings", {"input": _TEXTS_OR_IDS}, ["model", "input"]),
    Api.RERANK: (
        "Documents in the order of a query",
        {"query": _TEXT, "documents": {"type": "array"}},
        ["model", "query"],
    ),
    Api.SCORE: ("Scores of pairs of texts", {"text_1": _TEXTS_OR_IDS, "text_2": _TEXTS_OR_IDS}, ["model", "text_1"]),
    Api.POOLING: ("Hidden states of texts", {"input": _TEXTS_OR_IDS}, ["input"]),
    Api.CLASSIFICATION: ("Classes of texts", {"input": _TEXTS_OR_IDS}, ["input"]),
}


def publish_page(control: FastAPI) -> None:
    """Answer with the page; it is made when it is asked for first."""
    made: list[Json] = []

    @control.get(PAGE_PATH, include_in_schema=False)
    async def page() -> JSONResponse:
        """The page."""
        if not made:
            made.append(build_page(control))
        return JSONResponse(made[0])


def build_page(control: FastAPI) -> Json:
    """Every path that a router has."""
    page = get_openapi(title="Dovecote router", version=version("dovecote"), routes=control.routes)
    page["paths"].update(describe_data_plane())
    return page


def describe_data_plane() -> Json:
    """Paths of the data plane, but for those that a configuration lets through."""
    paths: Json = {path: {"post": _describe(api)} for path, api in PATHS.items()}
    tokens = {"prompt": _TEXT, "messages": _MESSAGES, "tokens": _IDS}
    for path in sorted(TOKEN_PATHS):
        paths[path] = {"post": _operation("Ids of a text or chat, or text of ids", {**_MODEL, **tokens}, [])}
    counted = {**_MODEL, "messages": _MESSAGES}
    paths[COUNT_PATH] = {"post": _operation("Tokens of a conversation", counted, ["model", "messages"])}
    paths[ABORT_PATH] = {"post": _operation("Ends a running request", {"rid": _ID}, ["rid"])}
    paths["/open_session"] = {"post": _operation("Opens a session", {**_MODEL, "capacity_of_str_len": _COUNT}, [])}
    paths["/close_session"] = {"post": _operation("Closes a session", {"session_id": _ID}, ["session_id"])}
    explained = {
        "prompt_tokens": {"type": "integer", "minimum": 0},
        "model": {"type": ["string", "null"], "minLength": 1},
    }
    paths["/v1/explain"] = {"post": _operation("What would be decided now", explained, ["prompt_tokens"])}
    kept = {"in": "path", "name": "response_id", "required": True, "schema": _ID}
    one = {"parameters": [kept], "responses": _answers()}
    read, delete = {**one, "summary": "A stored response"}, {**one, "summary": "Deletes it"}
    paths["/v1/responses/{response_id}"] = {"get": read, "delete": delete}
    paths["/v1/responses/{response_id}/cancel"] = {"post": {**one, "summary": "Cancels it"}}
    return paths


def _describe(api: Api) -> Json:
    summary, properties, required = _BODIES[api]
    named = {**_MODEL, **properties} if SHAPES[api].forwards_model else properties
    return _operation(summary, named, required)


def _operation(summary: str, properties: Json, required: list[str]) -> Json:
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    content = {"application/json": {"schema": schema}}
    return {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": _answers()}


def _answers() -> Json:
    errors = {"description": "An error", "content": {"application/json": {"schema": _ERROR}}}
    return {"200": {"description": "What the engine answers"}, "default": errors}
