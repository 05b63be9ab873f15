"""An engine that takes every path, with answers in the shapes of the APIs that are no chat."""

import json

from aiohttp import web
from fake_engine import DONE, FakeEngine, event, open_stream


def named_event(body):
    return f"event: {body['type']}\n".encode() + event(body)


MESSAGE_USAGE = {"input_tokens": 5, "output_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "abc"}],
    "model": "toy",
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": MESSAGE_USAGE,
}
MESSAGE_EVENTS = (
    named_event({"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}}),
    named_event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    named_event({"type": "ping"}),
    *(
        named_event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
        for text in "abc"
    ),
    named_event({"type": "content_block_stop", "index": 0}),
    named_event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": MESSAGE_USAGE}),
    named_event({"type": "message_stop"}),
)


def generated(text, *, made, finish=None, **more):
    meta = {"id": "r", "finish_reason": finish, "prompt_tokens": 9, "completion_tokens": made, "cached_tokens": 4}
    return {"text": text, "output_ids": list(range(made)), "meta_info": meta, **more}


STOP = {"type": "stop", "matched": None}
GENERATED_EVENTS = (
    event(generated("a", made=1)),
    event(generated("ab", made=2)),
    event(generated("abc", made=3, finish=STOP)),
    DONE,
)
EMBEDDINGS = {
    "object": "list",
    "model": "toy",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -1.5]}],
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}
RANKED = {"id": "r", "model": "toy", "results": [{"index": 0, "relevance_score": 0.5}], "usage": {"total_tokens": 7}}


async def answer_like_an_engine(_engine, request, body):
    """A whole answer or a stream in the form of the path."""
    fields = json.loads(body or b"{}")
    path = request.path
    if path == "/v1/messages" and fields.get("stream"):
        return await stream(request, MESSAGE_EVENTS)
    if path == "/generate" and fields.get("stream"):
        return await stream(request, GENERATED_EVENTS)
    whole = {
        "/v1/messages": MESSAGE,
        "/v1/messages/count_tokens": {"input_tokens": 9},
        "/generate": generated("abc", made=3, finish=STOP),
        "/v1/embeddings": EMBEDDINGS,
    }.get(path, RANKED)
    return web.json_response(whole)


async def stream(request, pieces):
    response = await open_stream(request)
    for piece in pieces:
        await response.write(piece)
    return response


class ApiEngine(FakeEngine):
    """Answers on every path."""

    def __init__(self):
        super().__init__()
        self.script = answer_like_an_engine

    def app(self):
        app = super().app()
        self.add_routes(app.router)
        app.router.add_route("*", "/{tail:.*}", self.complete)
        return app

    def add_routes(self, router):
        """Paths that are not for clients."""

        async def absent(_request):
            return web.Response(status=404)

        router.add_get("/kv_event_sources", absent)
