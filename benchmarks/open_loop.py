"""Requests at a steady rate over real sockets, whatever becomes of those before; and an engine that takes its time.

Latency counts from the moment a request was due, so a router that falls behind shows. Role of the engine process:
`python -m benchmarks.open_loop SECONDS`.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import httptools

from benchmarks.proxy_load import MODEL, MODELS, NOT_FOUND, REPLY, MockEngine, whole_answer

_HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
RANKS = 8
_FACTS = {"served_model_name": MODEL, "dp_size": RANKS, "page_size": 16, "max_total_num_tokens": 8 << 20}
_SERVER_INFO = whole_answer(json.dumps(_FACTS).encode())


class Connection(asyncio.Protocol):
    """One connection with one request under way at most."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport: Any = transport
        self._answered: asyncio.Future[float] | None = None

    def ask(self, request: bytes) -> "asyncio.Future[float]":
        """Send; the future gives the time of the answer's last byte."""
        self._parser = httptools.HttpResponseParser(self)
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answered

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        self._parser.feed_data(data)

    def connection_lost(self, _error: Exception | None) -> None:
        """The other side left."""
        self._end(RuntimeError("the connection was closed"))

    def on_message_complete(self) -> None:
        """The answer is complete."""
        status = self._parser.get_status_code()
        self._end(None if status == 200 else RuntimeError(f"a request failed with status {status}"))

    def close(self) -> None:
        """Leave."""
        self._transport.close()

    def _end(self, problem: RuntimeError | None) -> None:
        if self._answered is None or self._answered.done():
            return
        if problem is None:
            self._answered.set_result(time.monotonic())
        else:
            self._answered.set_exception(problem)


class OpenLoop:
    """A client of one address."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[Connection] = []

    async def ask(self, request: bytes, due_s: float) -> float:
        """Seconds from when it was due to its answer."""
        if self._free:
            connection = self._free.pop()
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
        answered_s = await connection.ask(request)
        self._free.append(connection)
        return answered_s - due_s

    async def run(self, requests: Sequence[tuple[float, bytes]]) -> list[float]:
        """Requests, each so many seconds after the start; their latencies in order."""
        # The server closes connections that were idle for long; none is to close just as it is used.
        self.close()
        tasks, started_s = [], time.monotonic()
        for after_s, request in requests:
            due_s = started_s + after_s
            await asyncio.sleep(due_s - time.monotonic())
            tasks.append(asyncio.create_task(self.ask(request, due_s)))
        return list(await asyncio.gather(*tasks))

    def close(self) -> None:
        """Close every connection."""
        for connection in self._free:
            connection.close()
        self._free.clear()


class SlowEngine(MockEngine):
    """Answers each request after a while, as one that computes."""

    answer_s = 0.5

    def on_message_complete(self) -> None:
        """A request is complete."""
        if self._parser.get_method() == b"GET":
            answers = {b"/health": _HEALTHY, b"/v1/models": MODELS, b"/server_info": _SERVER_INFO}
            self._transport.write(answers.get(self._url, NOT_FOUND))
        else:
            asyncio.get_running_loop().call_later(self.answer_s, self._transport.write, REPLY)


async def run_engine(answer_s: float) -> None:
    """Serve on a free port and say which."""
    SlowEngine.answer_s = answer_s
    server = await asyncio.get_running_loop().create_server(SlowEngine, "127.0.0.1", 0)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(run_engine(float(sys.argv[1])))
