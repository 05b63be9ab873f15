"""An engine's event sockets for one rank: publishes, drops, replays and restarts as a test says."""

import threading

import zmq

from tests.ports import take_port
from tests.waiting import wait_until
from wire.dialects.sglang import Generation, encode_batch
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from wire.frames import encode_live, encode_replay, encode_replay_end, parse_replay_request

BLOCK_TOKENS = 4


def stored(first, count=1, parent=None, base=100):
    """Blocks `first` to `first + count`: block b has the tokens of b and the engine hash base + b."""
    blocks = range(first, first + count)
    return BlockStored(
        block_hashes=tuple(base + block for block in blocks),
        parent_block_hash=parent if first == 0 or parent is not None else base + first - 1,
        token_ids=tuple(block * BLOCK_TOKENS + place for block in blocks for place in range(BLOCK_TOKENS)),
        block_tokens=BLOCK_TOKENS,
    )


def removed(*blocks, base=100):
    return BlockRemoved(block_hashes=tuple(base + block for block in blocks))


def tokens(blocks):
    return [*range(blocks * BLOCK_TOKENS), 7]


def bind(socket, port):
    """Bind to a port, waiting for the one who had it to let go."""

    def is_bound():
        try:
            socket.bind(f"tcp://127.0.0.1:{port}")
        except zmq.ZMQError:
            return False
        return True

    wait_until(is_bound, f"port {port}")
    return socket


class Publisher:
    """Publishing and ROUTER sockets with a replay buffer; the ROUTER answers from a thread."""

    def __init__(self, context, *, port=0, replay_port=0, keeps=10_000, answers=True):
        self.context = context
        self.keeps = keeps
        self.answers = answers
        self.seq = 0
        self.buffer = []
        self.asked = []
        # It tells who subscribed, and loses nothing that a subscriber is slow to take.
        self.pub = context.socket(zmq.XPUB)
        self.pub.setsockopt(zmq.SNDHWM, 0)
        bind(self.pub, port or take_port())
        self._has_subscriber = False
        self.router = bind(context.socket(zmq.ROUTER), replay_port or take_port())
        self.endpoint = self.pub.get(zmq.LAST_ENDPOINT).decode()
        self.replay_endpoint = self.router.get(zmq.LAST_ENDPOINT).decode()
        self._closing = False
        self._thread = threading.Thread(target=self._replay, daemon=True)
        self._thread.start()

    def publish(self, *events, lost=False):
        """Number, keep and send a batch; a lost one is kept and not sent."""
        payload = encode_batch(EventBatch(ts_s=1.0, events=tuple(events)), Generation.MAP)
        self.publish_bytes(payload, lost=lost)

    def publish_bytes(self, payload, *, lost=False):
        self.buffer = [*self.buffer, (self.seq, payload)][-self.keeps :]
        if not lost:
            # ZeroMQ drops what it sends before it has looked at the wishes that arrived.
            self.has_subscriber()
            self.pub.send_multipart(encode_live("", self.seq, payload))
        self.seq += 1

    def has_subscriber(self):
        """Whether somebody ever subscribed: what is published from then on reaches it."""
        self._has_subscriber = self._has_subscriber or bool(self.pub.poll(0))
        return self._has_subscriber

    def start(self):
        self.publish(AllBlocksCleared())

    def close(self):
        self._closing = True
        self._thread.join()
        self.pub.close(linger=0)
        self.router.close(linger=0)

    def _replay(self):
        while not self._closing:
            if not self.router.poll(10):
                continue
            identity, *frames = self.router.recv_multipart()
            start = parse_replay_request(frames)
            self.asked.append(start)
            if not self.answers:
                continue
            for seq, payload in [entry for entry in self.buffer if entry[0] >= start]:
                self.router.send_multipart([identity, *encode_replay(seq, payload)])
            self.router.send_multipart([identity, *encode_replay_end()])
