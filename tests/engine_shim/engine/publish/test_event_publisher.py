"""The publisher over real sockets: numbers, ports, dialects, replay, and callers who misbehave."""

import threading

import pytest
import zmq

from engine_shim.engine.publish import Endpoint, EventDialect, EventPublisher, EventSockets
from engine_shim.engine.publish.ports import PortsTaken
from tests.waiting import PATIENCE_S
from wire.dialects import decode_batch
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event

LOCAL = Endpoint("127.0.0.1", 0)
STORED = BlockStored(block_hashes=(-5, 7), parent_block_hash=None, token_ids=(1, 2, 3, 4), block_tokens=2)
EVENTS: tuple[Event, ...] = (AllBlocksCleared(), STORED, BlockRemoved(block_hashes=(-5,)))
#: Too large for the buffers of the network to hide a caller that does not read.
LARGE = (BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=(70_000,) * 20_000, block_tokens=20_000),)


@pytest.fixture
def open_publisher(request):
    def open_(*, dp_size=1, dialect=EventDialect.SGLANG_MAP, **sockets):
        settings = EventSockets(**({"live": LOCAL, "replay": LOCAL} | sockets))
        publisher = EventPublisher(
            settings, dp_size=dp_size, encode=dialect.encoder(), replays_topic=dialect.replays_topic
        )
        request.addfinalizer(publisher.close)
        publisher.start()
        return publisher

    return open_


def subscribe(callers, publisher, rank=0):
    """A SUB socket that is known to be connected: batches are published until it sees one."""
    socket = callers.socket(zmq.SUB, publisher.sockets.live.address(rank))
    publisher.topics[rank].publish((AllBlocksCleared(),), 0.0)
    while not socket.poll(20):
        publisher.topics[rank].publish((AllBlocksCleared(),), 0.0)
    return socket


@pytest.mark.parametrize("dialect", list(EventDialect))
def test_a_subscriber_reads_the_events_that_were_published(callers, open_publisher, dialect):
    publisher = open_publisher(dialect=dialect, topic="kv")
    socket = subscribe(callers, publisher)
    publisher.topics[0].publish(EVENTS, 12.5)
    frames = socket.recv_multipart()
    while decode_batch(frames[2]).ts_s != 12.5:
        frames = socket.recv_multipart()
    batch = decode_batch(frames[2])
    assert frames[0] == b"kv"
    assert int.from_bytes(frames[1], "big") == publisher.topics[0].published_batches - 1
    assert batch.dp_rank == 0
    assert [type(event) for event in batch.events] == [AllBlocksCleared, BlockStored, BlockRemoved]
    assert batch.events[1].token_ids == STORED.token_ids


@pytest.mark.parametrize("dialect", list(EventDialect))
def test_a_replay_gives_every_kept_batch_from_a_number_on_and_an_end(callers, open_publisher, dialect):
    publisher = open_publisher(dialect=dialect, topic="kv", buffer_steps=5)
    for step in range(8):
        publisher.topics[0].publish(EVENTS, float(step))
    dealer = callers.socket(zmq.DEALER, publisher.sockets.replay.address())
    for start_seq, first in ((0, 3), (5, 5), (7, 7), (8, 8), (99, 8)):
        answers = callers.replay(dealer, start_seq)
        seqs = [int.from_bytes(frames[-2], "big") for frames in answers[:-1]]
        assert seqs == list(range(first, 8))
        assert [decode_batch(frames[-1]).ts_s for frames in answers[:-1]] == [float(seq) for seq in seqs]
        assert answers[-1][-1] == b""
        widths = {len(frames) for frames in answers}
        assert widths == ({4} if dialect is EventDialect.VLLM_MAP else {3})
    callers.replay(dealer, 0)  # the five before it have been counted by now
    assert publisher.replay_counts.answered in (5, 6)


def test_A04_replay_answers_have_no_topic_frame_in_sglangs_form(callers, open_publisher):
    publisher = open_publisher(topic="kv")
    publisher.topics[0].publish(EVENTS, 1.0)
    dealer = callers.socket(zmq.DEALER, publisher.sockets.replay.address())
    empty, number, payload = callers.replay(dealer, 0)[0]
    assert (empty, number) == (b"", bytes(8))
    assert decode_batch(payload).events[1].token_ids == STORED.token_ids


def test_a_caller_with_a_req_socket_gets_its_first_answer(callers, open_publisher):
    publisher = open_publisher()
    publisher.topics[0].publish(EVENTS, 1.0)
    req = callers.socket(zmq.REQ, publisher.sockets.replay.address())
    req.send(bytes(8))
    assert req.recv_multipart()[0] == bytes(8)


@pytest.mark.parametrize(
    "request_frames",
    [
        [bytes(8)],
        [b"", bytes(7)],
        [b"", b"\xff" * 8],
        [b"x", bytes(8)],
        [b"", bytes(8), b""],
        [b""],
    ],
)
def test_a_malformed_replay_request_is_counted_and_the_next_one_answered(callers, open_publisher, request_frames):
    publisher = open_publisher()
    publisher.topics[0].publish(EVENTS, 1.0)
    dealer = callers.socket(zmq.DEALER, publisher.sockets.replay.address())
    dealer.send_multipart(request_frames)
    assert len(callers.replay(dealer, 0)) == 2
    assert publisher.replay_counts.malformed == 1


def test_A26_every_rank_has_its_own_port_and_its_own_numbers(callers, open_publisher):
    publisher = open_publisher(dp_size=4)
    for rank, topic in enumerate(publisher.topics):
        for _ in range(rank + 1):
            topic.publish(EVENTS, float(rank))
    for rank in range(4):
        dealer = callers.socket(zmq.DEALER, publisher.sockets.replay.address(rank))
        answers = callers.replay(dealer, 0)[:-1]
        assert len(answers) == rank + 1
        assert {decode_batch(frames[-1]).dp_rank for frames in answers} == {rank}
    described = publisher.describe(block_tokens=2)
    assert described["endpoint_port_base"] == publisher.sockets.live.port_base
    assert described["dp_size"] == 4
    live, replay = publisher.sockets.live.port_base, publisher.sockets.replay.port_base
    assert not set(range(live, live + 4)) & set(range(replay, replay + 4))


def test_a_whole_window_reaches_a_slow_caller(callers, open_publisher):
    publisher = open_publisher(buffer_steps=3_000)
    for step in range(3_000):
        publisher.topics[0].publish((AllBlocksCleared(),), float(step))
    dealer = callers.socket(zmq.DEALER, publisher.sockets.replay.address())
    assert len(callers.replay(dealer, 0)) == 3_001
    assert publisher.replay_counts.cut_short == 0


def test_a_caller_that_never_reads_is_cut_short_and_counted_and_others_are_served(callers, open_publisher):
    publisher = open_publisher(buffer_steps=50)
    for step in range(50):
        publisher.topics[0].publish(LARGE, float(step))
    deaf = callers.socket(zmq.DEALER, publisher.sockets.replay.address(), receive_messages=1)
    while not publisher.replay_counts.cut_short:
        deaf.send_multipart([b"", bytes(8)])
    dealer = callers.socket(zmq.DEALER, publisher.sockets.replay.address())
    assert len(callers.replay(dealer, 0)) == 51


def test_a_slow_subscriber_loses_nothing_below_the_window(callers, open_publisher):
    publisher = open_publisher(buffer_steps=2_000, hwm_messages=10)
    socket = subscribe(callers, publisher)
    before = publisher.topics[0].published_batches
    for step in range(2_000):
        publisher.topics[0].publish((AllBlocksCleared(),), float(step))
    seqs = []
    while not seqs or seqs[-1] < before + 1_999:
        seqs.append(int.from_bytes(socket.recv_multipart()[1], "big"))
    assert seqs == list(range(seqs[0], before + 2_000))


def test_replay_and_publishing_from_two_threads_stay_consistent(callers, open_publisher):
    publisher = open_publisher(buffer_steps=200)
    topic = publisher.topics[0]

    def publish_many():
        for step in range(2_000):
            topic.publish((AllBlocksCleared(),), float(step))

    publishing = threading.Thread(target=publish_many)
    publishing.start()
    dealer = callers.socket(zmq.DEALER, publisher.sockets.replay.address())
    while publishing.is_alive():
        seqs = [int.from_bytes(frames[-2], "big") for frames in callers.replay(dealer, 0)[:-1]]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True
    publishing.join()
    assert topic.published_batches == 2_000


def test_a_named_port_in_use_is_a_clear_error_and_leaves_nothing_bound(open_publisher):
    first = open_publisher(dp_size=2)
    taken = first.sockets.live.port_base + 1
    with pytest.raises(PortsTaken, match=str(taken)):
        open_publisher(live=Endpoint("127.0.0.1", taken))


def test_a_publisher_that_connects_reaches_a_subscriber_that_binds(callers, open_publisher):
    sub = callers.socket(zmq.SUB, "inproc://unused")
    port = sub.bind_to_random_port("tcp://127.0.0.1")
    publisher = open_publisher(live=Endpoint("127.0.0.1", port), live_connects=True, replay=None)
    publisher.topics[0].publish(EVENTS, 0.0)
    while not sub.poll(20):
        publisher.topics[0].publish(EVENTS, 0.0)
    assert decode_batch(sub.recv_multipart()[2]).events[1].token_ids == STORED.token_ids
    assert "replay_endpoint_host" not in publisher.describe(block_tokens=2)


def test_A03_a_new_publisher_counts_from_zero_again(callers, open_publisher):
    for _ in range(2):
        publisher = open_publisher()
        publisher.topics[0].publish(EVENTS, 0.0)
        dealer = callers.socket(zmq.DEALER, publisher.sockets.replay.address())
        assert callers.replay(dealer, 0)[0][-2] == bytes(8)


def test_a_subscription_longer_than_any_topic_is_refused_and_others_are_served(callers, open_publisher):
    publisher = open_publisher()
    hostile = callers.socket(zmq.XSUB, publisher.sockets.live.address(0))
    monitor = hostile.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    hostile.send(b"\x01" + b"a" * 8_192)
    assert monitor.poll(PATIENCE_S * 1_000)
    hostile.disable_monitor()
    monitor.close(linger=0)
    hostile.close(linger=0)
    assert subscribe(callers, publisher).recv_multipart()
