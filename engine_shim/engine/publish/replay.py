"""Answers replay requests: one thread owns every ROUTER socket and sleeps until one of them is asked.

Takes the journals from the publisher, gives callers the batches they missed. Frames follow SGLang:
`[identity, empty, number]` in, `[identity, empty, number, payload]` out, then the end marker.
"""

import threading
from collections.abc import Callable, Sequence

import msgspec
import zmq

from engine_shim.engine.publish.journal import JournalEntry
from wire.frames import encode_replay, encode_replay_end, parse_replay_request
from wire.malformed import Malformed

_STOP_ADDRESS = "inproc://replay-stop"


class ReplayChannel(msgspec.Struct, frozen=True):
    """One ROUTER socket and what it answers from."""

    socket: "zmq.Socket[bytes]"
    #: Kept batches from a number on; called on the replay thread.
    replay_from: Callable[[int], tuple[JournalEntry, ...]]
    #: Topic frame of each answer; None for dialects that have none.
    topic: str | None


class ReplayCounts(msgspec.Struct):
    """What the replay thread did; written by it alone."""

    answered: int = 0
    #: Requests of the wrong shape, left unanswered.
    malformed: int = 0
    #: Answers given up because the caller did not read; it sees no end marker.
    cut_short: int = 0


class ReplayServer:
    """Serves replay channels until stopped."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", channels: Sequence[ReplayChannel]) -> None:
        self._channels = {channel.socket: channel for channel in channels}
        self._stop_receiver = context.socket(zmq.PAIR)
        self._stop_receiver.bind(_STOP_ADDRESS)
        self._stop_sender = context.socket(zmq.PAIR)
        self._stop_sender.connect(_STOP_ADDRESS)
        self._thread = threading.Thread(target=self._serve, name="event-replay", daemon=True)
        self.counts = ReplayCounts()

    def start(self) -> None:
        """Hand the sockets to the thread; nobody else touches them from here on."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which closes the sockets it owns."""
        if self._thread.ident is None:
            self._close()
        else:
            self._stop_sender.send(b"")
            self._thread.join()
        self._stop_sender.close(linger=0)

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (self._stop_receiver, *self._channels):
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = [socket for socket, _ in poller.poll()]
            if self._stop_receiver in ready:
                break
            for socket in ready:
                self._answer(self._channels[socket])
        self._close()

    def _close(self) -> None:
        for socket in (self._stop_receiver, *self._channels):
            socket.close(linger=0)

    def _answer(self, channel: ReplayChannel) -> None:
        identity, *request = channel.socket.recv_multipart()
        start_seq = parse_replay_request(request)
        if isinstance(start_seq, Malformed):
            self.counts.malformed += 1
            return
        answers = [
            encode_replay(entry.seq, entry.payload, topic=channel.topic) for entry in channel.replay_from(start_seq)
        ]
        answers.append(encode_replay_end(topic_frame=channel.topic is not None))
        try:
            for frames in answers:
                channel.socket.send_multipart([identity, *frames], zmq.NOBLOCK)
        except zmq.ZMQError:
            self.counts.cut_short += 1
        else:
            self.counts.answered += 1
