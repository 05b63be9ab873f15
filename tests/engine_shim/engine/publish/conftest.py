"""Sockets of the tests' side: subscribers and replay callers, closed at the end."""

from collections.abc import Iterator

import pytest
import zmq

from tests.waiting import PATIENCE_S


class Callers:
    """Opens SUB and DEALER sockets and reads from them with a deadline."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._opened: list[zmq.Socket[bytes]] = []

    def socket(self, kind: int, address: str, *, receive_messages: int = 0) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1_000))
        socket.setsockopt(zmq.RCVHWM, receive_messages)
        if kind == zmq.SUB:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(address)
        self._opened.append(socket)
        return socket

    def replay(self, dealer: "zmq.Socket[bytes]", start_seq: int) -> list[list[bytes]]:
        """Every answer to one request, the end marker last."""
        dealer.send_multipart([b"", start_seq.to_bytes(8, "big")])
        answers = [dealer.recv_multipart()]
        while answers[-1][-2] != b"\xff" * 8:
            answers.append(dealer.recv_multipart())
        return answers

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def callers() -> Iterator[Callers]:
    opened = Callers()
    yield opened
    opened.close()
