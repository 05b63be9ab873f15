"""How long connections of clients may take, and how much of what they send is kept: neither without end."""

import asyncio
from contextlib import suppress

import pytest
from door_words import GET, call, leap, open_house, post, until, until_not

from router.proxy import door as door_module
from router.proxy.door import IDLE_S, MAX_BEHIND_BYTES, MIN_BYTES_PER_S, STALLED_S
from tests.waiting import PATIENCE_S

CHUNKED = b"transfer-encoding: chunked"


async def begin(house, start):
    """A connection on which that has arrived."""
    reader, writer = await call(house)
    writer.write(start)
    await until(lambda: house.doors and house.doors[0].came_bytes == len(start))
    return house.doors[0], reader, writer


async def send(door, writer, data):
    """What arrives."""
    came_bytes = door.came_bytes + len(data)
    writer.write(data)
    await until(lambda: door.came_bytes == came_bytes)


async def is_open_after(house, door, by_s):
    """Whether the connection stands still, so much later."""
    leap(by_s)
    door.look()
    await asyncio.sleep(0)
    return bool(house.state.connections)


async def test_a_head_that_drips_gains_no_time():
    async with open_house() as house:
        door, _, writer = await begin(house, b"GET /x HT")
        for piece in (b"TP/1.1\r\n", b"host: a\r\n", b"x: "):
            assert await is_open_after(house, door, STALLED_S / 3 - 1.0)
            await send(door, writer, piece)
        assert not await is_open_after(house, door, 3.5)


async def test_a_body_that_drips_gains_no_more_time_than_its_bytes_are_worth():
    async with open_house() as house:
        door, _, writer = await begin(house, post(b"", b"content-length: 100000"))
        assert await is_open_after(house, door, STALLED_S - 5.0)
        await send(door, writer, bytes(int(10 * MIN_BYTES_PER_S)))
        assert await is_open_after(house, door, 10.0)
        await send(door, writer, b"x")
        # Hearing of it just now does not help: it began long ago.
        assert not await is_open_after(house, door, 6.0)


async def test_a_body_that_comes_in_time_may_pause_as_long_as_a_client_may_be_silent():
    async with open_house() as house:
        door, reader, writer = await begin(house, post(b"", b"content-length: 100000"))
        await send(door, writer, bytes(99_999))
        assert await is_open_after(house, door, STALLED_S - 2.0)
        await send(door, writer, b"x")
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


async def test_blank_lines_between_requests_keep_no_connection():
    async with open_house() as house:
        door, reader, writer = await begin(house, GET)
        async with asyncio.timeout(PATIENCE_S):
            await reader.readuntil(b"\r\n\r\n")
        for _ in range(3):
            assert await is_open_after(house, door, IDLE_S / 3 - 1.0)
            await send(door, writer, b"\r\n")
        assert not await is_open_after(house, door, 3.5)


async def stream_until_gone(_scope, client, _body):
    left = asyncio.Event()
    client.watch(left.set)
    client.start(200, [])
    while not left.is_set():
        client.write(bytes(1 << 16))
        if client.is_full:
            await client.drain()


@pytest.mark.parametrize("is_ended", [False, True])
async def test_a_client_that_takes_nothing_is_not_waited_for_without_end(is_ended):
    async def serve(scope, client, body):
        if is_ended:
            client.answer(200, [], bytes(64 << 20))
        else:
            await stream_until_gone(scope, client, body)

    async with open_house(serve) as house:
        reader, writer = await call(house)
        writer.transport.pause_reading()
        writer.write(post(b"", b"connection: close"))
        await until(lambda: house.doors and house.doors[0].is_full)
        (door,) = house.doors
        await until(lambda: not is_ended or not house.state.tasks)
        assert await is_open_after(house, door, 0.0)
        assert await is_open_after(house, door, IDLE_S - 5.0)
        assert not await is_open_after(house, door, 6.0)
        await until(lambda: not house.state.tasks)
        writer.transport.resume_reading()
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                while await reader.read(1 << 20):
                    continue


async def test_a_client_that_takes_something_now_and_then_is_waited_for():
    async def serve(_scope, client, _body):
        client.answer(200, [], bytes(64 << 20))
        await client.drain()

    async with open_house(serve) as house:
        _, writer = await call(house)
        writer.transport.pause_reading()
        writer.write(GET)
        await until(lambda: house.doors and house.doors[0].is_full)
        (door,) = house.doors
        assert await is_open_after(house, door, 0.0)
        for _ in range(3):
            size = door.count_unsent()
            writer.transport.resume_reading()
            await until(lambda size=size: door.count_unsent() != size)
            writer.transport.pause_reading()
            assert await is_open_after(house, door, IDLE_S - 5.0)
        writer.transport.abort()


async def test_an_answer_that_breaks_off_to_a_client_that_takes_nothing_ends_its_connection_at_once():
    async def serve(_scope, client, _body):
        client.start(200, [])
        while not client.is_full:
            client.write(bytes(1 << 16))

    async with open_house(serve) as house:
        _, writer = await call(house)
        writer.transport.pause_reading()
        writer.write(GET)
        async with asyncio.timeout(PATIENCE_S):
            await until_not(lambda: not house.seen)
            await until_not(lambda: house.state.connections)
        writer.transport.resume_reading()


ENDLESS = {
    "chunk size": b"0",
    "chunk extension": b"5;x",
    "trailer": b"2\r\nhe\r\n0\r\nx: y",
    "trailers": b"2\r\nhe\r\n0\r\n" + b"x: y\r\n" * 100_000,
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_G07_framing_without_a_body_is_refused_before_it_is_long(name):
    async with open_house() as house:
        reader, writer = await call(house)
        writer.write(post(ENDLESS[name] + ENDLESS[name][-1:] * 2_000_000, CHUNKED))
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
        writer.transport.abort()
    assert house.seen == []


async def test_bodies_behind_the_request_that_is_served_wait_outside():
    gate, size = asyncio.Event(), 8 << 20

    async def serve(_scope, client, body):
        await gate.wait()
        client.answer(200, [], b"%d" % len(body))

    async with open_house(serve, limit_bytes=size) as house:
        reader, writer = await call(house)
        writer.write(GET + post(bytes(size), b"content-length: %d" % size) + GET)
        await until(lambda: house.doors and house.doors[0].came_bytes > MAX_BEHIND_BYTES)
        (door,) = house.doors
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert door.came_bytes < 4 * MAX_BEHIND_BYTES
        assert await is_open_after(house, door, 1_000.0)
        gate.set()
        async with asyncio.timeout(PATIENCE_S):
            for length in (b"0", b"%d" % size, b"0"):
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(len(length)) == length
        writer.close()


async def test_C04_a_client_that_leaves_while_nothing_is_read_from_it_is_noticed(monkeypatch):
    monkeypatch.setattr(door_module, "HELD_LOOK_S", 0.01)
    left, size = asyncio.Event(), MAX_BEHIND_BYTES + (32 << 10)

    async def serve(_scope, client, _body):
        client.watch(left.set)
        await left.wait()

    async with open_house(serve, limit_bytes=size) as house:
        _, writer = await call(house)
        writer.write(GET + post(bytes(size), b"content-length: %d" % size))
        await until(lambda: house.doors and house.doors[0].came_bytes > len(GET) + MAX_BEHIND_BYTES)
        async with asyncio.timeout(PATIENCE_S):
            writer.transport.abort()
            await left.wait()
            await until_not(lambda: house.state.connections)
