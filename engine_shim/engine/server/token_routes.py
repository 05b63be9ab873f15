"""`/tokenize` and `/detokenize` in vLLM's form."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine_shim.engine.server.body import read_body
from engine_shim.engine.server.errors import bad_request, json_response
from engine_shim.engine.server.prompting import ChatPrompt
from engine_shim.engine.server.protocol import DetokenizeRequest, TokenizeRequest
from engine_shim.engine.server.service import EngineService
from engine_shim.engine.server.targeting import check_model


def token_router(service: EngineService) -> APIRouter:
    """The routes, bound to a service."""
    router = APIRouter()

    @router.post("/tokenize")
    async def tokenize(request: Request) -> Response:
        """Ids of a conversation or a text, exactly as a completion would use them."""
        body = await read_body(request, TokenizeRequest, limit_bytes=service.settings.limits.body_bytes)
        return json_response(await _tokenize(service, body))

    @router.post("/detokenize")
    async def detokenize(request: Request) -> Response:
        """Text of ids."""
        body = await read_body(request, DetokenizeRequest, limit_bytes=service.settings.limits.body_bytes)
        check_model(body.model, service.settings.model)
        limit = service.tokenizer.vocabulary_tokens
        if not all(0 <= token_id < limit for token_id in body.tokens):
            raise bad_request(f"token ids must be 0 to {limit - 1}", "tokens")
        return json_response({"prompt": service.tokenizer.decode(body.tokens)})

    return router


async def _tokenize(service: EngineService, body: TokenizeRequest) -> dict[str, object]:
    check_model(body.model, service.settings.model)
    if (body.messages is None) == (body.prompt is None):
        raise bad_request("give either messages or prompt", "messages")
    if body.prompt is not None:
        token_ids = await service.prompting.encode_text(body.prompt)
    else:
        prompt = ChatPrompt(
            messages=body.messages or (),
            tools=body.tools,
            add_generation_prompt=body.add_generation_prompt is not False,
            template_arguments=body.chat_template_kwargs,
        )
        token_ids = await service.prompting.encode_chat(prompt)
    names = [service.tokenizer.token_name(token_id) for token_id in token_ids] if body.return_token_strs else None
    return {
        "count": len(token_ids),
        "max_model_len": service.settings.spec.max_model_len,
        "tokens": token_ids,
        "token_strs": names,
    }
