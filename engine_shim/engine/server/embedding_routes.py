"""`/v1/embeddings`: the model's own hidden states, averaged over a text's tokens."""

import asyncio
import base64
from array import array
from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.body import read_body
from engine_shim.engine.server.errors import bad_request, json_response
from engine_shim.engine.server.protocol import EmbeddingRequest
from engine_shim.engine.server.service import EngineService
from engine_shim.engine.server.targeting import check_model


def embedding_router(service: EngineService) -> APIRouter:
    """The route, bound to a service."""
    router = APIRouter()

    @router.post("/v1/embeddings")
    async def embed(request: Request) -> Response:
        """One vector of length 1 a text."""
        body = await read_body(request, EmbeddingRequest, limit_bytes=service.settings.limits.body_bytes)
        return json_response(await _embed(service, body))

    return router


async def _embed(service: EngineService, body: EmbeddingRequest) -> dict[str, object]:
    check_model(body.model, service.settings.model)
    if service.embed is None:
        raise bad_request("embeddings need the torch forward: the timed one has no hidden states", "model")
    if body.encoding_format not in (None, "float", "base64"):
        raise bad_request("encoding_format must be float or base64", "encoding_format")
    if body.dimensions is not None:
        raise bad_request("dimensions cannot be chosen", "dimensions")
    prompts = await service.prompting.encode_prompts(body.input, "input")
    limit = service.settings.spec.max_model_len
    if any(not 1 <= len(prompt) <= limit for prompt in prompts):
        raise bad_request(f"a text must have 1 to {limit} tokens", "input")
    vectors = [await asyncio.to_thread(service.embed, prompt) for prompt in prompts]
    write = _pack if body.encoding_format == "base64" else list
    data = [{"object": "embedding", "index": index, "embedding": write(vector)} for index, vector in enumerate(vectors)]
    tokens = sum(map(len, prompts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": service.settings.model, "data": data, "usage": usage}


def _pack(vector: Sequence[float]) -> str:
    """Single precision, little endian, as OpenAI's clients ask for by default."""
    return base64.b64encode(array("f", vector).tobytes()).decode()
