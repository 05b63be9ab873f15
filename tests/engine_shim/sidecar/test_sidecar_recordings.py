"""Recordings of real engines, played through a sidecar over real sockets: the predictions stay the same."""

import msgspec
import pytest
import zmq
from beside import wait_until

from router.recordings.capture import read_capture
from router.recordings.check import RecordingCheck
from tests.waiting import PATIENCE_S
from wire.frames import ReplayEnd, encode_live, encode_replay_request, parse_live, parse_replay

RECORDINGS = (
    "vllm016_full_reuse_array_form",
    "vllm032_full_reuse",
    "vllm032_full_evict",
    "vllm032_full_report_mode_full",
    "vllm032_dp2",
    "vllm032_hybrid_sliding_plus_full",
    "vllm032_hybrid_gdn_plus_full_block1056",
)
pytestmark = pytest.mark.shared


def read(shared_dir, name):
    path = shared_dir / "recordings" / f"{name}.jsonl"
    return read_capture(path.name, path.read_text(encoding="utf-8").splitlines())


class Tape:
    """Reads what every rank of a sidecar publishes, by its replays: nothing is missed while a socket connects."""

    def __init__(self, context, service):
        self.context, self.ports = context, service.hub.ports
        self.service = service
        self.next_seq = [0] * service.hub.rank_count

    def read_on(self, rank):
        """Live messages published since the last call, as a subscriber would have seen them."""
        socket = self.context.socket(zmq.DEALER)
        socket.connect(f"tcp://127.0.0.1:{self.ports.replay_base + rank}")
        socket.send_multipart(encode_replay_request(self.next_seq[rank]))
        fresh = []
        while True:
            assert socket.poll(PATIENCE_S * 1_000)
            frame = parse_replay(socket.recv_multipart())
            if isinstance(frame, ReplayEnd):
                break
            assert frame.seq == self.next_seq[rank]
            self.next_seq[rank] += 1
            fresh.append(encode_live(frame.topic, frame.seq, frame.payload))
        socket.close(linger=0)
        return fresh


def play(bench, context, capture, *, lose=()):
    """The capture as a subscriber of the sidecar would have made it."""
    ranks = capture.sockets
    engine = bench.engine(dp_size=len(ranks))
    _, service = bench.sidecar(engine)
    wait_until(lambda: service.is_ready, "the mirrors")
    tape = Tape(context, service)
    wait_until(lambda: all(rank.asked for rank in engine.ranks), "the sidecar's first replay")
    mirrored = []
    for number, message in enumerate(capture.messages):
        rank = ranks[message.socket]
        is_lost = number in lose
        engine.ranks[rank].publish(list(message.frames), lost=is_lost)
        if is_lost:
            continue
        seq = parse_live(message.frames).seq
        wait_until(lambda rank=rank, seq=seq: service.hub.to_views()[rank].engine_seq == seq, f"batch {number}")
        for frames in tape.read_on(rank):
            mirrored.append(msgspec.structs.replace(message, frames=tuple(frames)))
    return tuple(mirrored), service


@pytest.mark.parametrize("name", RECORDINGS)
def test_predictions_behind_a_sidecar_are_those_of_the_engines_own_events(bench, context, shared_dir, name):
    capture = read(shared_dir, name)
    mirrored, _ = play(bench, context, capture)
    verdicts = RecordingCheck(msgspec.structs.replace(capture, messages=mirrored)).run().verdicts
    assert verdicts == RecordingCheck(capture).run().verdicts


def test_a_batch_that_is_lost_on_the_way_to_the_sidecar_is_replayed(bench, context, shared_dir):
    capture = read(shared_dir, "vllm032_full_reuse")
    lost = (4, 5)
    mirrored, service = play(bench, context, capture, lose=lost)
    (view,) = service.hub.to_views()
    assert (view.counters.gaps, view.counters.losses, view.trust.value) == (1, 0, "exact")
    whole = RecordingCheck(capture)
    whole.run()
    behind = RecordingCheck(msgspec.structs.replace(capture, messages=mirrored))
    behind.run()
    assert [index.block_count(stream.holder) for index, stream in held(behind)] == [
        index.block_count(stream.holder) for index, stream in held(whole)
    ]


def held(check):
    return [(check._index, stream) for stream in check._streams.values()]
