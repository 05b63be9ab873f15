"""What every `Upstream` keeps to, against workers that are sockets and bytes."""

import asyncio
import socket
import ssl
import struct
from contextlib import contextmanager, suppress

import pytest
import trustme

from router.errors import UpstreamClosedError, UpstreamUnreachableError
from router.lookout import Lookout
from router.proxy import connection, pool
from router.proxy.pool import PooledUpstream, encode_head
from router.proxy.upstream import GarbledAnswerError
from tests.ports import closed_port
from tests.waiting import PATIENCE_S

JSON = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture
async def upstream(monkeypatch):
    # No connection is closed here because it stood idle.
    monkeypatch.setattr(pool, "POOL_IDLE_S", 600.0)
    made = PooledUpstream(connect_s=PATIENCE_S)
    yield made
    await made.close()


class Line:
    """One connection, from the worker's side; read and written by the test."""

    def __init__(self, own):
        self._own = own
        self._loop = asyncio.get_running_loop()

    async def read_request(self):
        """Head and body of the next request."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += await self._receive()
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)
        while len(body) < length:
            body += await self._receive()
        assert len(body) == length
        return head, body

    async def answer(self, *pieces):
        for piece in pieces:
            await self._loop.sock_sendall(self._own, piece)

    def acknowledge(self):
        """Tell the other side now what has arrived."""
        self._own.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def end(self):
        """An end in order, at once."""
        self._own.close()

    def reset(self):
        """An end out of order, at once."""
        self._own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._own.close()

    async def wait_for_bytes(self):
        """Wait until something has arrived; it is not read."""
        arrived = asyncio.Event()
        self._loop.add_reader(self._own, arrived.set)
        async with asyncio.timeout(PATIENCE_S):
            await arrived.wait()
        self._loop.remove_reader(self._own)

    def send_what_fits(self, size=1 << 20):
        """Send until the network takes no more."""
        try:
            return self._own.send(bytes(size))
        except BlockingIOError:
            return 0

    async def is_closed(self):
        """Wait until the other side has closed."""
        with suppress(ConnectionError):
            while await self._receive():
                continue
        return True

    async def _receive(self):
        async with asyncio.timeout(PATIENCE_S):
            return await self._loop.sock_recv(self._own, 1 << 20)


class Worker:
    """Connections as they come."""

    def __init__(self, listener):
        self._listener = listener
        self.lines = []
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    @property
    def count(self):
        return len(self.lines)

    async def accept(self):
        async with asyncio.timeout(PATIENCE_S):
            own, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        own.setblocking(False)
        self.lines.append(Line(own))
        return self.lines[-1]


@contextmanager
def listening():
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        listener.setblocking(False)
        worker = Worker(listener)
        yield worker
        for line in worker.lines:
            line.end()


@pytest.fixture
def worker():
    with listening() as worker:
        yield worker


async def begin(upstream, worker, *, path="/x", headers=(), body=b"", method="POST"):
    """A request under way: the task that waits for its head, and the worker's connection."""
    task = asyncio.create_task(upstream.open(worker.url + path, list(headers), body, method=method))
    line = await worker.accept()
    return task, line


async def read_all(exchange):
    pieces = []
    while piece := await exchange.read():
        pieces.append(piece)
    return b"".join(pieces)


async def ask(upstream, worker, answer=JSON, line=None):
    """One request, answered and closed; on a new connection unless on that one."""
    task = asyncio.create_task(upstream.open(worker.url + "/x", [], b""))
    line = line or await worker.accept()
    await line.read_request()
    await line.answer(answer)
    exchange = await task
    body = await read_all(exchange)
    exchange.close()
    return line, body


async def test_a_request_is_its_lines_and_its_body_and_nothing_more(upstream, worker):
    headers = [(b"x-a", b"1"), (b"x-b", b"caf\xe9"), (b"x-a", b"2")]
    task, line = await begin(upstream, worker, path="/v1/x?y=%20z", headers=headers, body=b"{}")
    head, body = await line.read_request()
    first, *lines = head.split(b"\r\n")
    assert (first, body) == (b"POST /v1/x?y=%20z HTTP/1.1", b"{}")
    host = worker.url.removeprefix("http://").encode()
    lowered = sorted((name.lower(), value) for name, _, value in (each.partition(b": ") for each in lines))
    assert lowered == sorted([*headers, (b"host", host), (b"content-length", b"2")])
    await line.answer(JSON)
    (await task).close()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_request_without_a_body_says_no_length(upstream, worker, method):
    task, line = await begin(upstream, worker, method=method)
    head, _ = await line.read_request()
    assert head.startswith(method.encode() + b" /x HTTP/1.1\r\n")
    assert b"transfer-encoding" not in head.lower()
    await line.answer(JSON)
    (await task).close()


ANSWERS = {
    "length": (b"content-length: 5\r\n\r\nhello", 200, b"hello"),
    "chunks": (b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nx-t: 1\r\n\r\n", 200, b"hello"),
    "empty": (b"content-length: 0\r\n\r\n", 200, b""),
    "no_content": (b"\r\n", 204, b""),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_every_way_to_say_where_an_answer_ends_is_understood(upstream, worker, name):
    lines, status, body = ANSWERS[name]
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(b"HTTP/1.1 %d X\r\nX-Name: V\xe9\r\n" % status + lines)
    exchange = await task
    assert exchange.status == status
    assert (b"x-name", b"V\xe9") in exchange.headers
    assert await read_all(exchange) == body
    assert await exchange.read() == b""
    exchange.close()
    # The connection is whole, and serves the next request too.
    task = asyncio.create_task(upstream.open(worker.url + "/y", [], b""))
    await line.read_request()
    await line.answer(JSON)
    (await task).close()
    assert worker.count == 1


async def test_an_answer_without_a_length_ends_with_its_connection(upstream, worker):
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(b"HTTP/1.1 200 OK\r\n\r\n", b"hel")
    exchange = await task
    assert await exchange.read() == b"hel"
    await line.answer(b"lo")
    line.end()
    assert await read_all(exchange) == b"lo"
    exchange.close()


async def test_words_before_the_answer_are_no_answer(upstream, worker):
    _, body = await ask(upstream, worker, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nx-a: 1\r\n\r\n" + JSON)
    assert body == b"{}"


async def test_an_answer_to_HEAD_has_a_length_and_no_body(upstream, worker):
    task, line = await begin(upstream, worker, method="HEAD")
    await line.read_request()
    await line.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n")
    exchange = await task
    assert await exchange.read() == b""
    exchange.close()


async def test_C11_pieces_are_given_as_they_arrive(upstream, worker):
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    exchange = await task
    for piece in (b"one", b"two", b"three"):
        await line.answer(b"%x\r\n%s\r\n" % (len(piece), piece))
        assert await exchange.read() == piece
    await line.answer(b"0\r\n\r\n")
    assert await exchange.read() == b""
    exchange.close()


async def test_C11_poured_pieces_are_given_as_they_arrive(upstream, worker):
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    exchange, taken = await task, asyncio.Queue()
    pouring = asyncio.create_task(exchange.pour(taken.put_nowait, None))
    for piece in (b"one", b"two", b"three"):
        await line.answer(b"%x\r\n%s\r\n" % (len(piece), piece))
        assert await taken.get() == piece
    await line.answer(b"0\r\n\r\n")
    await pouring
    exchange.close()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 1000])
async def test_C11_whole_chunks_are_passed_as_they_came_and_nothing_twice(upstream, worker, size):
    task, line = await begin(upstream, worker)
    await line.read_request()
    pieces = [b"%d" % place * 3 for place in range(40)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    await line.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    exchange, taken, passed = await task, [], []

    def take_chunks(data):
        # Their sizes are 3 and 6; the last one is the parser's, as is what is no whole chunk.
        if not data.endswith(b"\r\n") or data.count(b"\r\n") % 2 or b"0\r\n\r\n" in data:
            return None
        passed.append(data)
        taken.extend(data.split(b"\r\n")[1::2])
        return False

    pouring = asyncio.create_task(exchange.pour(taken.append, None, take_chunks))
    for place in range(0, len(framed), size):
        await line.answer(framed[place : place + size])
        await asyncio.sleep(0)
    await line.answer(b"0\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        await pouring
    assert b"".join(taken) == b"".join(pieces)
    exchange.close()


async def test_C11_a_client_without_room_stops_passed_chunks_too(upstream, worker):
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
    exchange, gate, passed = await task, asyncio.Event(), []

    def take_chunks(data):
        if data.startswith(b"0"):
            return None
        passed.append(data)
        return True

    pouring = asyncio.create_task(exchange.pour(lambda _piece: False, gate.wait, take_chunks))
    async with asyncio.timeout(PATIENCE_S):
        while exchange._pieces:  # noqa: ASYNC110  (until it is poured)
            await asyncio.sleep(0)
        await line.answer(b"1\r\nb\r\n")
        while not passed:  # noqa: ASYNC110  (the first fills it)
            await asyncio.sleep(0)
        assert exchange._is_paused
        gate.set()
        await line.answer(b"0\r\n\r\n")
        await pouring
    exchange.close()


async def test_a_worker_that_closes_before_it_is_asked_was_not_reached(upstream, worker):
    task, line = await begin(upstream, worker)
    line.reset()
    with pytest.raises((UpstreamUnreachableError, UpstreamClosedError)):
        await task
    assert worker.count == 1


async def test_what_takes_the_pieces_may_fail_where_they_are_poured(upstream, worker):
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")

    def refuse(piece):
        raise LookupError(piece)

    exchange = await task
    pouring = asyncio.create_task(exchange.pour(refuse, None))
    await asyncio.sleep(0)
    await line.answer(b"1\r\nx\r\n")
    with pytest.raises(LookupError):
        await pouring
    exchange.close()
    assert await line.is_closed()


CUT = {
    "nothing": b"",
    "status": b"HTTP/1.1 200",
    "head": b"HTTP/1.1 200 OK\r\ncontent-len",
    "body": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe",
    "chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhe",
    "last_chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n",
    "trailer": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
}


@pytest.mark.parametrize("end", ["end", "reset"])
@pytest.mark.parametrize("name", CUT)
async def test_C12_an_answer_that_breaks_off_is_never_taken_as_whole(upstream, worker, name, end):
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(CUT[name])
    if name in {"body", "chunk", "last_chunk"}:
        # What came is not taken back by how it ends.
        exchange = await task
        assert await exchange.read() == b"he"
    getattr(line, end)()

    async def take_all():
        await read_all(await task)

    with pytest.raises(UpstreamClosedError):
        await take_all()
    assert worker.count == 1


GARBAGE = {
    "no_http": b"\x00\x01 not http at all\r\n\r\n",
    "two_lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ",
    "length_and_chunks": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "odd_length": b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n",
    "upgrade": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    "many_lines": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1_000 + b"content-length: 0\r\n\r\n",
    "long_line": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 1_000_000,
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_what_is_no_http_is_said_to_be_none(upstream, worker, name):
    task, line = await begin(upstream, worker)
    await line.read_request()
    with suppress(ConnectionError):
        await line.answer(GARBAGE[name])
    with pytest.raises(GarbledAnswerError):
        await task
    assert await line.is_closed()


ENDLESS = {"chunk_size": b"0" * 1_000, "chunk_extension": b"5;" + b"x" * 998, "trailer": b"0\r\nx: " + b"y" * 994}


@pytest.mark.parametrize("name", ENDLESS)
async def test_framing_without_a_body_goes_on_only_so_long(upstream, worker, name):
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n" + ENDLESS[name])
    exchange = await task
    assert await exchange.read() == b"he"
    reading = asyncio.create_task(exchange.read())
    with suppress(ConnectionError):
        await line.answer(ENDLESS[name][-1:] * 1_000_000)
    with pytest.raises(GarbledAnswerError):
        await reading
    exchange.close()
    assert await line.is_closed()


async def test_a_chunk_of_no_length_breaks_the_answer_where_it_stands(upstream, worker):
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n")
    exchange = await task
    assert await exchange.read() == b"he"
    await line.answer(b"zz\r\n")
    with pytest.raises((GarbledAnswerError, UpstreamClosedError)):
        await exchange.read()
    exchange.close()
    assert await line.is_closed()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
async def test_a_connection_that_the_worker_will_close_is_not_used_again(upstream, worker, answer):
    line, _ = await ask(upstream, worker, answer)
    assert await line.is_closed()
    await ask(upstream, worker)
    assert worker.count == 2


@pytest.mark.parametrize("together", [True, False])
async def test_bytes_nobody_asked_for_never_answer_the_next_request(upstream, worker, together):
    surplus = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nOTHER"
    line, body = await ask(upstream, worker, JSON + surplus if together else JSON)
    assert body == b"{}"
    if not together:
        await line.answer(surplus)
    assert await line.is_closed()
    _, body = await ask(upstream, worker)
    assert body == b"{}"


async def test_an_answer_that_is_not_read_to_its_end_closes_its_connection(upstream, worker):
    task, line = await begin(upstream, worker)
    await line.read_request()
    await line.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe")
    exchange = await task
    exchange.close()
    exchange.close()
    assert await line.is_closed()


async def test_a_request_given_up_closes_its_connection_at_once(upstream, worker):
    task, line = await begin(upstream, worker, body=b"x" * 5_000_000)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await line.is_closed()


async def test_C06_a_worker_that_hangs_holds_up_nobody_else(upstream, worker):
    with listening() as other:
        hung = [await begin(upstream, worker) for _ in range(200)]
        line, _ = await ask(upstream, other)
        for _ in range(3):
            await ask(upstream, other, line=line)
        for task, _ in hung:
            task.cancel()
        await asyncio.gather(*(task for task, _ in hung), return_exceptions=True)


async def test_a_refused_connection_is_told_from_a_broken_one(upstream):
    with closed_port() as port, pytest.raises(UpstreamUnreachableError):
        await upstream.open(f"http://127.0.0.1:{port}/x", [], b"")


async def test_a_name_that_nobody_knows_is_an_address_at_which_nobody_is():
    # Where no server of names answers, its limit says so.
    upstream = PooledUpstream(connect_s=1.0)
    with pytest.raises(UpstreamUnreachableError):
        await upstream.open("http://no-such-host.invalid:1/x", [], b"")
    await upstream.close()


async def test_C06_a_connection_that_does_not_come_about_ends_at_its_limit(worker):
    # It listens, and says nothing when asked for its certificate.
    upstream = PooledUpstream(connect_s=0.05)
    with pytest.raises(UpstreamUnreachableError):
        await upstream.open(worker.url.replace("http://", "https://") + "/x", [], b"")
    await upstream.close()


async def test_C06_a_router_that_was_held_up_does_not_blame_the_worker_for_it(worker, monkeypatch):
    loop, held_s = asyncio.get_running_loop(), [0.0]
    on_time = loop.time
    monkeypatch.setattr(loop, "time", lambda: on_time() + held_s[0])
    lookout = Lookout()
    upstream = PooledUpstream(connect_s=1.0, lookout=lookout)
    task = asyncio.create_task(upstream.open(worker.url + "/x", [], b"{}"))
    while not len(lookout):  # noqa: ASYNC110  (until it connects)
        await asyncio.sleep(0)
    # Its connection came about in the kernel long before the loop comes round to it.
    held_s[0] += 60.0
    async with asyncio.timeout(PATIENCE_S):
        line = await worker.accept()
        await line.read_request()
        await line.answer(JSON)
        exchange = await task
    assert exchange.status == 200
    exchange.close()
    await upstream.close()


@pytest.mark.parametrize("how", ["end", "reset"])
async def test_C07_a_connection_closed_while_idle_costs_no_request(upstream, worker, how):
    for _ in range(200):
        line, _ = await ask(upstream, worker)
        # This side does not know of it when it writes the next request.
        getattr(line, how)()
    assert worker.count == 200


async def test_C07_a_connection_closed_just_as_the_request_arrives_costs_no_request(upstream, worker, monkeypatch):
    # However late this side comes round to it.
    monkeypatch.setattr(connection, "RESET_S", 600.0)
    line, _ = await ask(upstream, worker)
    for _ in range(100):
        task = asyncio.create_task(upstream.open(worker.url + "/x", [], b"{}"))
        await line.wait_for_bytes()
        line.end()
        line = await worker.accept()
        await line.read_request()
        await line.answer(JSON)
        exchange = await task
        assert await read_all(exchange) == b"{}"
        exchange.close()
    assert worker.count == 101


@pytest.mark.parametrize("how", ["end", "reset"])
async def test_C07_a_request_that_a_worker_may_have_begun_is_never_sent_again(upstream, worker, how, monkeypatch):
    monkeypatch.setattr(connection, "RESET_S", -1.0)
    line, _ = await ask(upstream, worker)
    task = asyncio.create_task(upstream.open(worker.url + "/x", [], b"{}"))
    await line.read_request()
    line.acknowledge()
    getattr(line, how)()
    with pytest.raises(UpstreamClosedError):
        await asyncio.wait_for(task, PATIENCE_S)
    assert worker.count == 1


async def test_C07_a_request_is_sent_again_once_only(upstream, worker):
    line, _ = await ask(upstream, worker)
    line.end()
    task = asyncio.create_task(upstream.open(worker.url + "/x", [], b"{}"))
    line = await worker.accept()
    await line.read_request()
    line.end()
    with pytest.raises(UpstreamClosedError):
        await asyncio.wait_for(task, PATIENCE_S)
    assert worker.count == 2


async def test_C07_a_request_of_whose_answer_a_byte_came_is_not_sent_again(upstream, worker):
    line, _ = await ask(upstream, worker)
    task = asyncio.create_task(upstream.open(worker.url + "/x", [], b"{}"))
    await line.read_request()
    await line.answer(b"H")
    line.reset()
    with pytest.raises(UpstreamClosedError):
        await asyncio.wait_for(task, PATIENCE_S)
    assert worker.count == 1


async def test_a_slow_reader_slows_its_worker_down(upstream, worker):
    task, line = await begin(upstream, worker)
    await line.read_request()
    size = 64 << 20
    await line.answer(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
    exchange, sent = await task, 0
    sent = line.send_what_fits()
    for _ in range(50):
        await asyncio.sleep(0)
        sent += line.send_what_fits()
    assert sent < size / 2
    received = 0
    while received < size:
        received += len(await exchange.read())
        sent += line.send_what_fits(min(1 << 20, size - sent))
    assert await exchange.read() == b""
    exchange.close()


async def test_a_full_client_slows_its_worker_down_while_pieces_are_poured(upstream, worker):
    task, line = await begin(upstream, worker)
    await line.read_request()
    size = 32 << 20
    await line.answer(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
    exchange, taken, gate = await task, [], asyncio.Event()

    def take(piece):
        taken.append(len(piece))
        return True

    pouring = asyncio.create_task(exchange.pour(take, gate.wait))
    sent = 0
    for _ in range(50):
        sent += line.send_what_fits()
        await asyncio.sleep(0)
    assert sent < size / 2
    assert len(taken) == 1
    gate.set()
    while sent < size:
        sent += line.send_what_fits(min(1 << 20, size - sent))
        await asyncio.sleep(0)
    await pouring
    assert sum(taken) == size
    exchange.close()


async def test_a_long_body_arrives_whole(upstream, worker):
    body = bytes(range(256)) * 80_000
    task, line = await begin(upstream, worker, body=body)
    assert (await line.read_request())[1] == body
    await line.answer(JSON)
    (await task).close()


async def test_an_answer_before_the_body_was_read_counts_and_ends_its_connection(upstream, worker):
    task, line = await begin(upstream, worker, body=b"x" * 50_000_000)
    await line.wait_for_bytes()
    await line.answer(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
    exchange = await task
    assert (exchange.status, await exchange.read()) == (413, b"")
    exchange.close()
    assert await line.is_closed()


@pytest.mark.parametrize("names", [["127.0.0.1"], ["other.example"]])
async def test_certificates_of_workers_are_checked(names):
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(tls)

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(JSON)
        await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    known = ssl.create_default_context()
    authority.configure_trust(known)
    upstream, stranger = PooledUpstream(connect_s=PATIENCE_S, tls=known), PooledUpstream(connect_s=PATIENCE_S)
    if names == ["127.0.0.1"]:
        exchange = await upstream.open(url, [], b"")
        assert await read_all(exchange) == b"{}"
        exchange.close()
    else:
        with pytest.raises(UpstreamUnreachableError):
            await upstream.open(url, [], b"")
    with pytest.raises(UpstreamUnreachableError):
        await stranger.open(url, [], b"")
    await upstream.close()
    await stranger.close()
    server.close()


@pytest.mark.parametrize(
    ("target", "headers"),
    [("/x y", []), ("/x\r\nz: 1", []), ("/\u00e9", []), ("/", [(b"a", b"b\r\nc: d")]), ("/", [(b"a", b"b\nc")])],
)
def test_no_part_of_a_request_can_end_its_line(target, headers):
    with pytest.raises(ValueError, match=r"line|target"):
        encode_head("POST", target, b"host", headers, 0)
