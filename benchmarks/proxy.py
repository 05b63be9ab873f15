"""CPU that a request costs in the router: `python -m benchmarks.proxy [--json] [--quick] [--seconds S]`.

One mock engine, one proxy and one closed-loop load, each a process of its own on loopback. The figure is CPU time
(user and system) of the proxy process per answered request, which other load on the machine moves little. Every
figure stands beside that of a bare aiohttp pass-through proxy measured in the same run; ratios above 1 are in our
favour. `forward` has no tokenizer, `affinity` renders, tokenizes and hashes every prompt and matches it.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import httptools
from aiohttp import web

from benchmarks.processes import read_cpu_s
from benchmarks.rows import Row, make_row
from benchmarks.run_facts import describe_run, finish, make_parser

MODEL = "mock"
CONCURRENCY = 32
STREAM_CHUNKS = 64
TOKENIZER = Path(__file__).parents[1] / "engine_shim/engine/tokenizer/toy"
CHAT = "/v1/chat/completions"
PASSTHROUGH = "a bare aiohttp pass-through"


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
        """Bytes of a request."""
        self._parser.feed_data(data)

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


async def run_engine() -> None:
    """Serve the mock on a free port and say which."""
    server = await asyncio.get_running_loop().create_server(MockEngine, "127.0.0.1", 0)
    sys.stdout.write(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


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

    def __init__(self, request: bytes, counts: list[int]) -> None:
        self._request, self._counts = request, counts
        self.is_ending = False
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        self._transport: Any = transport
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """An answer is complete: ask again."""
        self._counts[self._parser.get_status_code() != 200] += 1
        self._parser = httptools.HttpResponseParser(self)
        if self.is_ending:
            self._transport.close()
            self.ended.set_result(None)
        else:
            self._transport.write(self._request)


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


WORKLOADS = {
    "1_kb": make_request(1_000, stream=False),
    "64_kb": make_request(64_000, stream=False),
    "stream_64_chunks": make_request(1_000, stream=True),
}


async def run_load(url: str, request: bytes, pid: int, seconds: float) -> dict[str, float]:
    """CPU of process `pid` per answered request under closed-loop load."""
    loop = asyncio.get_running_loop()
    host, _, port = url.removeprefix("http://").partition(":")
    counts = [0, 0]
    callers = [
        await loop.create_connection(lambda: Caller(request, counts), host, int(port)) for _ in range(CONCURRENCY)
    ]
    await asyncio.sleep(min(1.0, seconds / 3))
    before_cpu_s, before, started_s = read_cpu_s(pid), sum(counts), time.monotonic()
    await asyncio.sleep(seconds)
    cpu_s, answered, wall_s = read_cpu_s(pid) - before_cpu_s, sum(counts) - before, time.monotonic() - started_s
    for _, caller in callers:
        caller.is_ending = True
    await asyncio.gather(*(caller.ended for _, caller in callers))
    if counts[1] or not answered:
        raise RuntimeError(f"{counts[1]} of {sum(counts)} requests failed: the figure would mean nothing")
    return {"cpu_us_per_request": cpu_s / answered * 1e6, "requests_per_s": answered / wall_s}


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, int]]:
    """A process that prints where it listens; gives its URL and id."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            line = child.stdout.readline() if child.stdout else ""
            if not line.startswith("listening on "):
                raise RuntimeError(f"{arguments} did not start")
            yield line.split()[-1], child.pid
        finally:
            child.terminate()


def measure(seconds: float, repeats: int) -> dict[str, Any]:
    """Every proxy under every workload, rounds interleaved so that drift hits all alike."""
    figures: dict[str, dict[str, list[dict[str, float]]]] = {}
    serve = ("router", "serve", "--port", "0", "--log-level", "warning", "--workers")
    with process("benchmarks.proxy", "--role", "engine") as (engine, _):
        proxies = {
            "passthrough": ("benchmarks.proxy", "--role", "passthrough", "--engine", engine),
            "router_forward": (*serve, engine),
            "router_affinity": (*serve, engine, "--tokenizer", str(TOKENIZER)),
        }
        for _ in range(repeats):
            for name, command in proxies.items():
                with process(*command) as (url, pid):
                    for workload, request in WORKLOADS.items():
                        figure = asyncio.run(run_load(url, request, pid, seconds))
                        figures.setdefault(workload, {}).setdefault(name, []).append(figure)
    return {workload: summarize(rows) for workload, rows in figures.items()}


def summarize(rows: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians, spread, and the ratio to the pass-through proxy."""
    summary: dict[str, Any] = {}
    reference = median(row["cpu_us_per_request"] for row in rows["passthrough"])
    for name, repeats in rows.items():
        costs = sorted(row["cpu_us_per_request"] for row in repeats)
        summary[name] = {
            "cpu_us_per_request": round(median(costs), 1),
            "cpu_us_spread": [round(costs[0], 1), round(costs[-1], 1)],
            "requests_per_s": round(median(row["requests_per_s"] for row in repeats)),
            "ratio_to_passthrough": round(median(costs) / reference, 3),
        }
    return summary


def make_rows(workloads: dict[str, Any]) -> list[Row]:
    """The router's costs beside the pass-through's."""
    names = {"router_forward": "forwarded without a tokenizer", "router_affinity": "placed by its prompt"}
    rows = []
    for workload, figures in workloads.items():
        theirs = figures["passthrough"]["cpu_us_per_request"]
        for name, words in names.items():
            low_us, high_us = figures[name]["cpu_us_spread"]
            taken_us = [low_us, figures[name]["cpu_us_per_request"], high_us]
            what = f"router CPU a request of {workload.replace('_', ' ')}, {words}"
            rows.append(make_row(what, taken_us, "us", reference=PASSTHROUGH, reference_value=theirs, headline=True))
    return rows


def main() -> int:
    """Read the flags, measure, print."""
    flags = make_parser(__doc__, repeats=3)
    flags.add_argument("--seconds", type=float, default=4.0, help="length of one measurement")
    flags.add_argument("--role", choices=["engine", "passthrough"], help=argparse.SUPPRESS)
    flags.add_argument("--engine", help=argparse.SUPPRESS)
    said = flags.parse_args()
    if said.role is not None:
        run_role(said.role, said.engine)
        return 0
    if said.quick:
        said.seconds, said.repeats = 0.3, 1
    facts = describe_run(said, concurrency=CONCURRENCY, seconds=said.seconds)
    workloads = measure(said.seconds, said.repeats)
    return finish("proxy", said, facts, make_rows(workloads), {"workloads": workloads})


def run_role(role: str, engine: str | None) -> None:
    """One of the helper processes."""
    if role == "passthrough" and engine is not None:
        asyncio.run(run_passthrough(engine))
    else:
        asyncio.run(run_engine())


if __name__ == "__main__":
    sys.exit(main())
