"""What connections of clients keep to: byte for byte, on a socket, with a call that the test writes."""

import asyncio
import logging
import socket
from contextlib import suppress

import pytest
from door_words import GET, call, leap, open_house, post, talk, until, until_not
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import DovecoteError
from router.proxy.asgi import serve_asgi
from router.proxy.client import ClientGoneError
from router.proxy.door import IDLE_S
from router.proxy.framing import read_framing
from tests.waiting import PATIENCE_S

CLOSE = b"connection: close"
CHUNKED = b"transfer-encoding: chunked"
SMUGGLED = {
    "bad chunk end": post(b"5\r\nhelloXX0\r\n\r\n", CHUNKED),
    "chunk end of one byte": post(b"5\r\nhello\n0\r\n\r\n", CHUNKED),
    "line feed in a chunk extension": post(b"5;a\nb\r\nhello\r\n0\r\n\r\n", CHUNKED),
    "chunk length of a bare line feed": post(b"5\nhello\r\n0\r\n\r\n", CHUNKED),
    "chunk length with a sign": post(b"+5\r\nhello\r\n0\r\n\r\n", CHUNKED),
    "chunk length with a prefix": post(b"0x5\r\nhello\r\n0\r\n\r\n", CHUNKED),
    "chunk length too large": post(b"ffffffffffffffffff\r\nhello\r\n0\r\n\r\n", CHUNKED),
    "length and chunks": post(b"0\r\n\r\n", b"content-length: 5", CHUNKED),
    "chunks and length": post(b"0\r\n\r\n", CHUNKED, b"content-length: 5"),
    "two lengths": post(b"hello", b"content-length: 5", b"content-length: 6"),
    "the same length twice": post(b"hello", b"content-length: 5", b"content-length: 5"),
    "a list of lengths": post(b"hello", b"content-length: 5, 5"),
    "a length with a sign": post(b"hello", b"content-length: +5"),
    "a length below zero": post(b"hello", b"content-length: -5"),
    "chunks, then as it is": post(b"5\r\nhello\r\n0\r\n\r\n", b"transfer-encoding: chunked, identity"),
    "as it is, then chunks": post(b"5\r\nhello\r\n0\r\n\r\n", b"transfer-encoding: identity, chunked"),
    "another coding": post(b"5\r\nhello\r\n0\r\n\r\n", b"transfer-encoding: gzip, chunked"),
    "chunks twice": post(b"5\r\nhello\r\n0\r\n\r\n", CHUNKED, CHUNKED),
    "chunks by another name": post(b"5\r\nhello\r\n0\r\n\r\n", b"transfer-encoding: xchunked"),
    "a blank before the colon": post(b"hello", b"content-length : 5"),
    "a folded line": post(b"hello", b"x-a: 1\r\n content-length: 0", b"content-length: 5"),
    "a folded coding": post(b"5\r\nhello\r\n0\r\n\r\n", b"transfer-encoding:\r\n chunked"),
    "a bare carriage return": post(b"hello", b"x-a: 1\rcontent-length: 0", b"content-length: 5"),
    "bare line feeds": b"POST /x HTTP/1.1\nhost: a\ncontent-length: 5\n\nhello",
    "a zero in a line": post(b"hello", b"x-a: \0", b"content-length: 5"),
    "no host": b"POST /x HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello",
    "two hosts": post(b"hello", b"host: b", b"content-length: 5"),
    "chunks of HTTP/1.0": b"POST /x HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "another HTTP": b"POST /x HTTP/2.0\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
    "no HTTP": b"\x16\x03\x01\x02\x00",
    "a tunnel": b"CONNECT b:1 HTTP/1.1\r\nhost: a\r\n\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
async def test_G11_what_could_be_read_in_two_ways_is_refused_and_nobody_sees_it(name):
    async with open_house() as house:
        answer = await talk(house, SMUGGLED[name] + GET)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"\r\n\r\n") == 1
        assert b'"code":"invalid_http"' in answer
        assert house.seen == []


@pytest.mark.parametrize(
    "head",
    [
        b"GET /x HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 10_000 + b"\r\n",
        b"GET /x HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 10_000_000 + b"\r\n\r\n",
        b"GET /" + b"y" * 10_000_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
    ids=["many lines", "one line", "target"],
)
async def test_G07_a_head_without_measure_is_431_and_is_not_kept(head):
    async with open_house() as house:
        reader, writer = await call(house)
        writer.write(head)
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
            (door,) = house.doors
            assert sum(len(name) + len(value) for name, value in door._head.take() or ()) <= 1 << 17
        writer.close()
        assert house.seen == []


@pytest.mark.parametrize(
    "lines",
    [[b"host: b", b"content-length: 5"], [b"x: 1"] * 300 + [b"content-length: 5"], [b"transfer-encoding: gzip"]],
    ids=["two hosts", "many lines", "another coding"],
)
async def test_the_body_of_a_refused_head_is_taken_and_thrown_away_so_that_its_refusal_arrives(lines):
    async with open_house() as house:
        reader, writer = await call(house)
        writer.write(post(b"", *lines))
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read()
        (door,) = house.doors
        came_bytes = door.came_bytes
        writer.write(b"hello")
        await until(lambda: door.came_bytes > came_bytes or not house.state.connections)
        assert door.came_bytes == came_bytes + 5
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
        assert house.seen == []


async def test_one_connection_serves_one_request_after_the_other():
    async with open_house() as house:
        answer = await talk(
            house, post(b"one", b"content-length: 3"), post(b"3\r\ntwo\r\n0\r\n\r\n", CHUNKED), post(b"", CLOSE)
        )
        assert [body for *_, body in house.seen] == [b"one", b"two", b""]
        assert answer.count(b"HTTP/1.1 200 OK\r\nx-a: 1\r\n") == 3
        assert b"connection: close" in answer.rpartition(b"HTTP/1.1")[2]
        assert house.state.total_requests == 3


async def test_requests_that_came_together_are_served_in_their_order():
    gates = [asyncio.Event() for _ in range(3)]

    async def serve(_scope, client, body):
        await gates[int(body)].wait()
        client.answer(200, [], body)

    async with open_house(serve) as house:
        reader, writer = await call(house)
        writer.write(b"".join(post(b"%d" % place, b"content-length: 1") for place in range(3)))
        for place in (2, 1, 0):
            gates[place].set()
        async with asyncio.timeout(PATIENCE_S):
            for place in range(3):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                assert await reader.readexactly(1) == b"%d" % place
        writer.close()


async def test_more_requests_at_a_time_than_may_wait_are_refused():
    async def never(_scope, client, _body):
        left = asyncio.Event()
        client.watch(left.set)
        await left.wait()

    async with open_house(never) as house:
        # An answer would be taken for that to the first of them.
        assert await talk(house, GET * 100) == b""
        # Of those that came before, the first waits for its answer.
        reader, writer = await call(house)
        async with asyncio.timeout(PATIENCE_S):
            writer.write(GET)
            await until_not(lambda: not house.seen)
            writer.write(GET * 30)
            with suppress(ConnectionError):
                assert await reader.read() == b""
        assert len(house.seen) == 1
        writer.close()


BROKEN = {
    "no_http": b"\x00\x01 garbage\r\n\r\n",
    "two_lengths": b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
    "a_broken_body": b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nno chunk\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("ahead", [1, 3])
async def test_G11_what_is_no_request_is_refused_in_words_after_the_answers_before_it(name, ahead):
    async with open_house() as house:
        answers = await talk(house, GET * ahead + BROKEN[name] * 2 + GET)
        assert [line[:12] for line in answers.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")] == [
            *[b"HTTP/1.1 200"] * ahead,
            b"HTTP/1.1 400",
        ]
        assert b"invalid_http" in answers
        assert len(house.seen) == ahead
        async with asyncio.timeout(PATIENCE_S):
            await until_not(lambda: house.state.connections)


async def test_C14_a_body_over_the_limit_is_told_so_before_its_end_and_the_answer_arrives():
    async with open_house(limit_bytes=1_000) as house:
        answer = await talk(house, post(b"", b"content-length: 50000000"), *[bytes(100_000)] * 20)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer
        answer = await talk(house, post(b"", CHUNKED), *[b"400\r\n" + bytes(1_024) + b"\r\n"] * 200)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert house.seen == []


async def test_a_client_that_waits_for_a_word_gets_it():
    async with open_house() as house:
        reader, writer = await call(house)
        writer.write(post(b"", b"content-length: 2", b"expect: 100-continue"))
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"hi")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(2) == b"hi"
        writer.close()


async def stream(_scope, client, _body):
    client.start(200, [(b"content-type", b"text/event-stream")])
    for piece in (b"one", b"", b"three"):
        client.write(piece)
    client.end(b"!")


async def test_an_answer_of_unknown_length_comes_in_chunks():
    async with open_house(stream) as house:
        answer = await talk(house, post(b"", CLOSE))
        assert answer.partition(b"\r\n\r\n")[2] == b"3\r\none\r\n5\r\nthree\r\n1\r\n!\r\n0\r\n\r\n"
        assert b"transfer-encoding: chunked\r\n" in answer


async def test_a_client_of_HTTP_1_0_gets_no_chunks():
    async with open_house(stream) as house:
        answer = await talk(house, b"GET /x HTTP/1.0\r\n\r\n")
        assert answer.partition(b"\r\n\r\n")[2] == b"onethree!"
        assert b"connection: close" in answer


async def test_an_answer_to_HEAD_has_its_length_and_no_body():
    async def serve(_scope, client, _body):
        client.answer(200, [], b"12345")

    async with open_house(serve) as house:
        answer = await talk(house, b"HEAD /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert answer.endswith(b"content-length: 5\r\nconnection: close\r\n\r\n")


async def test_C12_an_answer_that_was_not_ended_is_not_ended_for_the_client_either(caplog):
    async def serve(_scope, client, _body):
        client.start(200, [])
        client.write(b"one")

    async def fail(_scope, _client, _body):
        raise LookupError

    async with open_house(serve) as house:
        assert (await talk(house, GET)).endswith(b"\r\n\r\n3\r\none\r\n")
    caplog.set_level(logging.CRITICAL)
    async with open_house(fail) as house:
        assert b"500 Internal Server Error" in await talk(house, post(b"", CLOSE))


async def test_a_client_that_leaves_is_noticed_at_once_wherever_its_call_is():
    left = asyncio.Event()

    async def serve(_scope, client, _body):
        client.watch(left.set)
        await left.wait()

    async with open_house(serve) as house:
        _, writer = await call(house)
        writer.write(GET)
        async with asyncio.timeout(PATIENCE_S):
            await until_not(lambda: not house.seen)
            writer.transport.abort()
            await left.wait()

    async def receive(_scope, client):
        with pytest.raises(ClientGoneError):
            await client.receive_body(10)
        left.set()

    left.clear()
    async with open_house() as house:
        house.answer = receive
        _, writer = await call(house)
        writer.write(post(b"1", b"content-length: 5"))
        await writer.drain()
        async with asyncio.timeout(PATIENCE_S):
            await until_not(lambda: not house.state.tasks)
            writer.transport.abort()
            await left.wait()


async def test_a_client_that_does_not_read_is_waited_for():
    written, total = 0, 64 << 20

    async def serve(_scope, client, _body):
        nonlocal written
        client.start(200, [])
        while written < total:
            client.write(bytes(1 << 16))
            written += 1 << 16
            if client.is_full:
                await client.drain()
        client.end()

    async with open_house(serve) as house:
        reader, writer = await call(house)
        writer.transport.pause_reading()
        writer.write(GET)
        for _ in range(2_000):
            await asyncio.sleep(0)
        assert 0 < written < total / 2
        writer.transport.resume_reading()
        received = 0
        async with asyncio.timeout(PATIENCE_S):
            while received < total:
                received += len(await reader.read(1 << 20))
        writer.close()


async def test_sockets_of_clients_do_not_wait_to_fill_packets():
    async with open_house() as house:
        await talk(house, post(b"", CLOSE))
        _, writer = await call(house)
        async with asyncio.timeout(PATIENCE_S):
            await until_not(lambda: len(house.doors) < 2)
        assert house.doors[1].socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()


async def test_when_the_server_ends_idle_connections_close_and_answers_are_finished():
    gate = asyncio.Event()

    async def serve(_scope, client, _body):
        await gate.wait()
        client.answer(200, [], b"late")

    async with open_house(serve) as house:
        idle, busy = await call(house), await call(house)
        busy[1].write(GET)
        async with asyncio.timeout(PATIENCE_S):
            await until_not(lambda: not house.seen)
            for door in house.doors:
                door.shutdown()
            assert await idle[0].read() == b""
            gate.set()
            answer = await busy[0].read()
        assert answer.endswith(b"connection: close\r\n\r\nlate")
        for _, writer in (idle, busy):
            writer.close()


@pytest.mark.parametrize("start", [b"", b"POST /x HTTP/1.1\r\nhost:", post(b"12", b"content-length: 5")])
async def test_a_connection_on_which_nothing_comes_is_closed(start):
    async with open_house() as house:
        reader, writer = await call(house)
        writer.write(start)
        await until(lambda: house.doors and house.doors[0].came_bytes == len(start))
        leap(IDLE_S + 1.0)
        house.doors[0].look()
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


async def test_a_client_that_waits_for_its_answer_is_not_idle():
    gate = asyncio.Event()

    async def serve(_scope, client, _body):
        await gate.wait()
        client.answer(200, [], b"")

    async with open_house(serve) as house:
        reader, writer = await call(house)
        writer.write(post(b"", CLOSE))
        async with asyncio.timeout(PATIENCE_S):
            await until_not(lambda: not house.seen)
        leap(1_000.0)
        house.doors[0].look()
        gate.set()
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_an_offer_to_speak_another_protocol_is_not_taken():
    lines = (b"connection: upgrade, http2-settings", b"upgrade: h2c", b"http2-settings: x")
    async with open_house() as house:
        answer = await talk(house, post(b"", *lines), b"PRI * HTTP/2.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert len(house.seen) == 1
        # Where its body would begin, the other protocol does for those who read it so.
        answer = await talk(house, post(b"hi", *lines, b"content-length: 2"))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert len(house.seen) == 1


@pytest.mark.parametrize("line", [(b"x", b"a\r\nb: c"), (b"x", b"a\nb")])
async def test_no_line_of_an_answer_can_end_early(line, caplog):
    async def serve(_scope, client, _body):
        client.answer(200, [line], b"")

    caplog.set_level(logging.CRITICAL)
    async with open_house(serve) as house:
        answer = await talk(house, post(b"", CLOSE))
        assert b"500" in answer
        assert b"b: c" not in answer


async def test_an_asgi_application_is_served_whole_and_in_pieces():
    async def app(scope, receive, send):
        message = await receive()
        headers = [(b"X-Len", str(len(message["body"])).encode()), (b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        if scope["path"] == "/pieces":
            await send({"type": "http.response.body", "body": b"ab", "more_body": True})
            await send({"type": "http.response.body", "body": b"cd"})
            assert (await receive())["type"] == "http.disconnect"
        else:
            await send({"type": "http.response.body", "body": b"abcd"})

    async with open_house() as house:
        house.answer = serve_asgi(app, 100)
        answer = await talk(house, post(b"hello", b"content-length: 5", CLOSE))
        assert answer == (b"HTTP/1.1 201 Created\r\nx-len: 5\r\ncontent-length: 4\r\nconnection: close\r\n\r\nabcd")
        reader, writer = await call(house)
        writer.write(post(b"", CLOSE).replace(b"/x", b"/pieces"))
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.readuntil(b"0\r\n\r\n")
        assert answer.endswith(b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n")
        writer.transport.abort()


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.data())
@settings(max_examples=60)
def test_C11_requests_are_the_same_however_the_network_cuts_them(bodies, data):
    sent = b"".join(
        post(body, b"content-length: %d" % len(body))
        if data.draw(st.booleans())
        else post(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n", CHUNKED)
        for body in bodies
    )
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=8)))

    async def run():
        async with open_house() as house:
            pieces = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
            await talk(house, *pieces, post(b"", CLOSE))
            return [body for *_, body in house.seen]

    assert asyncio.run(run()) == [*bodies, b""]


def test_framing_is_judged_by_lines_alone():
    lines = [(b"host", b"a"), (b"expect", b"100-Continue"), (b"content-length", b"1")]
    assert read_framing(lines, "1.1") == (True, True)
    assert read_framing([], "1.0") == (False, False)
    with pytest.raises(DovecoteError):
        read_framing([], "1.1")
