"""A server of our own connections whose calls a test serves, and a client that writes bytes."""

import asyncio
from contextlib import asynccontextmanager, suppress

from router.errors import BodyTooLargeError
from router.proxy import respond
from router.proxy.door import Door
from tests.waiting import PATIENCE_S

GET = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"


class State:
    def __init__(self):
        self.connections, self.tasks, self.total_requests = set(), set(), 0


class SeenDoor(Door):
    """A door of which a test sees what came through it."""

    def connection_made(self, transport):
        self.socket, self.came_bytes = transport.get_extra_info("socket"), 0
        super().connection_made(transport)

    def data_received(self, data):
        self.came_bytes += len(data)
        super().data_received(data)


class House:
    """A server whose calls a test serves."""

    def __init__(self, serve, limit_bytes=1 << 20):
        self.serve, self.limit_bytes = serve, limit_bytes
        self.state, self.seen, self.doors, self.writers = State(), [], [], []
        self.port = 0

    def make(self):
        self.doors.append(SeenDoor(lambda _scope: self.answer, self.state, {}))
        return self.doors[-1]

    async def answer(self, scope, client):
        try:
            body = await client.receive_body(self.limit_bytes)
        except BodyTooLargeError as error:
            await respond.send_error(client, error, {})
            return
        self.seen.append((scope["method"], scope["path"], body))
        await self.serve(scope, client, body)


async def echo(_scope, client, body):
    client.answer(200, [(b"x-a", b"1")], body)


@asynccontextmanager
async def open_house(serve=echo, **settings):
    house = House(serve, **settings)
    server = await asyncio.get_running_loop().create_server(house.make, "127.0.0.1", 0)
    house.port = server.sockets[0].getsockname()[1]
    try:
        yield house
    finally:
        server.close()
        for writer in house.writers:
            writer.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            await until_not(lambda: house.state.tasks or house.state.connections)
            for writer in house.writers:
                with suppress(ConnectionError):
                    await writer.wait_closed()


async def until_not(condition):
    """Let everything else run until something no longer holds."""
    while condition():  # noqa: ASYNC110  (the conditions are of many kinds)
        await asyncio.sleep(0)


async def until(condition):
    """The same until something holds, for as long as a busy machine may need."""
    async with asyncio.timeout(PATIENCE_S):
        await until_not(lambda: not condition())


def leap(by_s):
    """So much time passes at once."""
    loop = asyncio.get_running_loop()
    on_time = loop.time
    loop.time = lambda: on_time() + by_s


async def call(house):
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port, limit=1 << 24)
    house.writers.append(writer)
    return reader, writer


async def talk(house, data, *pieces):
    """Everything that comes back until the router closes the connection."""
    reader, writer = await call(house)
    for piece in (data, *pieces):
        writer.write(piece)
        with suppress(ConnectionError):
            await writer.drain()
    async with asyncio.timeout(PATIENCE_S):
        answer = b""
        with suppress(ConnectionError):
            while more := await reader.read(1 << 20):
                answer += more
    writer.close()
    return answer


def post(body, *lines):
    return b"\r\n".join([b"POST /x HTTP/1.1", b"host: a", *lines, b"", body])
