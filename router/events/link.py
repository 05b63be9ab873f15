"""The sockets of one rank: its events, its replays, and word of its connection.

Made, used and closed by the feed's thread alone. Reads frames and sends requests; knows nothing of what they mean.
"""

import zmq
from zmq.utils.monitor import recv_monitor_message

from router.fleet.source import RankSource
from wire.frames import MAX_PAYLOAD_BYTES, encode_replay_request

#: News of a connection read in one go.
_NEWS_A_TURN = 64
_NOBLOCK = int(zmq.NOBLOCK)
#: Messages a socket may queue here; above that the engine drops and a gap is replayed.
QUEUE_MESSAGES = 10_000
_WATCHED = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED


class RankLink:
    """Open sockets of one rank."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", source: RankSource) -> None:
        """Open them.

        Raises:
            zmq.ZMQError: An address cannot be used.
            ValueError: An address or the topic is no text that can be sent.
        """
        self.source = source
        self._context = context
        self.replay: zmq.Socket[bytes] | None = None
        self.events: zmq.Socket[bytes] = _bounded(context.socket(zmq.SUB))
        self.monitor: zmq.Socket[bytes] = self.events.get_monitor_socket(_WATCHED)
        try:
            self.events.setsockopt(zmq.SUBSCRIBE, source.topic.encode())
            if source.binds:
                self.events.bind(source.endpoint)
            else:
                self.events.connect(source.endpoint)
        except (zmq.ZMQError, ValueError):
            self.close()
            raise

    def ask_replay(self, start_seq: int) -> bool:
        """Ask for everything from `start_seq` on, over a fresh socket; False where that cannot be sent.

        A fresh socket has no frames of an earlier request in it.
        """
        self.close_replay()
        if self.source.replay_endpoint is None:
            return False
        self.replay = _bounded(self._context.socket(zmq.DEALER))
        try:
            self.replay.connect(self.source.replay_endpoint)
            self.replay.send_multipart(encode_replay_request(start_seq), zmq.NOBLOCK)
        except (zmq.ZMQError, ValueError):
            self.close_replay()
            return False
        return True

    def close_replay(self) -> None:
        """Give up the replay under way."""
        if self.replay is not None:
            self.replay.close(linger=0)
            self.replay = None

    def read_news(self) -> tuple[bool, bool]:
        """The connection's news since the last call: whether it was lost, and whether it stands (again)."""
        lost = stands = False
        for _ in range(_NEWS_A_TURN):
            try:
                news = recv_monitor_message(self.monitor, zmq.NOBLOCK)
            except zmq.ZMQError:
                break
            lost = lost or news["event"] == zmq.EVENT_DISCONNECTED
            stands = news["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
        return lost, stands

    def close(self) -> None:
        """Close every socket at once."""
        self.close_replay()
        self.events.disable_monitor()
        self.monitor.close(linger=0)
        self.events.close(linger=0)


def _bounded(socket: "zmq.Socket[bytes]") -> "zmq.Socket[bytes]":
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)
    return socket


def read_messages(socket: "zmq.Socket[bytes]", limit: int) -> list[list[bytes]]:
    """Messages that are there, at most `limit` of them.

    Cost: some 2 us each, `recv_multipart` takes 4: it asks the socket after every frame whether there is another.
    """
    messages: list[list[bytes]] = []
    receive = socket.recv
    try:
        while len(messages) < limit:
            frame = receive(_NOBLOCK, copy=False)
            frames = [frame.bytes]
            while frame.more:
                frame = receive(_NOBLOCK, copy=False)
                frames.append(frame.bytes)
            messages.append(frames)
    except zmq.ZMQError:
        # No more are there, or none will come any more.
        return messages
    return messages
