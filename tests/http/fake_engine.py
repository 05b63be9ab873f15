"""An engine's HTTP face on a real loopback socket, whose answers a test writes."""

import asyncio
import json
from contextlib import asynccontextmanager

from aiohttp import web

from tests.ports import take_port

MODEL = "toy"
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 0}}


def event(payload):
    text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return b"data: " + text + b"\n\n"


def chunk(content, finish=None):
    return event({"id": "c", "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]})


ROLE = event(
    {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
)
USAGE_CHUNK = event({"id": "c", "choices": [], "usage": USAGE})
DONE = event(b"[DONE]")
WHOLE = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": MODEL,
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "abc"}}],
    "usage": USAGE,
}


class FakeEngine:
    """Records what it is asked and answers by its `script`."""

    def __init__(self):
        self.url = ""
        #: Where it listens while it runs.
        self.sites = []
        self.requests = []
        self.script = well_behaved
        #: Set when a client went away while its answer was under way.
        self.saw_disconnect = asyncio.Event()
        self.health_status = 200
        self.probes = 0
        #: Closed, it hangs when it is asked for its health.
        self.health_gate = asyncio.Event()
        self.health_gate.set()
        self.health_headers = {}
        self.server_info = {"served_model_name": MODEL, "dp_size": 1, "page_size": 16, "max_total_num_tokens": 4096}
        self.models = [MODEL]
        self.loads = None
        #: Prometheus page and `/load`, for engines that tell their load so.
        self.metrics_page = None
        self.server_load = None
        #: Whether it has these paths.
        self.tells_load_like_vllm = True

    async def complete(self, request):
        body = await request.read()
        self.requests.append((request, body))
        try:
            return await self.script(self, request, body)
        except (asyncio.CancelledError, ConnectionResetError):
            self.saw_disconnect.set()
            raise

    def headers(self, place=-1):
        return [(name.decode().lower(), value.decode()) for name, value in self.requests[place][0].raw_headers]

    def body(self, place=-1):
        return json.loads(self.requests[place][1])

    def app(self):
        async def health(_request):
            self.probes += 1
            await self.health_gate.wait()
            return web.Response(status=self.health_status, headers=self.health_headers)

        async def server_info(_request):
            return web.json_response(self.server_info)

        async def models(_request):
            if self.models is None:
                return web.Response(status=404)
            data = [model if isinstance(model, dict) else {"id": model} for model in self.models]
            return web.json_response({"object": "list", "data": data})

        async def loads(_request):
            return web.json_response(self.loads) if self.loads else web.Response(status=404)

        async def metrics(_request):
            return web.Response(text=self.metrics_page) if self.metrics_page else web.Response(status=404)

        async def load(_request):
            known = self.server_load is not None
            return web.json_response({"server_load": self.server_load}) if known else web.Response(status=404)

        app = web.Application(client_max_size=1 << 30)
        if self.tells_load_like_vllm:
            app.router.add_get("/metrics", metrics)
            app.router.add_get("/load", load)
        app.router.add_get("/health", health)
        app.router.add_get("/server_info", server_info)
        app.router.add_get("/v1/models", models)
        app.router.add_get("/v1/loads", loads)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_post("/v1/completions", self.complete)
        return app


async def open_stream(request, **headers):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"} | headers)
    await response.prepare(request)
    return response


async def well_behaved(_engine, request, body):
    """Three chunks, or one whole answer, as an engine gives them."""
    fields = json.loads(body)
    if not fields.get("stream"):
        return web.json_response(WHOLE)
    response = await open_stream(request)
    for piece in (ROLE, chunk("a"), chunk("b"), chunk("c", "stop")):
        await response.write(piece)
    if (fields.get("stream_options") or {}).get("include_usage"):
        await response.write(USAGE_CHUNK)
    await response.write(DONE)
    return response


def streaming(*pieces, end="close"):
    """A script that sends these pieces and then ends well (`close`), breaks off (`abort`) or hangs."""

    async def script(_engine, request, _body):
        response = await open_stream(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        if end == "hang":
            await asyncio.Event().wait()
        if end == "abort":
            request.transport.abort()
        return response

    return script


def held_until(release):
    """Streams a piece, and the rest once `release` is set."""

    async def script(_engine, request, _body):
        response = await open_stream(request)
        await response.write(ROLE + chunk("a"))
        await release.wait()
        await response.write(chunk("b", "stop") + DONE)
        return response

    return script


def answering(status=200, body=b"{}", **headers):
    async def script(_engine, _request, _body):
        return web.Response(status=status, body=body, headers={"Content-Type": "application/json"} | headers)

    return script


async def hanging(_engine, _request, _body):
    await asyncio.Event().wait()


@asynccontextmanager
async def running(engine, port=None, tls=None):
    runner = web.AppRunner(engine.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port or take_port(), reuse_address=True, ssl_context=tls)
    await site.start()
    engine.sites = [site]
    engine.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(answer):
    """A TCP server that answers every connection with these bytes, health probes excepted."""

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /health"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        elif head.startswith(b"GET /v1/models"):
            text = json.dumps({"data": [{"id": MODEL}]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(text) + text)
        elif head.startswith(b"GET"):
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
