"""Numbered topics on ZeroMQ: a PUB socket and a replay window for each rank's cache events.

Takes events from the rank threads, gives numbered frames to subscribers. A topic's PUB socket
belongs to the one thread that publishes on it; the replay sockets belong to the replay thread.
"""

import threading
from collections.abc import Callable

import msgspec
import zmq

from engine_shim.engine.publish.config import Endpoint, EventSockets
from engine_shim.engine.publish.journal import Journal, JournalEntry
from engine_shim.engine.publish.ports import bind_run
from engine_shim.engine.publish.replay import ReplayChannel, ReplayCounts, ReplayServer
from wire.events import Event, EventBatch
from wire.frames import encode_live

#: Longest subscription or replay request that is taken.
_MAX_INBOUND_BYTES = 4_096
#: Replays queued for one caller, at most. ZeroMQ learns late, by half a queue, what a caller has read.
_WINDOWS_QUEUED = 4


class EventTopic:
    """One numbered stream: publish from one thread, replay from another."""

    def __init__(self, socket: "zmq.Socket[bytes]", topic: str, journal: Journal) -> None:
        self._socket = socket
        self._topic = topic
        self._journal = journal
        self._lock = threading.Lock()

    @property
    def published_batches(self) -> int:
        """Batches sent so far; also the next number."""
        return self._journal.next_seq

    def publish(self, events: tuple[Event, ...], ts_s: float) -> None:
        """Number, keep and send one batch; returns when ZeroMQ has it. Never blocks."""
        with self._lock:
            entry = self._journal.append(events, ts_s)
        self._socket.send_multipart(encode_live(self._topic, entry.seq, entry.payload))

    def replay_from(self, start_seq: int) -> tuple[JournalEntry, ...]:
        """Kept batches from a number on; safe from any thread."""
        with self._lock:
            return self._journal.replay_from(start_seq)

    def close(self) -> None:
        """Close the PUB socket; the publishing thread must have ended."""
        self._socket.close(linger=0)


class EventPublisher:
    """Event topics of one process, one a rank, on contiguous ports."""

    def __init__(
        self,
        sockets: EventSockets,
        *,
        dp_size: int,
        encode: Callable[[EventBatch], bytes],
        replays_topic: bool = False,
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            pubs = [self._pub_socket(sockets) for _ in range(dp_size)]
            live = _place_live(pubs, sockets)
            routers = [self._router_socket(sockets) for _ in range(dp_size)] if sockets.replay else []
            replay = bind_run(routers, sockets.replay) if sockets.replay else None
        except BaseException:
            self._context.destroy(linger=0)
            raise
        #: As configured, with the ports that were bound.
        self.sockets = msgspec.structs.replace(sockets, live=live, replay=replay)
        #: By rank.
        self.topics = tuple(
            EventTopic(pub, sockets.topic, Journal(encode, dp_rank=rank, window_batches=sockets.buffer_steps))
            for rank, pub in enumerate(pubs)
        )
        topic_frame = sockets.topic if replays_topic else None
        channels = [
            ReplayChannel(router, topic.replay_from, topic_frame)
            for router, topic in zip(routers, self.topics, strict=False)
        ]
        self._replay = ReplayServer(self._context, channels)

    @property
    def replay_counts(self) -> ReplayCounts:
        """What the replay thread did so far."""
        return self._replay.counts

    def start(self) -> None:
        """Begin to answer replay requests."""
        self._replay.start()

    def close(self) -> None:
        """Close every socket; the publishing threads must have ended."""
        self._replay.stop()
        for topic in self.topics:
            topic.close()
        self._context.term()

    def describe(self, *, block_tokens: int) -> dict[str, object]:
        """The `kv_events` block of `/server_info`."""
        live, replay = self.sockets.live, self.sockets.replay
        described: dict[str, object] = {
            "publisher": "zmq",
            "endpoint_host": live.host,
            "endpoint_port_base": live.port_base,
            "topic": self.sockets.topic,
            "block_size": block_tokens,
            "dp_size": len(self.topics),
        }
        if replay is not None:
            described["replay_endpoint_host"] = replay.host
            described["replay_endpoint_port_base"] = replay.port_base
            described["replay_buffer_steps"] = self.sockets.buffer_steps
        return described

    def _pub_socket(self, sockets: EventSockets) -> "zmq.Socket[bytes]":
        pub = self._context.socket(zmq.PUB)
        pub.setsockopt(zmq.IPV6, int(":" in sockets.live.host))
        pub.setsockopt(zmq.SNDHWM, _queue_messages(sockets))
        # What comes in are subscriptions; libzmq walks one of megabytes a byte a stack frame.
        pub.setsockopt(zmq.MAXMSGSIZE, _MAX_INBOUND_BYTES)
        return pub

    def _router_socket(self, sockets: EventSockets) -> "zmq.Socket[bytes]":
        router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.IPV6, int(sockets.replay is not None and ":" in sockets.replay.host))
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a full queue is an error to count, not a frame lost in silence
        router.setsockopt(zmq.SNDHWM, _WINDOWS_QUEUED * (sockets.buffer_steps + 1))
        router.setsockopt(zmq.MAXMSGSIZE, _MAX_INBOUND_BYTES)
        return router


def _place_live(pubs: list["zmq.Socket[bytes]"], sockets: EventSockets) -> Endpoint:
    """Bind the PUB sockets to a run of ports, or connect them to a subscriber that binds."""
    if not sockets.live_connects:
        return bind_run(pubs, sockets.live)
    for rank, pub in enumerate(pubs):
        pub.connect(sockets.live.address(rank))
    return sockets.live


def _queue_messages(sockets: EventSockets) -> int:
    """A subscriber may lag by the whole replay window before ZeroMQ drops; 0 is no limit."""
    return max(sockets.hwm_messages, sockets.buffer_steps) if sockets.hwm_messages else 0
