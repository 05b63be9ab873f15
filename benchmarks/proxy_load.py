"""What `benchmarks.proxy` puts before and behind a proxy: mock engines, a closed-loop load, and a plain proxy beside.

Prepared bytes and one protocol a connection, so that neither is what is measured.
"""

import asyncio
import json
import sys
import time
from statistics import median
from typing import Any

import aiohttp
import httptools
from aiohttp import web

from benchmarks.processes import read_cpu_s

MODEL = "mock"
STREAM_CHUNKS = 64
#: Longest that a measurement goes on for want of answers.
PATIENCE_S = 30.0
CHAT = "/v1/chat/completions"

# The mock engine: prepared bytes, one protocol a connection


def whole_answer(body: bytes, kind: bytes = b"application/json") -> bytes:
    """A response with a body."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (kind, len(body)) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


USAGE = {
    "prompt_tokens": 9, "completion_tokens": 64, "total_tokens": 73, "prompt_tokens_details": {"cached_tokens": 0},
}  # fmt: skip
_MESSAGE = {"role": "assistant", "content": "x" * 700}
REPLY = whole_answer(
    json.dumps(
        {"id": "c", "object": "chat.completion", "model": MODEL, "usage": USAGE,
         "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}]}
    ).encode()
)  # fmt: skip
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = _chunk(_event({"id": "c", "choices": [{"index": 0, "delta": {"content": "y" * 40}, "finish_reason": None}]}))
STREAM_END = b"".join(
    (
        _chunk(_event({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})),
        _chunk(_event({"id": "c", "choices": [], "usage": USAGE})),
        _chunk(b"data: [DONE]\n\n"),
        b"0\r\n\r\n",
    )
)
MODELS = whole_answer(json.dumps({"object": "list", "data": [{"id": MODEL}]}).encode())
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class MockEngine(asyncio.Protocol):
    """Answers at once; a stream's chunks go out one a turn of the event loop."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport: Any = transport
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._streams = b"", False

    def data_received(self, data: bytes) -> None:
        """Bytes of a request; other protocols, which some routers try first, are not spoken."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError):
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        """Start of a request."""
        self._url, self._streams = url, False

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._streams = self._streams or b'"stream":true' in body

    def on_message_complete(self) -> None:
        """A request is complete."""
        if self._parser.get_method() == b"GET":
            answers = {b"/health": whole_answer(b""), b"/v1/models": MODELS}
            self._transport.write(answers.get(self._url, NOT_FOUND))
        elif self._streams:
            self._transport.write(STREAM_HEAD)
            self._send_chunk(STREAM_CHUNKS)
        else:
            self._transport.write(REPLY)

    def _send_chunk(self, left: int) -> None:
        if self._transport.is_closing():
            return
        if left == 0:
            self._transport.write(STREAM_END)
            return
        self._transport.write(PIECE)
        asyncio.get_running_loop().call_soon(self._send_chunk, left - 1)


async def run_engines(count: int, kind: type[MockEngine] = MockEngine) -> None:
    """Serve so many mocks, each on a free port, and say where."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(kind, "127.0.0.1", 0) for _ in range(count)]
    urls = ",".join(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers)
    sys.stdout.write(f"listening on {urls}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


# The reference: a pass-through proxy of few lines


async def run_passthrough(engine: str) -> None:
    """Forward everything to one engine, reading nothing."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)

    async def forward(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with session.post(
            engine + request.path, data=body, headers={"content-type": "application/json"}
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, headers={"content-type": answer.headers["content-type"]}
            )
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post(CHAT, forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"listening on http://127.0.0.1:{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


# The load


class Caller(asyncio.Protocol):
    """One connection that always has one request under way."""

    def __init__(self, request: bytes, counts: list[int], waits_s: list[float]) -> None:
        self._request, self._counts, self._waits_s = request, counts, waits_s
        self._asked_s = 0.0
        self.is_ending = False
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        self._transport: Any = transport
        self._parser = httptools.HttpResponseParser(self)
        self._ask()

    def _ask(self) -> None:
        self._asked_s = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """An answer is complete: ask again."""
        self._counts[self._parser.get_status_code() != 200] += 1
        self._waits_s.append(time.perf_counter() - self._asked_s)
        self._parser = httptools.HttpResponseParser(self)
        if self.is_ending:
            self._transport.close()
            self.ended.set_result(None)
        else:
            self._ask()


def make_request(size_bytes: int, *, stream: bool, start: str = "") -> bytes:
    """A chat request of about this size, whose text begins with `start`."""
    words = "the birds come home to the loft when rain falls over the hills "
    fields: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": start + words * (size_bytes // len(words))}],
    }
    if stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    body = json.dumps(fields, separators=(",", ":")).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def run_load(url: str, request: bytes, pid: int, seconds: float, *, concurrency: int) -> dict[str, float]:
    """CPU of process `pid` per answered request, and how long answers took, under closed-loop load.

    Raises:
        RuntimeError: A request failed.
    """
    loop = asyncio.get_running_loop()
    host, _, port = url.removeprefix("http://").partition(":")
    counts, waits_s = [0, 0], list[float]()
    callers = [
        await loop.create_connection(lambda: Caller(request, counts, waits_s), host, int(port))
        for _ in range(concurrency)
    ]
    await asyncio.sleep(min(1.0, seconds / 3))
    before_cpu_s, before, started_s = read_cpu_s(pid), sum(counts), time.monotonic()
    waits_s.clear()
    await asyncio.sleep(seconds)
    while sum(counts) - before < concurrency and time.monotonic() - started_s < PATIENCE_S:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    cpu_s, answered, wall_s = read_cpu_s(pid) - before_cpu_s, sum(counts) - before, time.monotonic() - started_s
    for _, caller in callers:
        caller.is_ending = True
    await asyncio.gather(*(caller.ended for _, caller in callers))
    if counts[1] or not answered:
        raise RuntimeError(f"{counts[1]} of {sum(counts)} requests failed: the figure would mean nothing")
    return {
        "cpu_us_per_request": cpu_s / answered * 1e6,
        "requests_per_s": answered / wall_s,
        "p50_ms": median(waits_s) * 1e3,
    }
