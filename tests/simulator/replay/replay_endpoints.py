"""A fake endpoint that answers as it is told, for what real engines do not do."""

import json
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

CHUNKS = [
    {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
    {"choices": [{"delta": {"content": "one "}, "finish_reason": None}]},
    {"choices": [{"delta": {"content": "two"}, "finish_reason": "length"}]},
    {
        "choices": [],
        "usage": {"prompt_tokens": 20, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 10}},
    },
]


def stream_of(*chunks, done=True):
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"] if done else lines)


class Endpoint:
    """What it got, and what it answers: `answer(request, serial)` gives a response, by default a complete stream."""

    def __init__(self, answer=None, models=("toy",), models_status=200):
        self.requests, self.bodies = [], []
        self._answer, self._models, self._models_status = answer, models, models_status

    async def list_models(self, request):
        self.requests.append(request)
        return web.json_response({"data": [{"id": name} for name in self._models]}, status=self._models_status)

    async def post(self, request):
        self.requests.append(request)
        self.bodies.append(await request.json())
        if self._answer is not None and (given := await self._answer(request, len(self.bodies) - 1)) is not None:
            return given
        return complete()


def complete(worker="w0"):
    headers = {"X-Dovecote-Worker": worker}
    return web.Response(text=stream_of(*CHUNKS), content_type="text/event-stream", headers=headers)


def refusal(status, message="no", **headers):
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


@asynccontextmanager
async def serve(endpoint, ssl=None):
    """Its base URL."""
    app = web.Application()
    app.router.add_get("/v1/models", endpoint.list_models)
    app.router.add_post("/{tail:.*}", endpoint.post)
    server = TestServer(app, scheme="https" if ssl else "http")
    await server.start_server(ssl=ssl)
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()
