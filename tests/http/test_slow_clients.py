"""A client that takes its answer slowly is no silent engine, and the other way round."""

import asyncio
import json
import socket
import time
from contextlib import asynccontextmanager

import pytest
from fake_engine import DONE, ROLE, chunk, event, open_stream
from proxy_harness import CHAT, eventually, on_socket, value

from router.lookout import Lookout
from router.proxy.bystander import Bystander
from router.proxy.interrupt import ExchangeWatch
from router.proxy.ports import ProxyLimits
from router.proxy.relay import Expected, Relay

LONG = {"idle_s": 1_000.0, "first_byte_s": 1_000.0, "request_s": 1_000_000.0}
PIECE = chunk("a" * 10_000)
#: Pieces of an answer: far more than kernels and router keep.
COUNT = 1_000
USAGE = {"prompt_tokens": 9, "completion_tokens": COUNT, "total_tokens": COUNT + 9}


@pytest.fixture
def watches(monkeypatch):
    """The watches of all requests, whose clocks a test turns."""
    made = []

    class Watch(ExchangeWatch):
        def __init__(self, client, lookout):
            super().__init__(client, lookout)
            self.client = client
            made.append(self)

    monkeypatch.setattr("router.proxy.output_call.ExchangeWatch", Watch)
    return made


class Sipper:
    """A raw client whose kernel takes little at a time."""

    def __init__(self, url):
        self._address = url.host, url.port
        self._loop = asyncio.get_running_loop()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.socket.setblocking(False)
        self.answer = bytearray()

    async def ask(self):
        body = json.dumps(CHAT | {"stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body)
        await self._loop.sock_connect(self.socket, self._address)
        await self._loop.sock_sendall(self.socket, head + body)

    async def sip(self, size=4_096):
        piece = await self._loop.sock_recv(self.socket, size)
        self.answer += piece
        return piece

    def count_taken(self):
        return len(self.answer)

    def read_body(self):
        """The answer's body, out of its chunks."""
        _, _, rest = bytes(self.answer).partition(b"\r\n\r\n")
        pieces = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            pieces.append(rest[: int(size, 16)])
            rest = rest[int(size, 16) + 2 :]
        return b"".join(pieces)

    async def take_all(self):
        while not self.answer.endswith(b"0\r\n\r\n"):
            assert await self.sip(1 << 20)


@asynccontextmanager
async def sipping(engine, script, watches, *, clock=time.monotonic, **timeouts):
    """A client that takes nothing yet, of whose answer the router has more than it may keep."""
    engine.script = script
    async with on_socket([engine.url], clock=clock, timeouts=LONG | timeouts) as client:
        sipper = Sipper(client.base_url)
        await sipper.ask()
        await eventually(lambda: watches and watches[0].client.is_full)
        yield client, sipper, watches[0]
        sipper.socket.close()


def pouring(then=None):
    async def script(_engine, request, _body):
        response = await open_stream(request)
        await response.write(ROLE)
        for _ in range(COUNT):
            await response.write(PIECE)
        if then is not None:
            await then.wait()
        await response.write(chunk("b", "stop") + event({"id": "c", "choices": [], "usage": USAGE}) + DONE)
        return response

    return script


def age(watch, seconds=1_001.0):
    """So long ago the last piece came, or the client was last looked at."""
    now_s = asyncio.get_running_loop().time()
    watch.postpone(-seconds, now_s)
    watch.look(now_s)


async def test_a_client_that_sips_gets_all_of_its_answer_however_long_it_takes(engine, watches):
    async with sipping(engine, pouring(), watches) as (client, sipper, watch):
        for _ in range(5):
            age(watch)
            assert watch.cause is None
            unsent = watch.client.count_unsent()
            while watch.client.count_unsent() == unsent:
                await sipper.sip()
            assert watch.client.is_full
        await sipper.take_all()
        await eventually(lambda: value(client.router, "requests_total", outcome="done") == 1)
        assert sipper.read_body().count(PIECE) == COUNT


async def test_a_client_that_sips_does_not_make_its_engine_slow(engine, watches, clock):
    async with sipping(engine, pouring(), watches, clock=clock) as (client, sipper, _):
        clock.advance(3_600.0)
        await sipper.take_all()
        await eventually(lambda: value(client.router, "requests_total", outcome="done") == 1)
        assert client.router.placer.decode_ratio == 1.0


async def test_a_client_that_takes_nothing_at_all_is_given_up_and_its_worker_blamed_for_nothing(engine, watches):
    async with sipping(engine, pouring(), watches) as (client, _, watch):
        age(watch)
        assert watch.cause is None
        age(watch)
        await eventually(lambda: value(client.router, "requests_total", outcome="cancelled") == 1)
        assert value(client.router, "upstream_errors_total", worker="w0", reason="upstream_timeout") == 0


class Patient:
    """A client that is full after each piece; while it takes one, a long time passes."""

    is_full = True
    takes_chunks = False

    def __init__(self):
        self.watch_of = None

    def watch(self, gone):
        self.gone = gone

    def unwatch(self):
        self.gone = None

    def start(self, status, headers):
        pass

    def write(self, piece):
        pass

    end = write

    async def drain(self):
        self.watch_of.postpone(-999.0, asyncio.get_running_loop().time())


class Poured:
    """An answer under way; after each piece notes how long its engine is taken to be silent."""

    status, headers = 200, [(b"content-type", b"text/event-stream")]

    def __init__(self, watch):
        self.watch, self.silent_s = watch, []

    async def read(self):
        return ROLE

    async def pour(self, take, drain, _take_chunks=None):
        for piece in (PIECE, chunk("b", "stop") + DONE):
            assert take(piece)
            await drain()
            now_s = asyncio.get_running_loop().time()
            self.watch.look(now_s)
            self.silent_s.append(now_s + LONG["idle_s"] - self.watch.due_s)


async def test_the_silence_of_an_engine_begins_when_it_is_read_from_again():
    client = Patient()
    limits = ProxyLimits(body_bytes=1, **LONG)
    with ExchangeWatch(client, Lookout()) as watch:
        client.watch_of, poured = watch, Poured(watch)
        relay = Relay(poured, client, Bystander(), watch, limits=limits, own_headers={})
        await relay.carry(Expected(is_stream=True))
    assert len(poured.silent_s) == 2
    assert max(poured.silent_s) < 900.0


async def test_an_engine_that_falls_silent_behind_a_slow_client_is_found_out(engine, watches):
    async with sipping(engine, pouring(asyncio.Event()), watches) as (client, sipper, watch):
        age(watch)
        while sipper.count_taken() < COUNT * len(PIECE):
            await sipper.sip(1 << 20)
        await eventually(lambda: not watch.client.is_full)
        age(watch)
        await sipper.take_all()
        assert b'"upstream_timeout"' in sipper.answer
        assert value(client.router, "requests_total", outcome="timed_out") == 1
