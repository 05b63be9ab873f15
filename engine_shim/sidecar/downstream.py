"""The sockets that a mirror's subscribers use: PUB and replay ROUTER of every rank, on contiguous ports.

Belongs to the hub's thread once it runs. Sends never block: a subscriber that does not read loses batches and asks
for them again.
"""

from collections.abc import Iterable, Sequence

import msgspec
import zmq

from engine_shim.sidecar.journal import Entry
from wire.frames import encode_live, encode_replay, encode_replay_end

#: Runs of ports tried before giving up.
_MAX_TRIES = 64


class PortsTakenError(OSError):
    """The wanted ports are in use."""


class Ports(msgspec.Struct, frozen=True):
    """Where subscribers find rank 0; rank r lies r ports above."""

    host: str
    events_base: int
    replay_base: int


class Downstream:
    """Sockets of all ranks."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        *,
        host: str,
        rank_count: int,
        events_port_base: int,
        replay_port_base: int,
        queue_messages: int,
    ) -> None:
        """Bind them.

        Args:
            context: Makes the sockets.
            host: Interface.
            rank_count: Ranks, and so sockets of each kind.
            events_port_base: Port of rank 0's events; 0 takes a free run.
            replay_port_base: Port of rank 0's replays; 0 takes a free run.
            queue_messages: Messages queued for one subscriber before it loses some.

        Raises:
            PortsTakenError: No such run of ports is free.
        """
        self.pubs = [_limited(context.socket(zmq.PUB), queue_messages) for _ in range(rank_count)]
        # A whole buffer must fit, and what is published while a slow caller reads it.
        self.routers = [_limited(context.socket(zmq.ROUTER), 4 * queue_messages) for _ in range(rank_count)]
        try:
            events_base = _bind_run(self.pubs, host, events_port_base)
            self.ports = Ports(host, events_base, _bind_run(self.routers, host, replay_port_base))
        except BaseException:
            self.close()
            raise
        #: By rank, replays that a caller did not read to the end.
        self.cut_short = [0] * rank_count

    def publish(self, dp_rank: int, entries: Iterable[Entry]) -> None:
        """Send batches to whoever listens."""
        for entry in entries:
            self.pubs[dp_rank].send_multipart(encode_live(entry.topic, entry.seq, entry.payload), zmq.NOBLOCK)

    def answer(self, dp_rank: int, identity: bytes, entries: Iterable[Entry]) -> None:
        """Send a replay to the one who asked."""
        router = self.routers[dp_rank]
        try:
            for entry in entries:
                frames = encode_replay(entry.seq, entry.payload, topic=entry.topic)
                router.send_multipart([identity, *frames], zmq.NOBLOCK)
            router.send_multipart([identity, *encode_replay_end(topic_frame=True)], zmq.NOBLOCK)
        except zmq.ZMQError:
            self.cut_short[dp_rank] += 1

    def close(self) -> None:
        """Close every socket at once."""
        for socket in (*self.pubs, *self.routers):
            socket.close(linger=0)


def _limited(socket: "zmq.Socket[bytes]", queue_messages: int) -> "zmq.Socket[bytes]":
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, queue_messages)
    # Requests to a replay socket are a few bytes, and subscriptions are walked a stack frame a byte.
    socket.setsockopt(zmq.MAXMSGSIZE, 4_096)
    return socket


def _bind_run(sockets: Sequence["zmq.Socket[bytes]"], host: str, port_base: int) -> int:
    """Bind to consecutive ports; the first of them."""
    shown = f"[{host}]" if ":" in host else host
    for _ in range(1 if port_base else _MAX_TRIES):
        bound: list[tuple[zmq.Socket[bytes], str]] = []
        base = port_base
        try:
            for offset, socket in enumerate(sockets):
                socket.bind(f"tcp://{shown}:{base + offset if base else '*'}")
                address = socket.getsockopt_string(zmq.LAST_ENDPOINT)
                bound.append((socket, address))
                base = base or int(address.rpartition(":")[2])
        except zmq.ZMQError as error:
            problem = error
            for socket, address in bound:
                socket.unbind(address)
            continue
        return base
    wanted = f"ports {port_base} to {port_base + len(sockets) - 1}" if port_base else "a free run of ports"
    raise PortsTakenError(f"cannot bind {wanted} at {host}: {problem}")
